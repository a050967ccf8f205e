import type { TFunction } from "i18next";
import { ALERT_RULES, type AlertRule, type HistoryMetric } from "../../electron/contract/index.js";
import { bytes, rate } from "../shared/format.js";

/** A value in the rule's unit: "412 ms", "0.25 %", "3". */
export function measureText(rule: AlertRule, value: number | null, t: TFunction): string {
  if (value === null) return t("alerts.any");
  const rounded = String(Number(value.toPrecision(3)));
  const { unit } = ALERT_RULES[rule];
  return unit === "ms" ? `${rounded} ms` : unit === "percent" ? `${rounded} %` : rounded;
}

export function metricText(metric: HistoryMetric, value: number): string {
  switch (metric) {
    case "tx_bytes_per_second": case "rx_bytes_per_second": return rate(value);
    case "memory_available_bytes": return bytes(value);
    case "op_latency_ms": return `${Number(value.toPrecision(3))} ms`;
    case "cpu_percent": return `${Number(value.toPrecision(3))} %`;
    case "ops_per_second": return `${Number(value.toPrecision(3))}/s`;
  }
}

export const SPANS = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 } as const;
export type Span = keyof typeof SPANS;

/** "14:05", and the date before it where the span is longer than a day. */
export function timeTick(atMs: number, span: Span): string {
  const at = new Date(atMs);
  const clock = `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
  return span === "week" ? `${at.getMonth() + 1}-${at.getDate()} ${clock}` : clock;
}
