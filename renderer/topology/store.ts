import { createStore, type StoreApi } from "zustand/vanilla";
import type { TopologyRef, Words } from "../../electron/contract/index.js";
import { perConsole } from "../store/per-console.js";
import type { LaneTransport } from "./lanes.js";
import type { Selection } from "./scene/model.js";

/** The first element of a path that breaks a rule, as a guide found it. */
export interface Mark { ref: TopologyRef; label: string; rule: Words }

export interface TopologyUi {
  /** One selection for the map and its table. */
  selection: Selection;
  hover: Selection;
  transport: LaneTransport | "all";
  mark: Mark | null;
}
export const createTopologyUi = (): StoreApi<TopologyUi> => createStore<TopologyUi>()(() => ({ selection: null, hover: null, transport: "all", mark: null }));

export const useTopologyUi = perConsole(createTopologyUi);
