import { createStore, type StoreApi } from "zustand/vanilla";
import { perConsole } from "../store/per-console.js";
import type { LaneTransport } from "./lanes.js";
import type { Selection } from "./scene/model.js";

export interface TopologyUi {
  /** One selection for the map and its table. */
  selection: Selection;
  hover: Selection;
  transport: LaneTransport | "all";
}
export const createTopologyUi = (): StoreApi<TopologyUi> => createStore<TopologyUi>()(() => ({ selection: null, hover: null, transport: "all" }));

export const useTopologyUi = perConsole(createTopologyUi);
