import { withAbort } from "../abort.js";
import { ConsoleError, toErrorView, type ErrorView, type GpuProcessView, type NodeMemoryView, type NodeView, type PoolMapView } from "../contract/index.js";
import type { NodeDirectory } from "../link/directory.js";
import { GpuProcess } from "../link/gpu-schemas.js";
import { Limit } from "../ssh/limit.js";
import { KeyedTopic, type Topic } from "../streams.js";
import { PoolHistory } from "./pool-history.js";
import { Sweep, type SweepPace } from "./sweep.js";
import { processKey, processView, rangesOf } from "./view.js";

const CALL_TIMEOUT_MS = 10_000;
/** Until a node is asked again, by what it said last; what says nothing new waits twice as long each time. */
const WAIT_MS = { pending: 1000, processes: 2000, idleFirst: 4000, idleMost: 30_000, failedFirst: 2000, failedMost: 60_000 };
/** A description of this age answers a look at one pool: many that look cost the node one call. */
const FRESH_MS = 700;

export interface NodeMemoryOptions {
  nodes: NodeDirectory;
  /** The last frame's word about a node's memory. */
  sampleOf: (nodeId: string) => { memoryAvailableBytes: number; daemonRssKib: number; sampledAtMs: number } | undefined;
  onError?: (error: unknown) => void;
  now?: () => number;
  pace?: SweepPace;
}

/** A call that runs: it ends when nobody waits for it any more. */
interface Reading {
  done: Promise<void>;
  abort: AbortController;
  waiting: number;
}
interface Entry {
  processes: GpuProcessView[];
  pools: Map<string, PoolHistory>;
  readAtMs: number | null;
  omitted: number;
  damaged: number;
  supported: boolean;
  error: ErrorView | null;
  idleWaitMs: number;
  failedWaitMs: number;
}
const newEntry = (): Entry => ({
  processes: [], pools: new Map(), readAtMs: null, omitted: 0, damaged: 0, supported: true, error: null, idleWaitMs: WAIT_MS.idleFirst, failedWaitMs: WAIT_MS.failedFirst,
});

const isUp = (node: NodeView): boolean => node.phase === "up" || node.phase === "degraded";

/**
 * The memory of the nodes: the host's, and the pools of the processes that use GPUs. Nodes are asked only while somebody looks, in
 * turn and a few at a time. One that falls silent keeps its last words, with their age.
 */
export class NodeMemory {
  /** By node id. */
  readonly topic: Topic;
  readonly #keyed: KeyedTopic<NodeMemoryView>;
  readonly #entries = new Map<string, Entry>();
  readonly #reading = new Map<string, Reading>();
  readonly #sweep: Sweep;
  readonly #limit: Limit;
  readonly #leave: () => void;
  readonly #now: () => number;
  #listeners = 0;

  constructor(private readonly o: NodeMemoryOptions) {
    this.#now = o.now ?? Date.now;
    const pace = o.pace ?? { atOnce: 8, spacingMs: 40 };
    this.#limit = new Limit(pace.atOnce);
    this.#keyed = new KeyedTopic<NodeMemoryView>({ list: () => this.#shown().map((node) => this.#view(node)), get: (id) => this.#shown().filter((node) => node.id === id).map((node) => this.#view(node))[0] });
    this.#sweep = new Sweep(pace, () => this.o.nodes.list().filter(isUp).map((node) => node.id), (nodeId, signal) => this.#visit(nodeId, signal));
    this.topic = { subscribe: (listener, options) => this.#subscribe(listener, options) };
    this.#leave = o.nodes.onChange((ids) => {
      for (const id of ids) if (!this.o.nodes.get(id)) this.#entries.delete(id);
      this.#keyed.changed(...ids);
      this.#sweep.wake();
    });
  }

  /**
   * Asks the nodes now; a node that fails has its error in its view.
   * @param nodeIds all that are up where absent
   * @throws ConsoleError H301 for a node that there is not, H104 aborted
   */
  async get(nodeIds: readonly string[] | undefined, signal?: AbortSignal): Promise<NodeMemoryView[]> {
    const ids = nodeIds ?? this.o.nodes.list().filter(isUp).map((node) => node.id);
    for (const nodeId of ids) this.#node(nodeId);
    await Promise.all(ids.map((nodeId) => this.#limit.run(() => this.#look(nodeId, signal), signal)));
    return ids.flatMap((nodeId) => { const node = this.o.nodes.get(nodeId); return node ? [this.#view(node)] : []; });
  }

  /** One pool in full, as it was at most a moment ago. @throws ConsoleError H301, H104 */
  async map(nodeId: string, process: string, signal?: AbortSignal): Promise<{ node: NodeMemoryView; map: PoolMapView | null }> {
    const node = this.#node(nodeId);
    const readAtMs = this.#entries.get(nodeId)?.readAtMs ?? null;
    if (readAtMs === null || this.#now() - readAtMs >= FRESH_MS) await this.#look(nodeId, signal);
    return { node: this.#view(this.o.nodes.get(nodeId) ?? node), map: this.#entries.get(nodeId)?.pools.get(process)?.view() ?? null };
  }

  /** Something changed on these nodes: whoever looks wants to see what became of it. */
  soon(nodeIds: readonly string[]): void {
    for (const nodeId of nodeIds) {
      const entry = this.#entries.get(nodeId);
      if (entry) entry.idleWaitMs = WAIT_MS.idleFirst;
    }
    this.#sweep.wake(nodeIds);
  }

  close(): void {
    this.#leave();
    this.#sweep.stop();
  }

  #subscribe(listener: (event: unknown) => void, options?: Parameters<Topic["subscribe"]>[1]): () => void {
    const leave = this.#keyed.subscribe(listener, options);
    let here = true;
    this.#listeners++;
    this.#sweep.start();
    return () => {
      if (!here) return;
      here = false;
      leave();
      if (--this.#listeners === 0) this.#sweep.stop();
    };
  }

  #node(nodeId: string): NodeView {
    const node = this.o.nodes.get(nodeId);
    if (!node) throw ConsoleError.of("H301", { nodeId });
    return node;
  }

  /** Those that are up, and those that told once and are silent now. */
  #shown(): NodeView[] {
    return this.o.nodes.list().filter((node) => isUp(node) || this.#entries.get(node.id)?.readAtMs != null);
  }

  /** One look of the sweep; gives the wait until the next. */
  async #visit(nodeId: string, signal: AbortSignal): Promise<number> {
    await this.#look(nodeId, signal).catch((error: unknown) => {
      if (!signal.aborted) this.o.onError?.(error);
    });
    const entry = this.#entries.get(nodeId) ?? newEntry();
    if (entry.error) return (entry.failedWaitMs = Math.min(entry.failedWaitMs * 2, WAIT_MS.failedMost)) / 2;
    entry.failedWaitMs = WAIT_MS.failedFirst;
    if (entry.processes.length === 0) return (entry.idleWaitMs = Math.min(entry.idleWaitMs * 2, WAIT_MS.idleMost)) / 2;
    entry.idleWaitMs = WAIT_MS.idleFirst;
    return entry.processes.some((process) => !process.settingsCurrent || process.settings.some((row) => row.state === "pending")) ? WAIT_MS.pending : WAIT_MS.processes;
  }

  /** Asks once however many want to know; what the node says, or why it does not, is in its entry then. @throws ConsoleError H104 for this asker alone */
  async #look(nodeId: string, signal: AbortSignal | undefined): Promise<void> {
    let reading = this.#reading.get(nodeId);
    if (!reading) {
      const abort = new AbortController();
      const mine: Reading = { done: this.#read(nodeId, abort.signal).finally(() => { if (this.#reading.get(nodeId) === mine) this.#reading.delete(nodeId); }), abort, waiting: 0 };
      this.#reading.set(nodeId, mine);
      reading = mine;
    }
    reading.waiting++;
    try {
      await withAbort(reading.done, signal);
    } finally {
      if (--reading.waiting === 0 && signal?.aborted) {
        if (this.#reading.get(nodeId) === reading) this.#reading.delete(nodeId);
        reading.abort.abort();
      }
    }
  }

  async #read(nodeId: string, unwanted: AbortSignal): Promise<void> {
    const entry = this.#entries.get(nodeId) ?? newEntry();
    const late = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const signal = AbortSignal.any([unwanted, late]);
    try {
      const agent = await withAbort(this.o.nodes.agent(nodeId, signal), signal);
      const answer = await agent.call("gpu.processes", {}, { timeoutMs: CALL_TIMEOUT_MS, signal });
      this.#take(entry, answer, this.o.nodes.get(nodeId) ?? null);
    } catch (error) {
      if (!(error instanceof ConsoleError)) throw error;
      if (unwanted.aborted) return;
      const view = late.aborted ? ConsoleError.of("H209", { what: "gpu.processes", host: this.o.nodes.get(nodeId)?.name ?? nodeId, seconds: CALL_TIMEOUT_MS / 1000 }).view : toErrorView(error);
      if (view.code === "A102") this.#tooOld(entry);
      else entry.error = view;
    }
    // It may have been forgotten while it was asked.
    if (this.o.nodes.get(nodeId)) this.#entries.set(nodeId, entry);
    this.#keyed.changed(nodeId);
  }

  #tooOld(entry: Entry): void {
    entry.processes = [];
    entry.pools.clear();
    entry.readAtMs = this.#now();
    entry.supported = false;
    entry.error = null;
  }

  #take(entry: Entry, answer: { processes: unknown[]; omitted: number }, node: NodeView | null): void {
    const nowMs = this.#now();
    const good = answer.processes.flatMap((each) => { const parsed = GpuProcess.safeParse(each); return parsed.success ? [parsed.data] : []; });
    const byKey = new Map(good.map((raw) => [processKey(raw), raw]));
    for (const key of entry.pools.keys()) if (!byKey.has(key)) entry.pools.delete(key);
    entry.processes = [...byKey].map(([key, raw]) => {
      const view = processView(raw, nowMs, node?.facts ?? null);
      const pool = entry.pools.get(key) ?? new PoolHistory();
      entry.pools.set(key, pool);
      pool.add(view, rangesOf(raw.pool));
      return view;
    }).sort((a, b) => a.rank - b.rank || a.pid - b.pid);
    entry.damaged = answer.processes.length - byKey.size;
    entry.omitted = answer.omitted;
    entry.readAtMs = nowMs;
    entry.supported = true;
    entry.error = null;
  }

  #view(node: NodeView): NodeMemoryView {
    const { processes, readAtMs, omitted, damaged, supported, error } = this.#entries.get(node.id) ?? newEntry();
    const { facts } = node;
    const sample = this.o.sampleOf(node.id);
    return {
      nodeId: node.id, readAtMs, processes, omitted, damaged, supported, error,
      host: {
        totalBytes: facts?.memoryTotalBytes ?? null, availableBytes: sample?.memoryAvailableBytes ?? facts?.memoryAvailableBytes ?? null,
        sampledAtMs: sample?.sampledAtMs ?? facts?.collectedAtMs ?? null, daemonRssKib: sample?.daemonRssKib ?? node.agent.rssKib,
      },
      gpus: (facts?.gpus ?? []).map((gpu) => ({ index: gpu.index, name: gpu.name, uuid: gpu.uuid ?? null, totalBytes: gpu.memoryTotalBytes, usedBytes: gpu.memoryUsedBytes, collectedAtMs: facts!.collectedAtMs })),
    };
  }
}
