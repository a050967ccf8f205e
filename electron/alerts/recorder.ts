import type { HistoryMetric } from "../contract/index.js";

export const BUCKET_MS = 60_000;
export interface Bucket {
  metric: HistoryMetric;
  nodeId: string;
  /** When the minute began. */
  atMs: number;
  lowest: number;
  highest: number;
  mean: number;
}

interface Open {
  atMs: number;
  lowest: number;
  highest: number;
  sum: number;
  count: number;
}

/** Sums samples up by minute: one bucket for each metric and node, handed on when its minute is over. */
export class Recorder {
  readonly #open = new Map<string, Open>();
  constructor(private readonly done: (buckets: Bucket[]) => void) {}

  add(nodeId: string, atMs: number, values: Partial<Record<HistoryMetric, number>>): void {
    const minute = atMs - (atMs % BUCKET_MS);
    const over: Bucket[] = [];
    for (const [metric, value] of Object.entries(values) as [HistoryMetric, number][]) {
      if (!Number.isFinite(value)) continue;
      const key = `${metric} ${nodeId}`;
      const old = this.#open.get(key);
      // A clock that was set back goes on in the open minute.
      if (old && minute > old.atMs) over.push(closed(metric, nodeId, old));
      const into = old && minute <= old.atMs ? old : { atMs: minute, lowest: value, highest: value, sum: 0, count: 0 };
      into.lowest = Math.min(into.lowest, value);
      into.highest = Math.max(into.highest, value);
      into.sum += value;
      into.count++;
      this.#open.set(key, into);
    }
    if (over.length > 0) this.done(over);
  }

  /** Hands on the minutes that are over, or, at the end, all. */
  flush(nowMs: number = Number.POSITIVE_INFINITY): void {
    const over: Bucket[] = [];
    for (const [key, open] of this.#open) {
      if (nowMs - open.atMs < BUCKET_MS) continue;
      const at = key.indexOf(" ");
      over.push(closed(key.slice(0, at) as HistoryMetric, key.slice(at + 1), open));
      this.#open.delete(key);
    }
    if (over.length > 0) this.done(over);
  }
}

const closed = (metric: HistoryMetric, nodeId: string, open: Open): Bucket => ({ metric, nodeId, atMs: open.atMs, lowest: open.lowest, highest: open.highest, mean: open.sum / open.count });
