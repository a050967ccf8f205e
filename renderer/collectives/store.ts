import { createStore, type StoreApi } from "zustand/vanilla";
import { perConsole } from "../store/per-console.js";
import { FIRST_DRAFT, type Draft } from "./draft.js";

export interface CollectivesUi {
  draft: Draft;
  /** The run whose table is shown; null = the newest. */
  shown: string | null;
  /** Runs drawn over it. */
  compared: ReadonlySet<string>;
  place: "outOfPlace" | "inPlace";
}
export const createCollectivesUi = (): StoreApi<CollectivesUi> =>
  createStore<CollectivesUi>()(() => ({ draft: FIRST_DRAFT, shown: null, compared: new Set(), place: "outOfPlace" }));
export const useCollectivesUi = perConsole(createCollectivesUi);
