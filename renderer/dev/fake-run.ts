import { COLLECTIVE_TAKES, RunSpec, type RunView } from "../../electron/contract/index.js";

type Row = RunView["rows"][number];

/** A row with the shape of a true one: alpha-beta time with a ripple that depends on the size alone. */
export function fakeRow(spec: RunSpec, bytes: number, wrong: number): Row {
  const ranks = spec.nodeIds.length * spec.ranksPerNode;
  const alphaUs = spec.transport === "tcp" ? 42 : 11;
  const bytesPerUs = spec.transport === "tcp" ? 1150 : 2850;
  const factor = (2 * (ranks - 1)) / ranks;
  const expected = 2 * (ranks - 1) * alphaUs + (factor * bytes) / bytesPerUs;
  const timing = (scale: number) => {
    const timeUs = expected * scale * (1 + 0.07 * Math.sin(Math.log2(Math.max(1, bytes)) * 1.7));
    const algbwGBps = bytes / timeUs / 1000;
    return { timeUs, algbwGBps, busbwGBps: algbwGBps * factor, wrong: spec.check ? wrong : null };
  };
  return {
    bytes, count: Math.max(1, Math.floor(bytes / 4)), datatype: spec.datatype, redop: spec.redop, root: COLLECTIVE_TAKES[spec.collective].root ? spec.root : -1, algorithm: "ring", transport: spec.transport === "auto" ? "rdma" : spec.transport, iterations: spec.iterations,
    outOfPlace: timing(1.06), inPlace: timing(1.03), expectedTimeUs: expected,
  };
}

export function sizesOf(spec: RunSpec): number[] {
  if (!COLLECTIVE_TAKES[spec.collective].sized) return [0];
  const sizes: number[] = [];
  for (let size = spec.minBytes; size <= spec.maxBytes; size *= spec.stepFactor) sizes.push(size);
  return sizes;
}

export function fakeRun(id: string, input: object, startedAtMs: number): RunView {
  const spec = RunSpec.parse(input);
  const ranks = spec.nodeIds.flatMap((nodeId, node) => Array.from({ length: spec.ranksPerNode }, (_, local) => ({ rank: node * spec.ranksPerNode + local, nodeId, state: "starting" as const, error: null })));
  return { id, spec, state: "starting", startedAtMs, endedAtMs: null, ranks, rows: [], model: null, wrongTotal: null, avgBusbwGBps: null, error: null };
}

/** A run that is over: all rows, or up to a failure. */
export function endedRun(id: string, input: object, startedAtMs: number, outcome: { wrong?: number; failAt?: number } = {}): RunView {
  const run = fakeRun(id, input, startedAtMs);
  const sizes = sizesOf(run.spec).slice(0, outcome.failAt);
  const rows = sizes.map((size, index) => fakeRow(run.spec, size, index === sizes.length - 3 ? (outcome.wrong ?? 0) : 0));
  const failed = outcome.failAt !== undefined;
  const error = failed ? { code: "H504", message: "Rank 2 on gpu-03 ended before the run was over: signal 9 (killed).", next: "See the rank's error and the node's log.", params: { rank: 2, name: "gpu-03", detail: "signal 9 (killed)" } } : null;
  return {
    ...run, state: failed ? "failed" : "succeeded", endedAtMs: startedAtMs + 8400, rows, error,
    ranks: run.ranks.map((rank) => ({ ...rank, state: failed ? "failed" : "ended", error: failed ? (rank.rank === 2
      ? { code: "A205", message: "Worker 2 of run r-003 was killed by signal 9.", next: "Look at the kernel's log for the out-of-memory killer." }
      : { code: "R201", message: `Rank ${rank.rank}: rank 2 closed its connection.`, next: "Look at rank 2 first." }) : null })),
    model: { alphaUs: run.spec.transport === "tcp" ? 42 : 11, betaUsPerByte: run.spec.transport === "tcp" ? 1 / 1150 : 1 / 2850, source: "fit of this run, r2 0.998" },
    wrongTotal: failed ? null : (outcome.wrong ?? 0) * 2, avgBusbwGBps: rows.reduce((sum, row) => sum + row.outOfPlace.busbwGBps, 0) / Math.max(1, rows.length),
  };
}
