import type { NodeView } from "../contract/index.js";
import { ConsoleError } from "../contract/index.js";
import { connectAgent } from "../link/client.js";
import type { NodeDirectory } from "../link/directory.js";
import type { AgentClient } from "../link/types.js";
import { FAKE_HELLO, FakeDaemon, RpcFailure, type FakeConnection } from "../link/testing.js";

/** For tests: nodes whose daemons keep runs as agent/PROTOCOL.md says, with events that the test gives. */
interface KeptRun {
  ranks: number[];
  state: "running" | "succeeded" | "failed" | "stopped";
  events: { rank: number | null; event: Record<string, unknown> }[];
  subscribers: Set<FakeConnection>;
}

export class FakeNode {
  readonly daemon = new FakeDaemon();
  readonly runs = new Map<string, KeptRun>();
  view: NodeView;
  /** False = nothing answers any more, as after a crash without restart. */
  reachable = true;
  /** What its network does with a new connection; "silent" = as a node without power. */
  network: "answers" | "silent" = "answers";
  #client: Promise<AgentClient> | undefined;

  constructor(readonly member: number, name = `n${member}`, readonly address = `10.77.0.${member + 10}`, readonly rdmaDevice: string | null = "rxe0") {
    this.view = {
      id: name, name, host: name, port: 22, user: "ops", authKind: "agent", keyPath: null, jump: [], dataAddress: null, phase: "up",
      hostKey: { status: "trusted", algorithm: null, offered: null, trusted: null, source: null },
      connection: { state: "connected", sinceMs: 0 }, agent: { state: "running", version: "0.1.0", rssKib: 2000 }, member, facts: null, error: null, lastSeenMs: 0, addedAtMs: 0,
    };
    this.restart();
  }

  /** A new daemon process: it knows no run. */
  restart(): void {
    this.runs.clear();
    this.reachable = true;
    this.daemon.handlers = {
      hello: () => ({ ...FAKE_HELLO, hostname: this.view.name }),
      "cluster.get": () => ({
        cluster_id: "c1", epoch: 1, self: this.member,
        members: [{ node: this.member, name: this.view.name, addresses: [{ address: this.address, netdev: "eth1", rdma_device: this.rdmaDevice, gid_index: this.rdmaDevice ? 1 : null }] }],
      }),
      "run.list": () => ({
        runs: [...this.runs].map(([run_id, run]) => ({ run_id, state: run.state, ranks: run.ranks, started_at_ms: 1, ended_at_ms: null, next_seq: run.events.length })),
      }),
      "run.start": (params: { run_id: string; ranks: number[]; unique_id: string | null }) => {
        this.runs.set(params.run_id, { ranks: params.ranks, state: "running", events: [], subscribers: new Set() });
        for (const rank of params.ranks) this.emit(rank, { event: "spawned", pid: 1000 + rank });
        return { run_id: params.run_id, unique_id: params.ranks.includes(0) ? "ab12" : params.unique_id, workers: params.ranks.map((rank) => ({ rank, pid: 1000 + rank })) };
      },
      "run.subscribe": (params: { run_id: string; from_seq: number }, connection: FakeConnection) => {
        const run = this.#run(params.run_id);
        run.subscribers.add(connection);
        run.events.forEach((event, seq) => {
          if (seq >= params.from_seq) connection.runEvent({ run_id: params.run_id, seq, ...event });
        });
        return { next_seq: run.events.length };
      },
      "run.stop": (params: { run_id: string }) => {
        const run = this.#run(params.run_id);
        if (run.state !== "running") return { stopped: 0 };
        for (const rank of run.ranks) this.emit(rank, { event: "exited", signal: 15 });
        this.end("stopped");
        return { stopped: run.ranks.length };
      },
    };
  }

  /** One event of the run that goes on. */
  emit(rank: number | null, event: Record<string, unknown>): void {
    const [runId, run] = [...this.runs].at(-1)!;
    run.events.push({ rank, event });
    for (const connection of run.subscribers) connection.runEvent({ run_id: runId, seq: run.events.length - 1, rank, event });
  }
  end(state: KeptRun["state"]): void {
    [...this.runs.values()].at(-1)!.state = state;
    this.emit(null, { event: "run_end", state });
  }
  /** As `kill -9` on the daemon: its workers die with it. */
  kill(): void {
    this.reachable = false;
    this.daemon.kill();
  }
  async answersTcp(signal: AbortSignal): Promise<boolean> {
    if (this.network === "silent") await new Promise((_done, failed) => signal.addEventListener("abort", () => failed(ConsoleError.of("H104")), { once: true }));
    return true;
  }
  async agent(): Promise<AgentClient> {
    if (!this.reachable) throw ConsoleError.of("H401", { host: this.view.name, detail: "connection refused" });
    const kept = await this.#client?.catch(() => undefined);
    if (kept && !kept.closed) return kept;
    this.#client = connectAgent(this.daemon.connect(), { host: this.view.name });
    return this.#client;
  }
  #run(runId: string): KeptRun {
    const run = this.runs.get(runId);
    if (!run) throw new RpcFailure("A201", `there is no run ${runId}`);
    return run;
  }
}

export function directoryOf(nodes: readonly FakeNode[]): NodeDirectory {
  const find = (nodeId: string): FakeNode => {
    const node = nodes.find((candidate) => candidate.view.id === nodeId);
    if (!node) throw ConsoleError.of("H301", { nodeId });
    return node;
  };
  return {
    list: () => nodes.map((node) => node.view),
    get: (nodeId) => nodes.find((node) => node.view.id === nodeId)?.view,
    session: () => { throw new Error("no SSH in this test"); },
    agent: (nodeId) => find(nodeId).agent(),
    reachable: (nodeId, signal) => find(nodeId).answersTcp(signal),
    onChange: () => () => {},
  };
}

export const rowEvent = (bytes: number, timeUs: number, wrong = 0): Record<string, unknown> => {
  const timing = { time_us: timeUs, algbw_GBps: bytes / timeUs / 1000, busbw_GBps: (bytes / timeUs / 1000) * (4 / 3), wrong };
  return { event: "row", bytes, count: bytes / 4, datatype: "float", redop: "sum", root: -1, algorithm: "ring", transport: "tcp", iterations: 20, out_of_place: timing, in_place: timing };
};
