import { createStore, type StoreApi } from "zustand/vanilla";
import type { FileDiagnosisView, OpenedBundle } from "../../../electron/contract/index.js";
import { perConsole } from "../../store/per-console.js";

export interface FilesState {
  text: string;
  result: FileDiagnosisView | null;
  bundle: OpenedBundle | null;
}
/** What was pasted and what it says; it stays while the person looks elsewhere. */
export const useFilesStore = perConsole((): StoreApi<FilesState> => createStore<FilesState>()(() => ({ text: "", result: null, bundle: null })));
