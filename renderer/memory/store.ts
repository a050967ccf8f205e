import { useEffect, useMemo } from "react";
import { createStore } from "zustand/vanilla";
import type { GpuProcessView, NodeMemoryView } from "../../electron/contract/index.js";
import { useConsole, type Console } from "../store/console.js";
import { createKeyedStore, type KeyedStore } from "../store/keyed.js";
import { perConsole } from "../store/per-console.js";

/** The stream of one console: subscribed while something on the page looks, since the nodes are asked for it. */
class MemoryFeed {
  readonly store: KeyedStore<NodeMemoryView> = createKeyedStore<NodeMemoryView>((view) => view.nodeId);
  #uses = 0;
  #leave: (() => void) | null = null;

  constructor(private readonly console: Console) {}

  use(): () => void {
    if (this.#uses++ === 0) this.#leave = this.console.client.subscribe("memory", this.store.apply, this.store.fail);
    return () => {
      if (--this.#uses > 0) return;
      this.#leave?.();
      this.#leave = null;
    };
  }
}

const feeds = new WeakMap<Console, MemoryFeed>();

/** What the nodes tell of their memory, kept fresh while the component is there. What was told before is shown at once, with its age. */
export function useMemory(): KeyedStore<NodeMemoryView> {
  const console = useConsole();
  const feed = useMemo(() => {
    const made = feeds.get(console) ?? new MemoryFeed(console);
    feeds.set(console, made);
    return made;
  }, [console]);
  useEffect(() => feed.use(), [feed]);
  return feed.store;
}

export type MemoryTab = "gpus" | "host";
export interface MemoryUi {
  tab: MemoryTab;
  /** The row whose pool is shown. */
  selected: string | null;
  text: string;
  busyOnly: boolean;
}
export const useMemoryUi = perConsole(() => createStore<MemoryUi>()(() => ({ tab: "gpus", selected: null, text: "", busyOnly: false })));

/** A row of the table: a process on a GPU, or a GPU that none uses. */
export interface PoolRow {
  view: NodeMemoryView;
  process: GpuProcessView | null;
  gpu: NodeMemoryView["gpus"][number] | null;
}

const processRowId = (nodeId: string, key: string): string => `${nodeId}/${key}`;
const gpuRowId = (nodeId: string, index: number): string => `${nodeId}/gpu${index}`;

/** Every row's id, nodes in the order of the map. */
export function rowIdsOf(items: ReadonlyMap<string, NodeMemoryView>): string[] {
  return [...items.values()].flatMap((view) => [
    ...view.processes.map((process) => processRowId(view.nodeId, process.key)),
    ...view.gpus.filter((gpu) => !view.processes.some((process) => process.gpuIndex === gpu.index)).map((gpu) => gpuRowId(view.nodeId, gpu.index)),
  ]);
}

/** The row of an id; undefined when it is gone. */
export function rowOf(items: ReadonlyMap<string, NodeMemoryView>, id: string | null): PoolRow | undefined {
  if (id === null) return undefined;
  const at = id.indexOf("/");
  const view = items.get(id.slice(0, at));
  const rest = id.slice(at + 1);
  if (!view) return undefined;
  if (rest.startsWith("gpu")) {
    const gpu = view.gpus.find((each) => String(each.index) === rest.slice(3));
    return gpu && { view, process: null, gpu };
  }
  const process = view.processes.find((each) => each.key === rest);
  return process && { view, process, gpu: view.gpus.find((each) => each.index === process.gpuIndex) ?? null };
}
