import type { Page } from "./router.js";

export const PAGE_KEYS: Record<Page, string> = { nodes: "g n", topology: "g t", memory: "g m", collectives: "g c", diagnose: "g d", alerts: "g a", settings: "g s" };
