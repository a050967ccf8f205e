import type { HangView, PairResult, PairTestKind, PairTestView } from "../../electron/contract/index.js";
import type { FakeContext } from "./fake-context.js";

const words = (en: string) => ({ en, zh: `[zh] ${en}` });

/** Pair tests that come in one after the other; node n3 fails with everybody over verbs. */
export class FakePairs {
  readonly tests = new Map<string, PairTestView>();
  #serial = 0;
  constructor(private readonly context: FakeContext) {}

  start(params: { nodeIds: string[]; kinds: PairTestKind[]; sampling?: PairTestView["sampling"]; maxPairs?: number }): PairTestView {
    const { nodeIds, kinds, sampling = "all", maxPairs = 256 } = params;
    const pairs = nodeIds.flatMap((from, index) => (sampling === "ring" ? [[from, nodeIds[(index + 1) % nodeIds.length]!]] : nodeIds.filter((to) => to !== from).map((to) => [from, to]))).slice(0, sampling === "random" ? maxPairs : undefined);
    const pending = (kind: PairTestKind) => pairs.map(([from, to]): PairResult => ({ from: from!, to: to!, kind, state: "pending", latencyUs: null, bandwidthGBps: null, failed: null, text: null, evidence: [], error: null, endedAtMs: null }));
    let test: PairTestView = { id: `pairs-${++this.#serial}`, nodeIds, kinds, sampling, state: "running", startedAtMs: this.context.now(), endedAtMs: null, results: kinds.flatMap(pending), suspects: [], error: null };
    const show = (change: Partial<PairTestView>) => {
      test = { ...test, ...change };
      this.tests.set(test.id, test);
      this.context.patch("pairs", [test]);
    };
    show({});
    this.context.every((stop) => {
      if (this.tests.get(test.id)!.state !== "running") return stop();
      const open = test.results.filter((result) => result.state === "pending");
      const done = new Set(open.slice(0, Math.max(1, Math.ceil(test.results.length / 6))));
      const results = test.results.map((result) => (done.has(result) ? this.#end(result) : result));
      if (open.length > done.size) return show({ results });
      stop();
      const failed = results.filter((result) => result.state === "failed");
      show({ results, state: "done", endedAtMs: this.context.now(), suspects: failed.length > 0 ? [{ nodeId: "n3", failed: failed.length, of: failed.length }] : [] });
    });
    return test;
  }
  cancel(id: string): void {
    const test = this.tests.get(id);
    if (!test || test.state !== "running") return;
    const ended: PairTestView = { ...test, state: "cancelled", endedAtMs: this.context.now(), results: test.results.map((result) => (result.state === "pending" ? { ...result, state: "cancelled" } : result)) };
    this.tests.set(id, ended);
    this.context.patch("pairs", [ended]);
  }
  #end(result: PairResult): PairResult {
    const seed = Number(result.from.slice(1)) * 7 + Number(result.to.slice(1)) * 3;
    if (result.kind === "verbs" && (result.from === "n3" || result.to === "n3")) {
      return { ...result, state: "failed", endedAtMs: this.context.now(), failed: result.from === "n3" ? "from" : "to", text: words("gpu-03 has no RoCE v2 GID at index 1."), evidence: [{ source: "ibv_rc_pingpong", line: "Failed to modify QP to RTR", lineNumber: null, meaning: words("the queue pair of gpu-03 could not be connected") }] };
    }
    return { ...result, state: "ok", endedAtMs: this.context.now(), latencyUs: (result.kind === "tcp" ? 140 : 9) * (1 + (seed % 5) / 20) * (seed % 11 === 0 ? 2.4 : 1), bandwidthGBps: (result.kind === "tcp" ? 2.8 : 11.4) / (1 + (seed % 5) / 12) / (seed % 11 === 0 ? 2 : 1) };
  }
}

export function fakeHang(now: number): HangView {
  const operation = (sequence: string, state: "queued" | "started") => ({ sequence, collective: "all_reduce", datatype: "float32", redop: "sum", count: "1048576", root: null, state, startedAtMs: now - 41_000, waitingFor: [2] });
  return {
    takenAtMs: now, unread: [],
    groups: [{
      format: "stepccl", job: "r-005", communicator: "world", worldSize: 4, sequence: "128", verdict: "hang", text: words("Rank 2 on gpu-03 is stopped by a signal in operation 127; the others wait for it."), culprits: [2],
      ranks: [0, 1, 2, 3].map((rank) => ({
        rank, nodeId: `n${rank + 1}`, host: `node${rank + 1}`, pid: 4100 + rank, missing: false, alive: true, verdict: rank === 2 ? "stopped" as const : "waiting" as const,
        lastCompleted: rank === 2 ? "126" : "127", current: rank === 2 ? operation("127", "started") : operation("128", "started"),
      })),
    }],
  };
}
