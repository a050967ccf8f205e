import { z } from "zod";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";
import { SettingName, SettingValue } from "./settings.js";

/** What an engine does with a setting of its node: it sets the value itself, follows the node's, waits, or cannot. */
export const AckState = z.enum(["own", "applied", "pending", "refused"]);
export type AckState = z.infer<typeof AckState>;
/** Why a setting waits or is refused. The page names it by `memory.why.<reason>`. */
export const AckReason = z.enum(["next_call", "busy", "out_of_range", "no_memory", "ungated_graphs", "needs_switch", "overridden", "failed", "unknown"]);
export type AckReason = z.infer<typeof AckReason>;

export const SettingAck = z.object({
  setting: SettingName,
  state: AckState,
  reason: AckReason.nullable(),
  /** What the node's daemon wants; null = nothing. */
  wanted: SettingValue,
  /** What the engine runs with. */
  inForce: SettingValue,
});
export type SettingAck = z.infer<typeof SettingAck>;

/** Free memory that the pool holds, a buffer of the user's, or the engine's own (flags, staging, pages). Between ranges there is no memory. */
export const PoolRangeKind = z.enum(["free", "buffer", "engine"]);
export type PoolRangeKind = z.infer<typeof PoolRangeKind>;
export const PoolRange = z.object({ offset: z.number(), bytes: z.number(), kind: PoolRangeKind });
export type PoolRange = z.infer<typeof PoolRange>;

const Maybe = z.number().nullable();

/** One rank's GPU engine, as it described itself last. Its texts come from the node: hostile. null = not known. */
export const GpuProcessView = z.object({
  /** Names it inside its node. */
  key: z.string(),
  pid: z.number(),
  rank: z.number(),
  worldSize: z.number(),
  communicator: z.string(),
  job: z.string().nullable(),
  gpuUuid: z.string().nullable(),
  /** The GPU's number on its node, where the node's facts know it. */
  gpuIndex: Maybe,
  /** When the engine wrote this, in the console's clock. */
  updatedAtMs: z.number(),
  /** The runtime's code that ended the engine, such as "R203"; null while it works. */
  errorCode: z.string().nullable(),
  operations: Maybe,
  pool: z.object({
    /** What it may hold, what it holds of the GPU's memory, and what of that is in use; `stagingBytes` of these are the engine's own. */
    capacityBytes: Maybe, heldBytes: Maybe, usedBytes: Maybe, stagingBytes: Maybe,
    /** The largest buffer that fits without growing. */
    largestFreeBytes: Maybe,
    buffers: Maybe,
    /** Of the bytes held, those that nothing uses. */
    fragmentationPermille: Maybe,
    cacheRatioPermille: Maybe,
  }),
  /** The whole GPU's memory with all its processes, as the engine saw it. */
  device: z.object({ freeBytes: Maybe, totalBytes: Maybe }),
  defrag: z.object({
    /** 0 = off. */
    intervalMs: Maybe,
    /** Why the last epoch could not be held; null = it could. */
    blocked: AckReason.nullable(),
    epochs: Maybe, movedBytes: Maybe, releasedBytes: Maybe,
    /** The last epoch that moved or released something. */
    last: z.object({ atMs: z.number(), heldBackUs: Maybe, beforePermille: Maybe, afterPermille: Maybe }).nullable(),
  }),
  /** How far the CPU is out of the way of a transfer. */
  asyncLevel: z.enum(["none", "stream", "nic"]).nullable(),
  asyncReason: z.string().nullable(),
  /** Thread blocks; 0 = chosen by size. */
  smBudget: Maybe,
  multiprocessors: Maybe,
  pipelineDepth: Maybe,
  dmaConcurrency: Maybe,
  prefetchDepth: Maybe,
  /** 0 = paging is off. */
  pageBytes: Maybe,
  graphLanes: Maybe,
  lanesInUse: Maybe,
  /** Whether `settings` answers the node's settings as they are now. */
  settingsCurrent: z.boolean(),
  settings: z.array(SettingAck),
});
export type GpuProcessView = z.infer<typeof GpuProcessView>;

/** The memory of one node: the host's, its GPUs', and the pools of the processes that use them. */
export const NodeMemoryView = z.object({
  nodeId: NodeId,
  /** When the node answered last; null = not yet. What follows is as old. */
  readAtMs: Maybe,
  host: z.object({ totalBytes: Maybe, availableBytes: Maybe, sampledAtMs: Maybe, daemonRssKib: Maybe }),
  /** From the node's facts, so without a process too. */
  gpus: z.array(z.object({ index: z.number(), name: z.string(), uuid: z.string().nullable(), totalBytes: z.number(), usedBytes: z.number(), collectedAtMs: z.number() })),
  processes: z.array(GpuProcessView),
  /** Processes beyond those that fit into one answer. */
  omitted: z.number(),
  /** Descriptions that the node sent and that could not be read. */
  damaged: z.number(),
  /** False: the node's daemon is older than this and does not tell. */
  supported: z.boolean(),
  /** Why the last look failed; null = it did not. */
  error: ErrorView.nullable(),
});
export type NodeMemoryView = z.infer<typeof NodeMemoryView>;

export const PoolMapView = z.object({
  ranges: z.array(PoolRange),
  /** Ranges behind these that the engine did not list. */
  omitted: z.number(),
  /** The map as it was seen last before the last epoch; null = that was not seen. */
  before: z.object({ seenAtMs: z.number(), ranges: z.array(PoolRange), omitted: z.number() }).nullable(),
  /** Oldest first, as often as the pool was looked at. */
  history: z.array(z.object({ atMs: z.number(), fragmentationPermille: Maybe, heldBytes: Maybe, usedBytes: Maybe })),
});
export type PoolMapView = z.infer<typeof PoolMapView>;

export const MEMORY_METHODS = {
  /** Asks the nodes now (all that are up where none is named); one that does not answer has its error in the answer. */
  "memory.get": { params: z.strictObject({ nodeIds: z.array(NodeId).min(1).max(10_000).optional() }), result: z.array(NodeMemoryView) },
  /** One pool in full; `map` is null where the process is not there any more. Asked once a second by who looks at it. */
  "memory.map": { params: z.strictObject({ nodeId: NodeId, process: z.string().min(1).max(80) }), result: z.object({ node: NodeMemoryView, map: PoolMapView.nullable() }) },
} as const;
