import { AckReason, AckState, PoolRangeKind, SettingName, SETTINGS, type GpuProcessView, type NodeFacts, type PoolRange, type SettingAck, type SettingValue } from "../contract/index.js";
import type { GpuProcess } from "../link/gpu-schemas.js";
import { plainLine } from "../ssh/quote.js";

const ASYNC_LEVELS: readonly string[] = ["none", "stream", "nic"];

/** A code of the daemon's; null where it gives none, "unknown" where it gives one that this console does not know. */
const reasonOf = (reason: string | null): AckReason | null => (reason === null ? null : reason === "needs_other" ? "needs_switch" : (AckReason.safeParse(reason).data ?? "unknown"));
const textOf = (text: string | null, maxChars: number): string | null => (text === null ? null : plainLine(text, maxChars) || null);

/** A value of a kind that the setting does not have is not known. */
function valueOf(setting: SettingName, value: number | boolean | null): SettingValue {
  return typeof value === (SETTINGS[setting].kind === "switch" ? "boolean" : "number") ? value : null;
}

/** In the order of the console's settings; those that this console does not know are left out. */
export function acksOf(settings: GpuProcess["settings"]): SettingAck[] {
  return SettingName.options.flatMap((setting): SettingAck[] => {
    const row = Object.hasOwn(settings, setting) ? settings[setting] : undefined;
    const state = AckState.safeParse(row?.state);
    if (!row || !state.success) return [];
    return [{ setting, state: state.data, reason: reasonOf(row.reason), wanted: valueOf(setting, row.wanted), inForce: valueOf(setting, row.in_force) }];
  });
}

/** Names a process inside its node: the same while the communicator lives. */
export const processKey = (raw: Pick<GpuProcess, "pid" | "rank" | "communicator">): string => `${raw.pid}.${raw.rank}.${raw.communicator}`;

/**
 * What a process says of itself, in the terms of the contract.
 * @param nowMs when the answer came; ages become times of the console's clock by it
 */
export function processView(raw: GpuProcess, nowMs: number, facts: NodeFacts | null): GpuProcessView {
  const before = (ageMs: number): number => Math.max(0, nowMs - ageMs);
  const { pool, defrag } = raw;
  const uuid = textOf(raw.gpu.uuid, 64);
  return {
    key: processKey(raw), pid: raw.pid, rank: raw.rank, worldSize: raw.world_size, communicator: raw.communicator, job: textOf(raw.job, 64), gpuUuid: uuid,
    gpuIndex: uuid === null ? null : (facts?.gpus.find((gpu) => gpu.uuid === uuid)?.index ?? null),
    updatedAtMs: before(raw.age_ms), errorCode: raw.error_code, operations: raw.operations,
    pool: {
      capacityBytes: pool.capacity_bytes, heldBytes: pool.held_bytes, usedBytes: pool.used_bytes, stagingBytes: pool.staging_bytes, largestFreeBytes: pool.largest_free_bytes,
      buffers: pool.buffers, fragmentationPermille: pool.fragmentation_permille, cacheRatioPermille: pool.cache_ratio_permille,
    },
    device: { freeBytes: raw.gpu.memory_free_bytes, totalBytes: raw.gpu.memory_total_bytes },
    defrag: {
      intervalMs: defrag.interval_ms, blocked: reasonOf(defrag.blocked_by), epochs: defrag.epochs, movedBytes: defrag.moved_bytes, releasedBytes: defrag.released_bytes,
      last: defrag.last && { atMs: before(defrag.last.age_ms), heldBackUs: defrag.last.held_back_us, beforePermille: defrag.last.before_permille, afterPermille: defrag.last.after_permille },
    },
    asyncLevel: ASYNC_LEVELS.includes(raw.async.level ?? "") ? (raw.async.level as GpuProcessView["asyncLevel"]) : null, asyncReason: textOf(raw.async.reason, 200),
    smBudget: raw.sm_budget, multiprocessors: raw.gpu.multiprocessors, pipelineDepth: raw.pipeline_depth, dmaConcurrency: raw.dma_concurrency,
    prefetchDepth: raw.paging.prefetch_depth, pageBytes: raw.paging.page_bytes, graphLanes: raw.graphs.lanes, lanesInUse: raw.graphs.lanes_in_use,
    settingsCurrent: raw.settings_current, settings: acksOf(raw.settings),
  };
}

export interface RangeList {
  ranges: PoolRange[];
  /** What the engine did not list, and what cannot be so: beyond exact numbers, of no known kind, or over another. */
  omitted: number;
}

/** The map by address, without what cannot be drawn. */
export function rangesOf(pool: GpuProcess["pool"]): RangeList {
  const ranges: PoolRange[] = [];
  let end = 0;
  for (const range of [...pool.ranges].sort((a, b) => a.offset_bytes - b.offset_bytes)) {
    const kind = PoolRangeKind.safeParse(range.kind);
    if (!kind.success || range.bytes <= 0 || range.offset_bytes < end || !Number.isSafeInteger(range.offset_bytes) || !Number.isSafeInteger(range.bytes) || !Number.isSafeInteger(range.offset_bytes + range.bytes)) continue;
    end = range.offset_bytes + range.bytes;
    ranges.push({ offset: range.offset_bytes, bytes: range.bytes, kind: kind.data });
  }
  return { ranges, omitted: pool.ranges_omitted + pool.ranges.length - ranges.length };
}
