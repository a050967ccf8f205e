import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { SettingName, SETTINGS, type ConsoleError } from "../contract/index.js";
import { connectAgent, type ConnectedAgent } from "./client.js";
import { GpuProcess } from "./gpu-schemas.js";
import { encodeBoard } from "./testing.js";

const root = join(import.meta.dirname, "../..");
const binary = join(root, "build/out/agent/stepccld");
const addon = existsSync(join(root, "native/addon/build/Release/stepccl_addon.node"));

/** The client against the daemon itself: skipped, and reported so, where they are not built. */
describe.skipIf(!existsSync(binary) || !addon)("the real stepccld", () => {
  let folder: string;
  let daemon: ChildProcess;
  let client: ConnectedAgent;
  const open = (): Promise<ConnectedAgent> => connectAgent(connect(join(folder, "agent.sock")), { host: "here" });

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "stepccld-"));
    for (const name of ["state", "run"]) mkdirSync(join(folder, name));
    daemon = spawn(binary, ["--socket", join(folder, "agent.sock"), "--state-dir", join(folder, "state"), "--run-dir", join(folder, "run"), "--foreground"], { stdio: "ignore" });
    await vi.waitFor(() => expect(existsSync(join(folder, "agent.sock"))).toBe(true), { timeout: 10_000 });
    client = await open();
  }, 20_000);
  afterAll(async () => {
    client.close();
    daemon.kill("SIGTERM");
    await new Promise((done) => daemon.once("exit", done));
    rmSync(folder, { recursive: true });
  });

  it("says who it is, and its facts pass their schema", async () => {
    expect(client.hello.pid).toBe(daemon.pid);
    const facts = await client.call("facts.get", {});
    expect(facts.cpu.threads).toBeGreaterThan(0);
    expect(client.hello.hostname).toBe(hostname());
  });
  it("of a machine that shows nothing: null for each, and said so", async () => {
    const bare = join(folder, "bare");
    for (const name of ["root", "state", "run"]) mkdirSync(join(bare, name), { recursive: true });
    const socket = join(bare, "agent.sock");
    const blind = spawn(binary, ["--socket", socket, "--state-dir", join(bare, "state"), "--run-dir", join(bare, "run"), "--sysroot", join(bare, "root"), "--foreground"], { stdio: "ignore" });
    try {
      await vi.waitFor(() => expect(existsSync(socket)).toBe(true), { timeout: 10_000 });
      const asked = await connectAgent(connect(socket), { host: "blind" });
      const facts = await asked.call("facts.get", {});
      asked.close();
      expect(facts).toMatchObject({ os: { pretty_name: null }, kernel: { release: null }, cpu: { model: null, threads: null }, memory: { total_bytes: null }, nics: [] });
      expect(facts.unreadable.map((entry) => entry.what)).toContain("/proc/meminfo");
    } finally {
      blind.kill("SIGKILL");
    }
  });
  it("has codes for what is not so", async () => {
    const codeOf = (promise: Promise<unknown>): Promise<string> => promise.then(() => "none", (error: unknown) => (error as ConsoleError).view.code);
    expect(await codeOf(client.call("cluster.get", {}))).toBe("A301");
    expect(await codeOf(client.call("run.stop", { run_id: "none" }))).toBe("A201");
    expect(await codeOf(client.call("run.subscribe", { run_id: "none", from_seq: 0 }))).toBe("A201");
  });
  it("takes a cluster, gives it back with its routes, and refuses an older epoch", async () => {
    const cluster = { cluster_id: "c1", epoch: 3, self: 0, members: [{ node: 0, name: "here", addresses: [{ address: "127.0.0.1", netdev: "lo", rdma_device: null, gid_index: null }] }, { node: 1, name: "there", addresses: [{ address: "127.0.0.2", netdev: null, rdma_device: null, gid_index: null }] }] };
    expect(await client.call("cluster.set", cluster)).toEqual({ epoch: 3 });
    expect(await client.call("cluster.get", {})).toEqual(cluster);
    const routes = await client.call("routes.get", {});
    expect(routes.epoch).toBe(3);
    expect(routes.routes.length).toBeGreaterThan(0);
    await expect(client.call("cluster.set", { ...cluster, epoch: 2 })).rejects.toMatchObject({ view: { code: "A302" } });
  });
  it("tells of a GPU process that shows a board, in the form that the console reads", async () => {
    expect(await client.call("gpu.processes", {})).toEqual({ processes: [], omitted: 0 });
    const commId = 0xdeadbeefn;
    const file = join(folder, "run", "rings", `${process.pid}.0.${commId.toString(16).padStart(16, "0")}.gpu`);
    writeFileSync(file, encodeBoard({
      pid: process.pid, rank: 0, commId, monotonicNs: process.hrtime.bigint(), job: "train\u001b[2J", heldBytes: 3000, usedBytes: 2000, ranges: [{ offset: 0, bytes: 2000, kind: 1 }, { offset: 4096, bytes: 1000, kind: 0 }],
      settings: [{ wanted: 0, inForce: 4, state: 0, reason: 0 }, { wanted: 16, inForce: 0, state: 2, reason: 1 }, { wanted: 8, inForce: 4, state: 3, reason: 3 }, { wanted: 1, inForce: 1, state: 1, reason: 0 }],
    }), { mode: 0o660 });
    try {
      const [told] = (await client.call("gpu.processes", {})).processes;
      const parsed = GpuProcess.parse(told);
      expect(parsed).toMatchObject({
        pid: process.pid, rank: 0, world_size: 2, communicator: "00000000deadbeef", error_code: null, operations: 7, sm_budget: 0, gpu: { uuid: "GPU-0", multiprocessors: 132 }, async: { level: "stream", reason: null }, paging: { page_bytes: 0 },
        pool: { capacity_bytes: 2 ** 30, held_bytes: 3000, used_bytes: 2000, fragmentation_permille: 250, ranges: [{ offset_bytes: 0, bytes: 2000, kind: "buffer" }, { offset_bytes: 4096, bytes: 1000, kind: "free" }], ranges_omitted: 0 },
        defrag: { interval_ms: 500, blocked_by: null, last: null },
        settings: {
          pipeline_depth: { state: "own", reason: null, wanted: null, in_force: 4 }, sm_budget: { state: "pending", reason: "next_call", wanted: 16, in_force: 0 }, dma_concurrency: { state: "refused", reason: "out_of_range", wanted: 8, in_force: 4 },
          async_gd: { state: "applied", reason: null, wanted: true, in_force: true },
        },
      });
      expect(parsed.job).not.toContain("\u001b");
      expect(parsed.age_ms).toBeLessThan(60_000);
    } finally {
      rmSync(file);
    }
  });
  it("takes every setting that the console has, to its limits", async () => {
    for (const name of SettingName.options) {
      const kind = SETTINGS[name];
      for (const value of kind.kind === "switch" ? [true, false] : [kind.min, kind.max]) expect(await client.call("settings.set", { [name]: value } as never)).toMatchObject({ [name]: value });
      expect(await client.call("settings.set", { [name]: null } as never)).toMatchObject({ [name]: null });
    }
  });
  it("lists no run, keeps settings, tells its log", async () => {
    expect(await client.call("run.list", {})).toEqual({ runs: [] });
    await client.call("settings.get", {});
    expect((await client.call("log.tail", { lines: 5 })).lines.length).toBeGreaterThan(0);
  });
  it("sends telemetry frames that the addon decodes", async () => {
    const frames: unknown[] = [];
    const leave = client.onFrame((frame) => frames.push(frame));
    const { subscription } = await client.call("telemetry.subscribe", { interval_ms: 100 });
    await vi.waitFor(() => expect(frames.length).toBeGreaterThan(2), { timeout: 5000 });
    await client.call("telemetry.unsubscribe", { subscription });
    leave();
  });
  it("serves several at once, and its end is told to each", async () => {
    const [a, b] = await Promise.all([open(), open()]);
    await Promise.all([a.call("run.list", {}), b.call("run.list", {})]);
    a.close();
    await b.call("run.list", {});
    const reason = new Promise<ConsoleError>((done) => void b.onClose(done));
    daemon.kill("SIGKILL");
    expect((await reason).view.code).toBe("H401");
    expect((await new Promise<ConsoleError>((done) => void client.onClose(done))).view.code).toBe("H401");
  });
});
