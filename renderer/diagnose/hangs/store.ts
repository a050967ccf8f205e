import { createStore, type StoreApi } from "zustand/vanilla";
import type { HangView } from "../../../electron/contract/index.js";
import { perConsole } from "../../store/per-console.js";

/** What the recorders said last; it stays while the person looks elsewhere. */
export const useHangStore = perConsole<{ view: HangView | null }>((): StoreApi<{ view: HangView | null }> => createStore<{ view: HangView | null }>()(() => ({ view: null })));
