import { z } from "zod";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";

export const SettingName = z.enum([
  "pipeline_depth", "dma_concurrency", "async_gd", "hbm_defrag", "hbm_defrag_interval_ms", "paging", "page_bytes", "prefetch_depth", "buffer_bytes", "hbm_cache_ratio_permille",
  "sm_budget", "compression", "encryption",
]);
export type SettingName = z.infer<typeof SettingName>;
/** null = not set: each process keeps its own value. */
export const SettingValue = z.union([z.number(), z.boolean()]).nullable();
export type SettingValue = z.infer<typeof SettingValue>;

export type SettingKind =
  | { kind: "switch" }
  | { kind: "number"; min: number; max: number; unit: "count" | "ms" | "bytes" | "permille"; powerOfTwo?: true };
const TIB = 1024 ** 4;
/** What each setting takes; the limits are the daemon's (agent/src/telemetry/settings.cpp). */
export const SETTINGS: Readonly<Record<SettingName, SettingKind>> = {
  pipeline_depth: { kind: "number", min: 1, max: 256, unit: "count" },
  dma_concurrency: { kind: "number", min: 1, max: 8, unit: "count" },
  async_gd: { kind: "switch" },
  hbm_defrag: { kind: "switch" },
  hbm_defrag_interval_ms: { kind: "number", min: 10, max: 3_600_000, unit: "ms" },
  paging: { kind: "switch" },
  page_bytes: { kind: "number", min: 4096, max: TIB, unit: "bytes", powerOfTwo: true },
  prefetch_depth: { kind: "number", min: 1, max: 256, unit: "count" },
  buffer_bytes: { kind: "number", min: 4096, max: TIB, unit: "bytes" },
  hbm_cache_ratio_permille: { kind: "number", min: 1, max: 900, unit: "permille" },
  sm_budget: { kind: "number", min: 1, max: 32, unit: "count" },
  compression: { kind: "switch" },
  encryption: { kind: "switch" },
};

const schemaOf = (kind: SettingKind): z.ZodType<SettingValue> => {
  if (kind.kind === "switch") return z.boolean().nullable();
  const number = z.number().int().min(kind.min).max(kind.max);
  return (kind.powerOfTwo ? number.refine((v) => Number.isInteger(Math.log2(v)), "must be a power of two") : number).nullable();
};
export const SettingChanges = z.strictObject(Object.fromEntries(SettingName.options.map((name) => [name, schemaOf(SETTINGS[name]).optional()])) as
  Record<SettingName, z.ZodOptional<z.ZodType<SettingValue>>>).refine((changes) => Object.keys(changes).length > 0, "nothing to change");
export type SettingChanges = z.output<typeof SettingChanges>;

export const AdviceReason = z.enum([
  "depth_short", "depth_long", "depth_between", "depth_unmeasured", "half_of_gpus", "no_gpu", "async_on", "async_no_rdma", "defrag_on", "defrag_interval", "paging_large", "page_size", "prefetch", "buffers_own", "cache_ratio", "sm_by_size", "lossy", "encryption_cost",
]);
export type AdviceReason = z.infer<typeof AdviceReason>;

/** What is recommended for a node, and why. `reason` is named on the page by `settings.reasons.<reason>`; `text` is its English. */
export const Advice = z.object({
  value: SettingValue,
  reason: AdviceReason,
  text: z.string(),
  params: z.record(z.string(), z.union([z.string(), z.number()])),
});
export type Advice = z.infer<typeof Advice>;

export const NodeSettingsView = z.object({
  nodeId: NodeId,
  /** null where the node could not be asked; `error` says why. */
  values: z.record(SettingName, SettingValue).nullable(),
  advice: z.record(SettingName, Advice),
  error: ErrorView.nullable(),
});
export type NodeSettingsView = z.infer<typeof NodeSettingsView>;

/** One change of one setting on one node: who made it, when, from what to what. */
export const SettingChangeView = z.object({
  atMs: z.number(), nodeId: z.string(), nodeName: z.string(), setting: SettingName, from: SettingValue, to: SettingValue,
  /** user@host of the console that made it. */
  by: z.string(),
});
export type SettingChangeView = z.infer<typeof SettingChangeView>;
