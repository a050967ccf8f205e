import { z } from "zod";

/**
 * One process of `gpu.processes` (agent/PROTOCOL.md). What an engine could not say is absent or null. Numbers come from a file
 * that the process itself writes: any 64-bit number is possible.
 */
const amount = z.number().nonnegative();
const maybe = amount.nullish().transform((v) => v ?? null);
const word = z.string().max(64).nullish().transform((v) => v ?? null);
const told = z.string().transform((v) => v.slice(0, 512)).nullish().transform((v) => v ?? null);
/** null on the wire says "off" or "by size": 0 here, so that null stays "not known". */
const offIsNull = amount.nullable().transform((v) => v ?? 0).optional().transform((v) => v ?? null);
const settingValue = z.union([amount, z.boolean()]).nullish().transform((v) => v ?? null);

export const GpuRange = z.object({ offset_bytes: amount, bytes: amount, kind: z.string().max(32) });
export const GpuSetting = z.object({ state: z.string().max(32), reason: word, wanted: settingValue, in_force: settingValue });
export const GpuProcess = z.object({
  pid: amount, rank: amount, world_size: amount, communicator: z.string().regex(/^[0-9a-f]{16}$/), job: told, error_code: z.string().regex(/^R\d{1,4}$/).nullish().transform((v) => v ?? null),
  age_ms: amount, operations: maybe,
  gpu: z.object({ uuid: told, multiprocessors: maybe, memory_free_bytes: maybe, memory_total_bytes: maybe }),
  async: z.object({ level: word, reason: told }),
  sm_budget: offIsNull, pipeline_depth: maybe, dma_concurrency: maybe,
  graphs: z.object({ lanes: maybe, lanes_in_use: maybe }),
  paging: z.object({ page_bytes: offIsNull, prefetch_depth: maybe }),
  pool: z.object({
    capacity_bytes: maybe, held_bytes: maybe, used_bytes: maybe, staging_bytes: maybe, largest_free_bytes: maybe, buffers: maybe, fragmentation_permille: maybe, cache_ratio_permille: maybe,
    ranges: z.array(GpuRange).max(4096), ranges_omitted: amount,
  }),
  defrag: z.object({
    interval_ms: offIsNull, epochs: maybe, moved_bytes: maybe, released_bytes: maybe, blocked_by: word,
    last: z.object({ before_permille: maybe, after_permille: maybe, held_back_us: maybe, age_ms: amount }).nullish().transform((v) => v ?? null),
  }),
  settings_current: z.boolean(),
  settings: z.record(z.string().max(64), GpuSetting).refine((r) => Object.keys(r).length <= 64, "more than 64 settings"),
});
export type GpuProcess = z.output<typeof GpuProcess>;
