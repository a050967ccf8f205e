import type { PairResult, PairTestKind, PairTestView } from "../../../electron/contract/index.js";

export type Metric = "latency" | "bandwidth";

export const valueOf = (result: PairResult, metric: Metric): number | null => (metric === "latency" ? result.latencyUs : result.bandwidthGBps);

/** Spread below which all pairs count as equal: colours would only show noise. */
const EQUAL_WITHIN = 1.25;

/**
 * How far from the best a value is, 0 best to 1 worst, on a logarithmic scale: a pair that is twice as slow looks the same
 * distance away whether the link is fast or slow. All 0 where the spread is small.
 */
export function heatOf(values: readonly number[], metric: Metric): (value: number) => number {
  const good = values.filter((value) => value > 0);
  const [low, high] = [Math.min(...good), Math.max(...good)];
  if (good.length < 2 || high / low < EQUAL_WITHIN) return () => 0;
  const span = Math.log(high / low);
  return (value) => {
    const at = Math.min(1, Math.max(0, Math.log(Math.max(value, low) / low) / span));
    return metric === "latency" ? at : 1 - at;
  };
}

export interface PairMatrix {
  nodeIds: readonly string[];
  /** By `from|to`. */
  cells: ReadonlyMap<string, PairResult>;
}
export const pairKey = (from: string, to: string): string => `${from}|${to}`;

export function matrixOf(test: PairTestView, kind: PairTestKind): PairMatrix {
  return { nodeIds: test.nodeIds, cells: new Map(test.results.filter((result) => result.kind === kind).map((result) => [pairKey(result.from, result.to), result])) };
}

/** Failed first, then the worst values. */
export function worstFirst(results: readonly PairResult[], metric: Metric): PairResult[] {
  const weight = (result: PairResult): number => {
    if (result.state === "failed") return 1e30;
    const value = valueOf(result, metric);
    if (value === null) return -1e30;
    return metric === "latency" ? value : -value;
  };
  return [...results].sort((a, b) => weight(b) - weight(a));
}
