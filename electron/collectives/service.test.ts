import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Collective, COLLECTIVE_TAKES, ConsoleError, RunSpec, RunView, type RunSpecInput } from "../contract/index.js";
import { NO_ANSWER } from "../link/testing.js";
import { DEFAULT_TIMING } from "./launch.js";
import { Collectives } from "./service.js";
import { RunStore } from "./store.js";
import { directoryOf, FakeNode, rowEvent } from "./testing.js";

// Frames play no part here, so neither does the addon.
vi.mock("../link/addon.js", () => ({ loadAddon: async () => ({}) }));

let folder: string;
let nodes: FakeNode[];
let service: Collectives;
const TIMING = { echoGraceMs: 150, causeGraceMs: 40, resumeMs: 1200, pingMs: 100, pingTimeoutMs: 2000, doubtMs: 100, probeMs: 100, startTimeoutMs: 2000, stopTimeoutMs: 500 };
const spec = (input: Partial<RunSpecInput> = {}): RunSpec => RunSpec.parse({ collective: "all_reduce", nodeIds: nodes.map((n) => n.view.id), transport: "tcp", ...input });
const codeOf = (promise: Promise<unknown>): Promise<string> => promise.then(() => "none", (error: unknown) => (error instanceof ConsoleError ? error.view.code : String(error)));
const ended = (runId: string): Promise<RunView> => vi.waitFor(() => {
  const view = service.get(runId);
  expect(view.endedAtMs).not.toBeNull();
  return RunView.parse(view);
}, { timeout: 8000, interval: 10 });
/** Waits until every node has been told to start, so that events have somewhere to go. */
const started = (): Promise<unknown> => soon(() => expect(nodes.every((n) => n.daemon.callsOf("run.subscribe").length > 0)).toBe(true));

vi.setConfig({ testTimeout: 30_000 });
/** On a machine that is busy with other suites a second is short. */
const soon = <T>(look: () => T | Promise<T>): Promise<T> => vi.waitFor(look, { timeout: 8000, interval: 10 });

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "stepccl-runs-"));
  nodes = [new FakeNode(0), new FakeNode(1), new FakeNode(2)];
  service = new Collectives({ nodes: directoryOf(nodes), store: new RunStore(folder), timing: TIMING, onError: (error) => { throw error; } });
});
afterEach(async () => {
  await service.close();
  rmSync(folder, { recursive: true });
});

describe("every collective", () => {
  it.each(Collective.options)("%s is asked for by its name, with a root where it has one", async (collective) => {
    const run = await service.start(spec({ collective, root: 1 }));
    await started();
    const asked = nodes[0]!.daemon.callsOf("run.start")[0] as Record<string, unknown>;
    expect(asked).toMatchObject({ collective, algorithm: "auto", datatype: "float32" });
    expect(asked["root"]).toBe(COLLECTIVE_TAKES[collective].root ? 1 : undefined);
    nodes[0]!.emit(0, { ...rowEvent(8, 50, 2), root: 1, in_place: null });
    await soon(() => expect(service.get(run.id).rows).toMatchObject([{ bytes: 8, root: 1, inPlace: null }]));
    const view = service.get(run.id);
    expect(view.wrongTotal).toBe(2);
    expect(view.avgBusbwGBps).toBeCloseTo(view.rows[0]!.outOfPlace.busbwGBps);
    expect(service.export(run.id, "csv").text.split("\r\n")[1]).toMatch(/^8,2,float,sum,1,ring,tcp,20,50,[\d.e-]+,[\d.e-]+,2,,,,,$/);
    expect(JSON.parse(service.export(run.id, "json").text)).toMatchObject({ spec: { collective }, rows: [{ inPlace: null }] });
    await service.stop(run.id);
  });
  it("refuses a root that is no rank", () => {
    expect(RunSpec.safeParse({ collective: "reduce", nodeIds: ["a", "b"], root: 2 }).success).toBe(false);
    expect(RunSpec.safeParse({ collective: "all_reduce", nodeIds: ["a", "b"], root: 2 }).success).toBe(true);
  });
});

describe("a run that goes well", () => {
  it("starts rank 0 first, hands its unique id to the others, collects rows and ends", async () => {
    const order: string[] = [];
    for (const node of nodes) {
      const start = node.daemon.handlers["run.start"]!;
      node.daemon.handlers["run.start"] = async (params, connection) => {
        order.push(`begin ${node.view.id}`);
        await new Promise((done) => setTimeout(done, 20));
        order.push(`end ${node.view.id}`);
        return start(params, connection);
      };
    }
    const run = await service.start(spec({ ranksPerNode: 2 }));
    expect(run).toMatchObject({ state: "starting", rows: [], error: null });
    expect(run.ranks.map((r) => [r.rank, r.nodeId])).toEqual([[0, "n0"], [1, "n0"], [2, "n1"], [3, "n1"], [4, "n2"], [5, "n2"]]);
    await started();
    expect(order.slice(0, 2)).toEqual(["begin n0", "end n0"]);
    expect(order.slice(2, 4)).toEqual(["begin n1", "begin n2"]);
    expect(nodes.map((n) => n.daemon.callsOf("run.start")[0])).toMatchObject([
      { unique_id: null, ranks: [0, 1], world_size: 6, rendezvous: { address: "10.77.0.10" }, transport: "tcp", collective: "all_reduce", min_bytes: 8, max_bytes: 16777216 },
      { unique_id: "ab12", ranks: [2, 3] }, { unique_id: "ab12", ranks: [4, 5] },
    ]);
    nodes[0]!.emit(0, rowEvent(8, 50));
    nodes[0]!.emit(0, rowEvent(1024, 60));
    nodes[1]!.emit(2, rowEvent(8, 50));
    await soon(() => expect(service.get(run.id)).toMatchObject({ state: "running", rows: [{ bytes: 8 }, { bytes: 1024 }] }));
    for (const node of nodes) {
      for (const rank of [...node.runs.values()][0]!.ranks) node.emit(rank, { event: "exited", status: 0 });
      node.end("succeeded");
    }
    const view = await ended(run.id);
    expect(view).toMatchObject({ state: "succeeded", wrongTotal: 0, error: null });
    expect(view.ranks.map((r) => r.state)).toEqual(Array(6).fill("ended"));
    expect(JSON.stringify(view)).not.toContain("ab12");
    expect(nodes.flatMap((n) => n.daemon.callsOf("run.stop"))).toEqual([]);
  });

  it("says whether its data are encrypted, as the ranks tell, and takes no other word for it", async () => {
    const run = await service.start(spec());
    await started();
    expect(service.get(run.id).encryption).toBeUndefined();
    nodes[0]!.emit(0, { event: "start", rank: 0, encryption: "rot13" });
    nodes[1]!.emit(1, { event: "start", rank: 1, encryption: "tls" });
    await soon(() => expect(RunView.parse(service.get(run.id)).encryption).toBe("tls"));
    await service.stop(run.id);
  });
  it("is there after a restart of the console, and as CSV and JSON", async () => {
    const run = await service.start(spec());
    await started();
    nodes[0]!.emit(0, { ...rowEvent(8, 50), datatype: '=cmd|" /C calc"!A0' });
    for (const [rank, node] of nodes.entries()) {
      node.emit(rank, { event: "exited", status: 0 });
      node.end("succeeded");
    }
    const before = await ended(run.id);
    await soon(() => expect(new RunStore(folder).load()[0]?.state).toBe("succeeded"));
    expect(new RunStore(folder).load()).toEqual([before]);
    const lines = service.export(run.id, "csv").text.split("\r\n");
    expect(lines[0]).toMatch(/^size_bytes,count,type,redop,root,algorithm,transport,iterations,out_of_place_time_us,/);
    expect(lines[1]).toMatch(/^8,2,"'=cmd\|"" \/C calc""!A0",sum,-1,ring,tcp,20,50,/);
    expect(JSON.parse(service.export(run.id, "json").text)).toEqual(before);
  });

  it("a run that the console did not see to its end is given as failed", async () => {
    const run = await service.start(spec());
    const later = new RunStore(folder).load();
    expect(later).toMatchObject([{ id: run.id, state: "failed", error: { code: "H105" } }]);
  });
});

describe("what is refused before anything starts", () => {
  it.each([
    ["one rank", () => spec({ nodeIds: ["n0"] }), "H501"],
    ["a node that is not there", () => spec({ nodeIds: ["n0", "n9"] }), "H301"],
    ["a node that is not up", () => { nodes[1]!.view = { ...nodes[1]!.view, phase: "reachable" }; return spec(); }, "H502"],
    ["RDMA on a node without a device", () => { nodes[2] = new FakeNode(2, "n2", "10.77.0.12", null); remake(); return spec({ transport: "rdma" }); }, "H503"],
    ["shared memory between two nodes", () => spec({ transport: "shm" }), "H503"],
    ["a node that is no member", () => { nodes[1]!.daemon.handlers["cluster.get"] = () => ({ cluster_id: "c1", epoch: 1, self: 7, members: [] }); return spec(); }, "H503"],
    ["a node whose daemon is gone", () => { nodes[1]!.kill(); return spec(); }, "H401"],
    ["a node that another console uses", () => { nodes[2]!.daemon.handlers["run.list"] = () => ({ runs: [{ run_id: "theirs", state: "running", ranks: [0], started_at_ms: 1, ended_at_ms: null, next_seq: 0 }] }); return spec(); }, "H506"],
  ])("%s", async (_name, arrange, code) => {
    const wanted = arrange();
    expect(await codeOf(service.start(wanted))).toBe(code);
    expect(nodes.flatMap((n) => n.daemon.callsOf("run.start"))).toEqual([]);
    expect(service.list()).toEqual([]);
    for (const node of nodes) if (node.view.phase === "up" && node.reachable) node.daemon.handlers["run.list"] = () => ({ runs: [] });
  });

  it("a second run on a busy node names the first, and the node is free again after it", async () => {
    const run = await service.start(spec());
    await expect(service.start(spec())).rejects.toMatchObject({ view: { code: "H506", params: { runId: run.id, name: "n0" } } });
    await started();
    await service.stop(run.id);
    await soon(async () => expect((await service.start(spec())).state).toBe("starting"));
  });
});

describe("a run that goes wrong", () => {
  it("a daemon that is killed: H402 names the rank and the node, within 5 s, and the others are stopped and free", async () => {
    const run = await service.start(spec());
    await started();
    const began = performance.now();
    nodes[1]!.kill();
    nodes[0]!.emit(0, { event: "error", code: "R201", message: "rank 1 closed its connection", peer: 1 });
    nodes[2]!.emit(2, { event: "error", code: "R206", message: "rank 1 failed", peer: 1 });
    const view = await ended(run.id);
    expect(performance.now() - began).toBeLessThan(5000);
    expect(view.state).toBe("failed");
    expect(view.error).toMatchObject({ code: "H402", params: { rank: 1, name: "n1" } });
    expect(view.error?.message).toContain("n1 (rank 1)");
    expect(view.ranks.map((r) => [r.state, r.error?.code])).toEqual([["failed", "R201"], ["failed", "H402"], ["failed", "R206"]]);
    expect([nodes[0]!, nodes[2]!].map((n) => n.daemon.callsOf("run.stop").length)).toEqual([1, 1]);
    const again = await service.start(spec({ nodeIds: ["n0", "n2"] }));
    expect(again.state).toBe("starting");
  });

  it("a daemon that was started anew does not know the run: lost at once", async () => {
    const run = await service.start(spec());
    await started();
    nodes[2]!.kill();
    nodes[2]!.restart();
    expect((await ended(run.id)).error).toMatchObject({ code: "H402", params: { rank: 2, name: "n2" } });
  });

  it("a connection that breaks and comes back loses nothing", async () => {
    const run = await service.start(spec());
    await started();
    nodes[0]!.emit(0, rowEvent(8, 50));
    await soon(() => expect(service.get(run.id).rows).toHaveLength(1));
    nodes[0]!.daemon.kill();
    nodes[0]!.emit(0, rowEvent(16, 51));
    await soon(() => expect(service.get(run.id).rows.map((r) => r.bytes)).toEqual([8, 16]));
    expect(service.get(run.id)).toMatchObject({ state: "running", error: null });
  });

  it("a node that loses power is named long before a slow daemon would be", async () => {
    // The true times: the worst case is a ping sent just after the power went.
    const { pingMs, doubtMs, probeMs, pingTimeoutMs, causeGraceMs } = DEFAULT_TIMING;
    expect(pingMs + doubtMs + probeMs + causeGraceMs).toBeLessThan(5000);
    expect(pingTimeoutMs).toBeGreaterThan(5000);
    const run = await service.start(spec());
    await started();
    nodes[1]!.network = "silent";
    nodes[1]!.daemon.handlers["run.list"] = () => NO_ANSWER;
    const view = await ended(run.id);
    expect(view.error).toMatchObject({ code: "H402", params: { rank: 1, name: "n1", detail: "neither its daemon nor its network answers" } });
  });

  it("a daemon that is slow on a node whose network answers keeps its run", async () => {
    const run = await service.start(spec());
    await started();
    const list = nodes[1]!.daemon.handlers["run.list"]!;
    let slow = 0;
    nodes[1]!.daemon.handlers["run.list"] = async (params, connection) => {
      slow++;
      await new Promise((done) => setTimeout(done, 200));
      return list(params, connection);
    };
    await soon(() => expect(slow).toBeGreaterThan(2));
    expect(service.get(run.id)).toMatchObject({ error: null, endedAtMs: null });
    await service.stop(run.id);
  });

  it("a daemon that hangs is lost after its sign of life is due", async () => {
    const run = await service.start(spec());
    await started();
    nodes[1]!.daemon.handlers["run.list"] = () => new Promise(() => {});
    expect((await ended(run.id)).error).toMatchObject({ code: "H402", params: { rank: 1 } });
  });

  it("a rank that is killed is the cause, though its neighbours complain first", async () => {
    const run = await service.start(spec());
    await started();
    nodes[0]!.emit(0, { event: "error", code: "R201", message: "peer closed", peer: 1 });
    nodes[0]!.emit(0, { event: "exited", status: 3 });
    nodes[2]!.emit(2, { event: "error", code: "R203", message: "no answer in 30 s", peer: 1 });
    await new Promise((done) => setTimeout(done, 50));
    nodes[1]!.emit(1, { event: "stderr", line: "out of memory" });
    nodes[1]!.emit(1, { event: "exited", signal: "SIGKILL" });
    const view = await ended(run.id);
    expect(view.error).toMatchObject({ code: "H504", params: { rank: 1, name: "n1" } });
    expect(view.error?.message).toContain("SIGKILL (out of memory)");
  });

  it("by the daemon's word for a killed worker, and the ranks that it then ends are no cause", async () => {
    const run = await service.start(spec({ ranksPerNode: 2 }));
    await started();
    nodes[0]!.emit(0, { event: "error", code: "R206", message: "rank 2 failed", peer: 2 });
    nodes[1]!.emit(2, { event: "error", code: "A205", message: "The worker of rank 2 ended with SIGKILL and without a result.", next: "Look for the out-of-memory killer.", detail: { rank: 2, signal: "SIGKILL" } });
    nodes[1]!.emit(2, { event: "exited", signal: "SIGKILL" });
    nodes[1]!.emit(3, { event: "exited", signal: "SIGTERM" });
    const view = await ended(run.id);
    expect(view.error).toMatchObject({ code: "H504", params: { rank: 2, name: "n1" } });
    expect(view.error?.message).toContain("ended with SIGKILL");
    expect(view.ranks.map((r) => r.state)).toEqual(["failed", "ended", "failed", "ended", "ended", "ended"]);
  });

  it("a rank's own error is the cause, and says who, where and what", async () => {
    const run = await service.start(spec());
    await started();
    nodes[0]!.emit(0, { event: "error", code: "R207", message: "rank 2 is silent", peer: 2 });
    nodes[2]!.emit(2, { event: "error", code: "R403", message: "4 MiB cannot be locked, the limit is 64 KiB", next: "Raise LimitMEMLOCK." });
    nodes[2]!.emit(2, { event: "exited", status: 1 });
    const view = await ended(run.id);
    expect(view.error).toMatchObject({ code: "R403", next: "Raise LimitMEMLOCK.", params: { rank: 2, name: "n2" } });
    expect(view.error?.message).toMatch(/^Rank 2 on n2: 4 MiB/);
  });

  it("only echoes: the run ends with the first of them, which names the peer", async () => {
    const run = await service.start(spec());
    await started();
    nodes[0]!.emit(0, { event: "error", code: "R203", message: "no answer", peer: 1 });
    const view = await ended(run.id);
    expect(view.error?.message).toContain("(peer: rank 1 on n1)");
  });

  it.each([["rank 0's", 0], ["another", 1]])("run.start refused on %s node", async (_name, index) => {
    const { RpcFailure } = await import("../link/testing.js");
    nodes[index]!.daemon.handlers["run.start"] = () => { throw new RpcFailure("A204", "stepccl-perf is missing"); };
    const run = await service.start(spec());
    const view = await ended(run.id);
    expect(view).toMatchObject({ state: "failed", error: { code: "A204" } });
    expect(nodes[2]!.daemon.callsOf("run.start")).toHaveLength(index === 0 ? 0 : 1);
  });

  it("nonsense from a node changes nothing", async () => {
    const run = await service.start(spec());
    await started();
    nodes[1]!.emit(0, rowEvent(8, 1));
    nodes[1]!.emit(0, { event: "exited", signal: "SIGKILL" });
    nodes[1]!.emit(99, { event: "error", code: "R901", message: "x" });
    nodes[1]!.emit(1, { event: "row", bytes: "many" });
    nodes[1]!.emit(1, { event: "error", code: "<script>", message: "x" });
    nodes[0]!.emit(0, rowEvent(8, 50));
    await soon(() => expect(service.get(run.id).rows).toHaveLength(1));
    expect(service.get(run.id)).toMatchObject({ state: "running", error: null, rows: [{ outOfPlace: { timeUs: 50 } }] });
  });
});

describe("stop", () => {
  it("ends every node's part; the run is stopped, not failed", async () => {
    const run = await service.start(spec());
    await started();
    await service.stop(run.id);
    expect(service.get(run.id)).toMatchObject({ state: "stopped", error: null });
    expect(nodes.map((n) => n.daemon.callsOf("run.stop").length)).toEqual([1, 1, 1]);
    await service.stop(run.id);
    expect(await codeOf(service.stop("r-none"))).toBe("H505");
  });

  it("works while rank 0 has not answered yet", async () => {
    nodes[0]!.daemon.handlers["run.start"] = () => new Promise(() => {});
    const run = await service.start(spec());
    await soon(() => expect(nodes[0]!.daemon.callsOf("run.start")).toHaveLength(1));
    await service.stop(run.id);
    expect(service.get(run.id).state).toBe("stopped");
    expect(nodes[1]!.daemon.callsOf("run.start")).toEqual([]);
  });
});

function remake(): void {
  service = new Collectives({ nodes: directoryOf(nodes), store: new RunStore(folder), timing: TIMING });
}
