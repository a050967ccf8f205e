import { z } from "zod";
import { NodeId } from "./nodes.js";

export const AlertRule = z.enum(["latency", "utilization", "timeout", "timeout_rate", "failure_rate"]);
export type AlertRule = z.infer<typeof AlertRule>;

/** What each rule is measured in, where its threshold may lie, and where it lies before anybody changes it. `timeout` has none: any is one. */
export const ALERT_RULES: Readonly<Record<AlertRule, { unit: "ms" | "percent" | "count"; standard: number | null; min: number; max: number }>> = {
  latency: { unit: "ms", standard: 100, min: 0.001, max: 3_600_000 },
  utilization: { unit: "percent", standard: 50, min: 0.1, max: 100 },
  timeout: { unit: "count", standard: null, min: 0, max: 0 },
  timeout_rate: { unit: "percent", standard: 1, min: 0.001, max: 100 },
  failure_rate: { unit: "percent", standard: 0.1, min: 0.001, max: 100 },
};

export const Threshold = z.object({ enabled: z.boolean(), value: z.number().nullable() });
export type Threshold = z.infer<typeof Threshold>;
export const Thresholds = z.record(AlertRule, Threshold);
export type Thresholds = z.infer<typeof Thresholds>;
export const ThresholdChange = z.strictObject({ rule: AlertRule, enabled: z.boolean(), value: z.number().nullable() }).refine(({ rule, value }) => {
  const { standard, min, max } = ALERT_RULES[rule];
  return standard === null ? value === null : value !== null && value >= min && value <= max;
}, { message: "no threshold that the rule takes", path: ["value"] });

export const AlertView = z.object({
  id: z.string().max(200),
  rule: AlertRule,
  nodeId: NodeId,
  /** As it was named then: the node may be gone by now. */
  nodeName: z.string(),
  /** The interface, where the rule looks at one. From the node: hostile text. */
  subject: z.string().nullable(),
  startedAtMs: z.number(),
  /** null while it lasts. */
  endedAtMs: z.number().nullable(),
  lastAtMs: z.number(),
  /** The worst that was seen, in the rule's unit. */
  worst: z.number(),
  threshold: z.number().nullable(),
  /** How often it was seen since it began. */
  count: z.number(),
  acknowledgedAtMs: z.number().nullable(),
});
export type AlertView = z.infer<typeof AlertView>;

export const HistoryMetric = z.enum(["tx_bytes_per_second", "rx_bytes_per_second", "op_latency_ms", "ops_per_second", "cpu_percent", "memory_available_bytes"]);
export type HistoryMetric = z.infer<typeof HistoryMetric>;
/** A curve of one node; each point covers a minute or, over long spans, several. */
export const HistorySeries = z.object({ nodeId: z.string(), points: z.array(z.object({ atMs: z.number(), lowest: z.number(), highest: z.number(), mean: z.number() })) });
export type HistorySeries = z.infer<typeof HistorySeries>;

const AlertId = z.string().min(1).max(200);
export const ALERT_METHODS = {
  "alerts.list": { params: z.strictObject({}), result: z.array(AlertView) },
  "alerts.acknowledge": { params: z.strictObject({ alertIds: z.array(AlertId).min(1).max(10_000) }), result: z.object({}) },
  "alerts.thresholds": { params: z.strictObject({}), result: Thresholds },
  "alerts.setThreshold": { params: ThresholdChange, result: Thresholds },
  /** At most `points` points a node, evenly over the span; nodes that have none are left out. */
  "history.get": {
    params: z.strictObject({ metric: HistoryMetric, fromMs: z.number().int().nonnegative(), toMs: z.number().int().nonnegative(), points: z.number().int().min(2).max(600).default(240) }).refine((p) => p.fromMs < p.toMs, "fromMs is not before toMs"),
    result: z.array(HistorySeries),
  },
} as const;
