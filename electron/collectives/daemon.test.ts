import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Collective, COLLECTIVE_TAKES, ConsoleError, RunSpec, type RunSpecInput, type RunView } from "../contract/index.js";
import { connectAgent } from "../link/client.js";
import type { NodeDirectory } from "../link/directory.js";
import type { AgentClient } from "../link/types.js";
import { AlphaBetaModeller } from "./model.js";
import { Collectives } from "./service.js";
import { RunStore } from "./store.js";
import { FakeNode } from "./testing.js";

const root = join(import.meta.dirname, "../..");
const binaries = { daemon: join(root, "build/out/agent/stepccld"), perf: join(root, "build/out/native/stepccl-perf"), addon: join(root, "native/addon/build/Release/stepccl_addon.node") };
const built = Object.values(binaries).every((path) => existsSync(path));

/** One daemon of its own on loopback, with its own address. */
class LocalNode {
  readonly folder: string;
  process!: ChildProcess;
  #client: Promise<AgentClient> | undefined;
  constructor(readonly index: number, base: string) {
    this.folder = join(base, `n${index}`);
    for (const name of ["state", "run"]) mkdirSync(join(this.folder, name), { recursive: true });
  }
  get id(): string { return `n${this.index}`; }
  get address(): string { return `127.0.0.${this.index + 1}`; }
  async start(): Promise<void> {
    const socket = join(this.folder, "agent.sock");
    rmSync(socket, { force: true });
    this.process = spawn(binaries.daemon, ["--socket", socket, "--state-dir", join(this.folder, "state"), "--run-dir", join(this.folder, "run"), "--perf", binaries.perf, "--foreground"], { stdio: "ignore" });
    await vi.waitFor(() => expect(existsSync(socket)).toBe(true), { timeout: 10_000 });
    const client = await this.agent();
    await client.call("cluster.set", { cluster_id: "c", epoch: 1, self: this.index, members: [0, 1].map((node) => ({ node, name: `n${node}`, addresses: [{ address: `127.0.0.${node + 1}`, netdev: "lo", rdma_device: null, gid_index: null }] })) });
  }
  async agent(): Promise<AgentClient> {
    const kept = await this.#client?.catch(() => undefined);
    if (kept && !kept.closed) return kept;
    this.#client = connectAgent(connect(join(this.folder, "agent.sock")), { host: this.id });
    return this.#client;
  }
  async stop(): Promise<void> {
    (await this.#client?.catch(() => undefined))?.close();
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const gone = new Promise((done) => this.process.once("exit", done));
    this.process.kill("SIGTERM");
    await gone;
  }
}

/** Real daemons, real ranks, over TCP on loopback. Skipped, and reported so, where they are not built. */
describe.skipIf(!built)("runs on two real daemons", () => {
  let base: string;
  let nodes: LocalNode[];
  let service: Collectives;

  beforeEach(async () => {
    base = mkdtempSync(join(tmpdir(), "stepccl-two-"));
    nodes = [new LocalNode(0, base), new LocalNode(1, base)];
    await Promise.all(nodes.map((node) => node.start()));
    const views = nodes.map((node) => ({ ...new FakeNode(node.index, node.id, node.address).view }));
    const find = (nodeId: string): LocalNode => {
      const node = nodes.find((candidate) => candidate.id === nodeId);
      if (!node) throw ConsoleError.of("H301", { nodeId });
      return node;
    };
    const directory: NodeDirectory = {
      list: () => views, get: (nodeId) => views.find((view) => view.id === nodeId), agent: (nodeId) => find(nodeId).agent(),
      session: () => { throw new Error("no SSH in this test"); }, reachable: async () => true, onChange: () => () => {},
    };
    service = new Collectives({ nodes: directory, store: new RunStore(base), modeller: new AlphaBetaModeller((error) => { throw error; }), onError: (error) => { throw error; } });
  }, 30_000);
  afterEach(async () => {
    await service.close();
    await Promise.all(nodes.map((node) => node.stop()));
    rmSync(base, { recursive: true });
  });
  const spec = (input: Partial<RunSpecInput> = {}): RunSpec => RunSpec.parse({ collective: "all_reduce", nodeIds: ["n0", "n1"], transport: "tcp", minBytes: 8, maxBytes: 65_536, stepFactor: 8, iterations: 3, warmup: 1, ...input });
  const end = (runId: string): Promise<RunView> => vi.waitFor(() => {
    const view = service.get(runId);
    expect(view.endedAtMs).not.toBeNull();
    return view;
  }, { timeout: 60_000, interval: 20 });
  const endless = (): RunSpec => spec({ minBytes: 1 << 20, maxBytes: 1 << 20, iterations: 100_000, check: false });
  const running = (runId: string): Promise<unknown> => vi.waitFor(() => expect(service.get(runId).ranks.map((rank) => rank.state)).toEqual(["running", "running"]), { timeout: 30_000, interval: 20 });

  it("AllReduce over TCP: every row right, with a model; then again on the same nodes", async () => {
    for (let i = 0; i < 2; i++) {
      const view = await end((await service.start(spec())).id);
      expect(view.error).toBeNull();
      expect(view).toMatchObject({ state: "succeeded", wrongTotal: 0 });
      expect(view.rows.map((row) => row.bytes)).toEqual([8, 64, 512, 4096, 32_768]);
      expect(view.rows.every((row) => row.transport === "tcp" && row.outOfPlace.timeUs > 0 && row.expectedTimeUs !== null)).toBe(true);
      expect(view.model?.alphaUs).toBeGreaterThan(0);
    }
  }, 90_000);

  it.each(Collective.options)("%s: every element right, from the daemon's request to the exported row", async (collective) => {
    const view = await end((await service.start(spec({ collective, root: 1, ranksPerNode: 2, transport: "auto", datatype: "bfloat16", redop: "max", minBytes: 64, maxBytes: 4096, iterations: 2 }))).id);
    expect(view.error).toBeNull();
    expect(view.state).toBe("succeeded");
    const { root, redop, sized } = COLLECTIVE_TAKES[collective];
    expect(view.rows.length).toBeGreaterThan(0);
    expect(view.rows.every((row) => row.outOfPlace.timeUs > 0 && row.root === (root ? 1 : -1))).toBe(true);
    if (sized) {
      expect(view.wrongTotal).toBe(0);
      expect(view.rows.map((row) => row.bytes).at(-1)).toBe(4096);
      expect(view.rows.every((row) => row.datatype === "bfloat16" && row.expectedTimeUs !== null)).toBe(true);
    }
    if (redop) expect(view.rows.every((row) => row.redop === "max")).toBe(true);
    expect(service.export(view.id, "csv").text.trim().split("\r\n")).toHaveLength(1 + view.rows.length);
  }, 90_000);

  it("a schedule that is named is the one that runs, and each that is offered runs", async () => {
    const { all_reduce: offered } = await service.algorithms(4);
    expect(offered.length).toBeGreaterThan(2);
    for (const algorithm of offered) {
      const view = await end((await service.start(spec({ ranksPerNode: 2, algorithm, minBytes: 1024, maxBytes: 1024, iterations: 1 }))).id);
      expect([algorithm, view.error, view.wrongTotal]).toEqual([algorithm, null, 0]);
      if (algorithm !== "auto") expect(view.rows[0]?.algorithm).toBe(algorithm);
    }
  }, 120_000);

  it("a daemon that is killed: named with its rank within 5 s, the other node usable at once", async () => {
    const run = await service.start(endless());
    await running(run.id);
    const began = performance.now();
    nodes[1]!.process.kill("SIGKILL");
    const view = await end(run.id);
    expect(performance.now() - began).toBeLessThan(5000);
    expect(view).toMatchObject({ state: "failed", error: { code: "H402", params: { rank: 1, name: "n1" } } });
    const again = await end((await service.start(spec({ nodeIds: ["n0"], ranksPerNode: 2 }))).id);
    expect(again).toMatchObject({ state: "succeeded", wrongTotal: 0 });
  }, 90_000);

  it("a rank that is killed is named within 5 s, and both nodes are free again", async () => {
    const run = await service.start(endless());
    await running(run.id);
    const listed = await (await nodes[1]!.agent()).call("run.events", { run_id: run.id, from_seq: 1 });
    const pid = (listed.events as { event: { event: string; pid?: number } }[]).find((event) => event.event.event === "spawned")?.event.pid;
    const began = performance.now();
    process.kill(pid!, "SIGKILL");
    const view = await end(run.id);
    expect(performance.now() - began).toBeLessThan(5000);
    expect(view).toMatchObject({ state: "failed", error: { code: "H504", params: { rank: 1, name: "n1" } } });
    expect(await end((await service.start(spec())).id)).toMatchObject({ state: "succeeded" });
  }, 90_000);

  it("stop ends it on both", async () => {
    const run = await service.start(endless());
    await running(run.id);
    await service.stop(run.id);
    expect(service.get(run.id)).toMatchObject({ state: "stopped", error: null });
    for (const node of nodes) {
      await vi.waitFor(async () => expect((await (await node.agent()).call("run.list", {})).runs.at(-1)?.state).toBe("stopped"), { timeout: 10_000 });
    }
  }, 90_000);
});
