import type { MendRunView } from "../../../electron/contract/index.js";

/** The last time somebody mended this finding of this node; null where nobody has. */
export function newestRun(runs: Iterable<MendRunView>, nodeId: string, findingId: string): MendRunView | null {
  let newest: MendRunView | null = null;
  for (const run of runs) if (run.nodeId === nodeId && run.findingId === findingId && (!newest || run.startedAtMs > newest.startedAtMs)) newest = run;
  return newest;
}

/** Mends of a node whose finding is gone from its newest diagnosis: the newest of each finding, latest first. */
export function settledRuns(runs: Iterable<MendRunView>, nodeId: string, findingIds: ReadonlySet<string>, sinceMs: number): MendRunView[] {
  const newest = new Map<string, MendRunView>();
  for (const run of runs) {
    if (run.nodeId !== nodeId || findingIds.has(run.findingId) || (run.endedAtMs ?? Infinity) < sinceMs) continue;
    const before = newest.get(run.findingId);
    if (!before || run.startedAtMs > before.startedAtMs) newest.set(run.findingId, run);
  }
  return [...newest.values()].sort((a, b) => b.startedAtMs - a.startedAtMs);
}
