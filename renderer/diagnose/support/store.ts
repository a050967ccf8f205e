import { createStore, type StoreApi } from "zustand/vanilla";
import type { SupportBundleView } from "../../../electron/contract/index.js";
import { perConsole } from "../../store/per-console.js";

export const useSupportStore = perConsole((): StoreApi<{ bundle: SupportBundleView | null }> => createStore<{ bundle: SupportBundleView | null }>()(() => ({ bundle: null })));
