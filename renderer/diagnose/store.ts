import { createStore, type StoreApi } from "zustand/vanilla";
import { perConsole } from "../store/per-console.js";

export interface DiagnoseUi {
  /** The node whose findings are shown. */
  shown: string | null;
  /** Nodes to check; null = none chosen yet. */
  chosen: ReadonlySet<string>;
  /** The source whose text is open. */
  source: { nodeId: string; sourceId: string; line: number | null } | null;
}
export const createDiagnoseUi = (): StoreApi<DiagnoseUi> => createStore<DiagnoseUi>()(() => ({ shown: null, chosen: new Set(), source: null }));
export const useDiagnoseUi = perConsole(createDiagnoseUi);
