import { SettingName, type GpuProcessView, type NodeMemoryView, type NodeView, type PoolMapView, type PoolRange, type SettingAck, type SettingValue } from "../../electron/contract/index.js";
import { FAKE_MARK } from "./fake-data.js";

const MIB = 1024 ** 2;
const OWN: Partial<Record<SettingName, SettingValue>> = {
  pipeline_depth: 4, dma_concurrency: 4, async_gd: true, hbm_defrag: true, hbm_defrag_interval_ms: 500, paging: false, page_bytes: 128 * MIB, prefetch_depth: 2, buffer_bytes: 0, hbm_cache_ratio_permille: 100, sm_budget: 0,
};

/** A pool that lies the same each time: buffers, the engine's part, holes. */
function rangesOf(seed: number, holes: boolean): PoolRange[] {
  const ranges: PoolRange[] = [{ offset: 0, bytes: 64 * MIB, kind: "engine" }];
  let offset = 64 * MIB;
  for (let i = 0; i < 26; i++) {
    const bytes = (2 + ((i * 7 + seed * 5) % 11) * 6) * MIB;
    if (i === 9 || i === 18) offset += 40 * 1024 * MIB;
    const free = (i + seed) % 4 === 1;
    if (!free || holes) ranges.push({ offset, bytes, kind: free ? "free" : "buffer" });
    offset += bytes;
  }
  return ranges;
}
const sum = (ranges: readonly PoolRange[], kinds: readonly PoolRange["kind"][]): number => ranges.filter((range) => kinds.includes(range.kind)).reduce((bytes, range) => bytes + range.bytes, 0);

/** Nodes whose GPUs work: a training job over two nodes, one that defragments without success, one whose engine has ended, a silent one. */
export class FakeMemory {
  /** For tests: what each process says of its settings in place of the usual. */
  acks: SettingAck[] | null = null;
  /** For tests and pictures: no process anywhere. */
  quiet = false;
  readonly #began: number;

  constructor(private readonly now: () => number, private readonly nodes: () => NodeView[], private readonly settings: (nodeId: string) => Partial<Record<SettingName, SettingValue>>) {
    this.#began = now();
  }

  views(): NodeMemoryView[] {
    return this.nodes().filter((node) => node.phase === "up" || node.phase === "degraded").map((node) => this.#view(node));
  }

  map(nodeId: string, process: string): { node: NodeMemoryView | undefined; map: PoolMapView | null } {
    const node = this.views().find((view) => view.nodeId === nodeId);
    const told = node?.processes.find((each) => each.key === process);
    if (!told) return { node, map: null };
    const now = this.now();
    const compacted = told.defrag.intervalMs !== 0;
    return {
      node,
      map: {
        ranges: rangesOf(told.rank, !compacted), omitted: 0, before: compacted ? { seenAtMs: this.#began - 4000, ranges: rangesOf(told.rank, true), omitted: 0 } : null,
        history: Array.from({ length: 90 }, (_, i) => ({ atMs: now - (90 - i) * 1000, fragmentationPermille: Math.round(compacted ? 60 + 340 * Math.max(0, Math.sin(i / 7 + told.rank)) ** 6 : 180 + i * 2), heldBytes: told.pool.heldBytes, usedBytes: told.pool.usedBytes })),
      },
    };
  }

  #view(node: NodeView): NodeMemoryView {
    const now = this.now();
    const number = Number(node.id.slice(1));
    const gpus = node.facts?.gpus ?? [];
    const silent = node.id === "n4" && this.nodes().length < 16;
    const readAtMs = silent ? this.#began - 12_000 : now;
    const ranks = this.quiet ? 0 : number <= 2 || number > 16 ? gpus.length : number === 3 ? 2 : number === 4 ? 1 : 0;
    return {
      nodeId: node.id, readAtMs, omitted: 0, damaged: 0, supported: number !== 5,
      error: silent ? { code: "H401", message: "The daemon on gpu-04 cannot be reached: the connection to it was closed.", next: "The console tries again by itself.", params: { host: "gpu-04", detail: "the connection to it was closed" } } : null,
      host: { totalBytes: node.facts?.memoryTotalBytes ?? null, availableBytes: 700 * 1024 * MIB, sampledAtMs: readAtMs, daemonRssKib: 3720 },
      gpus: gpus.map((gpu) => ({ index: gpu.index, name: gpu.name, uuid: gpu.uuid ?? null, totalBytes: gpu.memoryTotalBytes, usedBytes: gpu.memoryUsedBytes, collectedAtMs: now - 30_000 })),
      processes: Array.from({ length: number === 5 ? 0 : ranks }, (_, gpu) => this.#process(node, number, gpu, readAtMs)),
    };
  }

  #process(node: NodeView, number: number, gpu: number, readAtMs: number): GpuProcessView {
    const wanted = this.settings(node.id);
    const isOn = wanted.hbm_defrag ?? number !== 2;
    const rank = (number <= 2 ? (number - 1) * 8 : 0) + gpu;
    const ranges = rangesOf(rank, isOn === false);
    const held = sum(ranges, ["buffer", "engine", "free"]);
    const used = sum(ranges, ["buffer", "engine"]);
    const ended = number === 3 && gpu === 1;
    const blocked = number === 3 && gpu === 0;
    return {
      key: `${4000 + gpu}.${rank}.00000000deadbeef`, pid: 4000 + gpu, rank, worldSize: number <= 2 ? 16 : 8, communicator: "00000000deadbeef", job: number === 3 ? `bench\u202e${FAKE_MARK}` : `train-7b-${FAKE_MARK}`,
      gpuUuid: `GPU-${number}-${gpu}`, gpuIndex: gpu, updatedAtMs: readAtMs - 120, errorCode: ended ? "R203" : null, operations: 120_000 + gpu,
      pool: {
        capacityBytes: 14_438 * MIB, heldBytes: held, usedBytes: used, stagingBytes: 64 * MIB, largestFreeBytes: Math.max(0, ...ranges.filter((range) => range.kind === "free").map((range) => range.bytes)),
        buffers: ranges.filter((range) => range.kind === "buffer").length, fragmentationPermille: Math.round((1000 * (held - used)) / held), cacheRatioPermille: 100,
      },
      device: { freeBytes: 31_000 * MIB, totalBytes: 141 * 1024 * MIB },
      defrag: {
        intervalMs: isOn === false ? 0 : 500, blocked: blocked ? "ungated_graphs" : null, epochs: 2140 + gpu, movedBytes: 96 * MIB, releasedBytes: 310 * MIB,
        last: isOn === false ? null : { atMs: this.#began - 3500, heldBackUs: 812, beforePermille: 324, afterPermille: 0 },
      },
      asyncLevel: "stream", asyncReason: "no network adapter here takes a doorbell of the GPU", smBudget: 0, multiprocessors: 132, pipelineDepth: 4, dmaConcurrency: 4, prefetchDepth: 2, pageBytes: 0, graphLanes: 16, lanesInUse: blocked ? 3 : 0,
      settingsCurrent: true, settings: this.acks ?? this.#acks(wanted, gpu),
    };
  }

  /** The first ranks wait for a common call, the last refuse a budget. */
  #acks(wanted: Partial<Record<SettingName, SettingValue>>, gpu: number): SettingAck[] {
    return SettingName.options.filter((setting) => setting in OWN).map((setting): SettingAck => {
      const wish = wanted[setting] ?? null;
      const own = OWN[setting] ?? null;
      if (wish === null) return { setting, state: "own", reason: null, wanted: null, inForce: own };
      if (setting === "pipeline_depth" && gpu < 3) return { setting, state: "pending", reason: "next_call", wanted: wish, inForce: own };
      if (setting === "sm_budget" && gpu > 5) return { setting, state: "refused", reason: "out_of_range", wanted: wish, inForce: own };
      return { setting, state: "applied", reason: null, wanted: wish, inForce: wish };
    });
  }
}
