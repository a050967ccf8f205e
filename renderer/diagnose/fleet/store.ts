import { createStore, type StoreApi } from "zustand/vanilla";
import { useConsole, type Console } from "../../store/console.js";
import { perConsole } from "../../store/per-console.js";
import { GroupMender } from "./mender.js";

export interface FleetUi {
  /** Keys of the groups that are open. */
  open: ReadonlySet<string>;
  /** Keys of the groups in the order in which they are shown. */
  order: readonly string[];
}
/** What is open stays open while the person looks at a node and comes back. */
export const useFleetUi = perConsole<FleetUi>((): StoreApi<FleetUi> => createStore<FleetUi>()(() => ({ open: new Set(), order: [] })));

const menders = new WeakMap<Console, GroupMender>();
/** The mends of many nodes of this console: they go on whatever page is looked at. */
export function useGroupMender(): GroupMender {
  const console = useConsole();
  let mender = menders.get(console);
  if (!mender) menders.set(console, (mender = new GroupMender(console)));
  return mender;
}
