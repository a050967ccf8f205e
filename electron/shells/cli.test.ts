import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { describe, expect, it } from "vitest";
import { Collective, ConsoleError, RunSpec, STREAMS, type HostKeyView, type NodeView, type OperationView, type RunView } from "../contract/index.js";
import { hostOf, type Handlers, type Host, type Topics } from "../gate.js";
import { makeKey } from "../ssh/testing/sshd.js";
import { KeyedTopic, LatestTopic } from "../streams.js";
import { EXIT, parseBytes, runCli } from "./cli.js";
import { parseTarget, UsageError } from "./cli-nodes.js";
import { clean } from "./terminal.js";

const KEY = `SHA256:${"A".repeat(43)}`;
const OTHER = `SHA256:${"B".repeat(43)}`;
const keyView = (status: HostKeyView["status"]): HostKeyView => ({ status, algorithm: "ssh-ed25519", offered: KEY, trusted: status === "changed" ? OTHER : null, source: null });
const nodeView = (id: string, more: Partial<NodeView> = {}): NodeView => ({
  id, name: id, host: `${id}.lab`, port: 22, user: "ops", authKind: "agent", keyPath: null, jump: [], dataAddress: null, phase: "new", hostKey: keyView("unknown"),
  connection: { state: "disconnected", sinceMs: 0 }, agent: { state: "unknown", version: null, rssKib: null }, member: null, facts: null, error: null, lastSeenMs: null, addedAtMs: 1, ...more,
});
const timing = (wrong: number | null) => ({ timeUs: 50, algbwGBps: 0.5, busbwGBps: 0.66, wrong });
const runView = (more: Partial<RunView>): RunView => ({
  id: "r1", spec: RunSpec.parse({ collective: "all_reduce", nodeIds: ["n1", "n2"] }), state: "running", startedAtMs: 1, endedAtMs: null, ranks: [], rows: [], model: null, wrongTotal: null, avgBusbwGBps: null, error: null, ...more,
});

interface World { nodes: NodeView[]; calls: { method: string; params: unknown }[]; overrides: Partial<Record<string, (params: never) => unknown>>; runs: RunView[]; operations: OperationView[]; host(): Host; closed: number }
function world(nodes: NodeView[] = []): World {
  const w: World = { nodes, calls: [], overrides: {}, runs: [], operations: [], closed: 0, host };
  function host(): Host {
    const defaults: Record<string, (params: never) => unknown> = {
      hello: () => ({ version: "1", shell: "cli", startedAtMs: 1, capabilities: { nativeFileDialog: false, keepsSecrets: false }, bundle: null }),
      "nodes.list": () => w.nodes,
      "nodes.add": (input: { host: string; user: string; port: number }) => { const node = nodeView(input.host.replaceAll(".", "-"), { host: input.host, user: input.user, port: input.port }); w.nodes.push(node); return node; },
      "nodes.checkHostKey": () => keyView("unknown"),
      "nodes.trustHostKey": ({ nodeId, fingerprint }: { nodeId: string; fingerprint: string }) => {
        if (fingerprint !== KEY) throw ConsoleError.of("H203", { host: nodeId, expected: fingerprint, offered: KEY });
        w.nodes = w.nodes.map((node) => (node.id === nodeId ? { ...node, hostKey: { ...keyView("trusted"), trusted: KEY } } : node));
        return w.nodes.find((node) => node.id === nodeId);
      },
      "nodes.setAuth": ({ nodeId }: { nodeId: string }) => w.nodes.find((node) => node.id === nodeId), "nodes.connect": ({ nodeId }: { nodeId: string }) => w.nodes.find((node) => node.id === nodeId),
      "nodes.bringUp": () => ({ operationId: "op1" }), "operations.cancel": () => ({}),
      "runs.start": () => w.runs[0], "runs.stop": () => ({}), "runs.export": () => ({ fileName: "x.csv", mediaType: "text/csv", text: "size_bytes\r\n8\r\n" }),
      "diagnose.start": () => ({ operationId: "op1" }), "diagnose.list": () => [],
    };
    const handlers = new Proxy({}, { get: (_t, method: string) => (params: never) => { w.calls.push({ method, params }); return (w.overrides[method] ?? defaults[method]!)(params); } }) as Handlers;
    const keyed = <T>(items: () => T[]): KeyedTopic<T> => new KeyedTopic<T>({ list: items, get: () => undefined });
    const none = Object.fromEntries(Object.keys(STREAMS).map((name) => [name, keyed(() => [])])) as unknown as Topics;
    return hostOf(handlers, {
      ...none, nodes: keyed(() => w.nodes), operations: keyed(() => w.operations), runs: keyed(() => w.runs),
      topology: new LatestTopic(() => ({})), telemetry: new LatestTopic(() => ({})),
    }, async () => { w.closed++; });
  }
  return w;
}

async function cli(w: World, argv: string[], options: { tty?: boolean; stdin?: string; signal?: AbortSignal } = {}): Promise<{ status: number; out: string; err: string }> {
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  if (options.tty) for (const stream of Object.values(streams)) Object.assign(stream, { isTTY: true });
  if (options.stdin !== undefined) streams.stdin.end(options.stdin);
  const status = await runCli(argv, {
    io: streams, version: "0.1.0", signal: options.signal ?? new AbortController().signal, openHost: async () => w.host(), console: async () => 0,
  });
  return { status, out: String(streams.stdout.read() ?? ""), err: String(streams.stderr.read() ?? "") };
}
const trusted = (w: World): unknown[] => w.calls.filter((call) => call.method === "nodes.trustHostKey").map((call) => call.params);

describe("host keys", () => {
  it("a script without a fingerprint is told what to run, and nothing is trusted", async () => {
    const w = world();
    const result = await cli(w, ["nodes", "add", "ops@a.lab"]);
    expect(result.status).toBe(EXIT.needsConfirmation);
    expect(result.err).toContain(KEY);
    expect(result.err).toContain(`stepccl nodes trust a-lab --accept-fingerprint ${KEY}`);
    expect(trusted(w)).toEqual([]);
    expect(w.closed).toBe(1);
  });
  it("--accept-fingerprint confirms exactly that one", async () => {
    const w = world();
    const good = await cli(w, ["--json", "nodes", "add", "ops@a.lab", "--accept-fingerprint", KEY]);
    expect(good.status).toBe(0);
    expect(JSON.parse(good.out)).toMatchObject([{ id: "a-lab", hostKey: { status: "trusted" } }]);
    const bad = await cli(w, ["nodes", "add", "ops@b.lab", "--accept-fingerprint", OTHER]);
    expect(bad.status).toBe(EXIT.failed);
    expect(bad.err).toContain("H203");
    expect((await cli(w, ["nodes", "trust", "b-lab", "--accept-fingerprint", "yes"])).status).toBe(EXIT.failed);
    expect(w.nodes.find((node) => node.id === "b-lab")?.hostKey.status).toBe("unknown");
  });
  it.each([["yes\n", 0, 1], ["y\n", 3, 0], ["no\n", 3, 0], ["\n", 3, 0]])("at a terminal, %j", async (answer, status, count) => {
    const w = world();
    const result = await cli(w, ["nodes", "add", "ops@a.lab"], { tty: true, stdin: answer });
    expect(result.err).toContain(KEY);
    expect([result.status, trusted(w).length]).toEqual([status, count]);
  });
  it.each([["yes\n", 3], ["replace\n", 0]])("a changed key needs the longer word: %j", async (answer, status) => {
    const w = world([nodeView("a")]);
    w.overrides["nodes.checkHostKey"] = () => keyView("changed");
    const result = await cli(w, ["nodes", "trust", "a"], { tty: true, stdin: answer });
    expect(result.err).toContain("CHANGED");
    expect(result.status).toBe(status);
  });
  it("there is no option that accepts any key, and one fingerprint is for one node", async () => {
    const w = world();
    expect((await cli(w, ["nodes", "add", "ops@a.lab", "--accept-any"])).status).toBe(EXIT.usage);
    expect((await cli(w, ["nodes", "add", "ops@a.lab", "ops@b.lab", "--accept-fingerprint", KEY])).status).toBe(EXIT.usage);
    expect(w.nodes).toEqual([]);
  });
  it("a revoked key is an error whatever is typed", async () => {
    const w = world([nodeView("a")]);
    w.overrides["nodes.checkHostKey"] = () => keyView("revoked");
    const result = await cli(w, ["nodes", "trust", "a", "--accept-fingerprint", KEY]);
    expect(result.status).toBe(EXIT.failed);
    expect(result.err).toMatch(/^H213: .*revoked/m);
    expect(trusted(w)).toEqual([]);
  });
});

describe("nodes", () => {
  it.each([
    ["ops@n1", { user: "ops", host: "n1" }], ["n1:2201", { host: "n1", port: 2201 }], ["ops@10.0.0.1:22", { user: "ops", host: "10.0.0.1", port: 22 }], ["root@[fe80::1%eth0]:2222", { user: "root", host: "fe80::1%eth0", port: 2222 }],
  ])("%s", (text, parsed) => expect(parseTarget(text)).toEqual(parsed));
  it.each(["", "@n1", "ops@", "n1:x", "fe80::1", "a b", "ops@n1:22:22"])("%j is refused", (text) => expect(() => parseTarget(text)).toThrow(UsageError));

  it("a password comes by standard input, never by an argument, and is not printed", async () => {
    const w = world();
    const result = await cli(w, ["nodes", "add", "ops@a.lab", "--password-stdin"], { stdin: "hunter2\n" });
    expect(w.calls.find((call) => call.method === "nodes.add")?.params).toMatchObject({ auth: { kind: "password", password: "hunter2" } });
    expect(result.out + result.err).not.toContain("hunter2");
    expect((await cli(w, ["nodes", "add", "ops@b.lab", "--password", "x"])).status).toBe(EXIT.usage);
  });
  it("a key's passphrase is asked for without echo, tried at once, and never printed", async () => {
    const folder = mkdtempSync(join(tmpdir(), "stepccl-cli-"));
    try {
      const { path } = makeKey(folder, "locked", "ed25519", "open sesame");
      const w = world();
      const result = await cli(w, ["nodes", "add", "ops@a.lab", "--key", path], { tty: true, stdin: "wrong\nopen sesame\nyes\n" });
      expect(result.status).toBe(0);
      expect(result.err).toContain("The passphrase is wrong.");
      expect(result.out + result.err).not.toContain("sesame");
      expect(w.calls.find((call) => call.method === "nodes.add")?.params).toMatchObject({ auth: { kind: "key", keyPath: path, passphrase: "open sesame" } });
      // A later command asks again, once for all nodes with that key.
      const later = world([nodeView("a", { authKind: "key", keyPath: path }), nodeView("b", { authKind: "key", keyPath: path }), nodeView("c")]);
      await cli(later, ["status"], { tty: true, stdin: "open sesame\n" });
      expect(later.calls.filter((call) => call.method === "nodes.setAuth").map((call) => (call.params as { nodeId: string }).nodeId)).toEqual(["a", "b"]);
      const gone = await cli(world(), ["nodes", "add", "ops@a.lab", "--key", join(folder, "none")]);
      expect([gone.status, gone.err]).toEqual([EXIT.failed, expect.stringMatching(/^H205: .*does not exist/)]);
      // Nobody to ask: the dial says what is missing.
      expect((await cli(world(), ["nodes", "add", "ops@a.lab", "--key", path, "--accept-fingerprint", KEY])).status).toBe(0);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
  it.each([[{ tty: true, stdin: "break\n" }, [], 0], [{ tty: true, stdin: "yes\n" }, [], EXIT.needsConfirmation], [{}, [], EXIT.needsConfirmation], [{}, ["--held-by", "eve:1"], 0]])("unlock breaks the lock that was shown, when told to: %j %j", async (how, options, status) => {
    const w = world([nodeView("a")]);
    w.overrides["nodes.lockHolder"] = () => ({ token: "eve:1", owner: "eve@far\u001b[2J", sinceMs: 1000, heartbeatAgeSeconds: 9 });
    w.overrides["nodes.breakLock"] = () => ({ broken: true });
    const result = await cli(w, ["nodes", "unlock", "a", ...options], how);
    expect(result.status).toBe(status);
    expect(result.out + result.err).toContain("eve@far");
    expect(result.out + result.err).not.toContain("eve@far\u001b");
    expect(w.calls.filter((call) => call.method === "nodes.breakLock").map((call) => call.params)).toEqual(status === 0 ? [{ nodeId: "a", token: "eve:1" }] : []);
  });
  it("a user must be named; a node must be known; a name must mean one", async () => {
    expect((await cli(world(), ["nodes", "add", "a.lab"])).err).toContain("--user");
    expect((await cli(world([nodeView("a")]), ["up", "b"])).err).toContain("Known: a");
    const twice = world([nodeView("a", { host: "same" }), nodeView("b", { host: "same" })]);
    expect((await cli(twice, ["up", "same"])).err).toContain("a, b");
  });
  it("--json gives one document; hostile names cannot drive the terminal", async () => {
    const w = world([nodeView("a", { name: "evil\u001b[2J\u202e", phase: "up" })]);
    expect(JSON.parse((await cli(w, ["--json", "nodes", "list"])).out)).toHaveLength(1);
    const text = (await cli(w, ["nodes", "list"])).out;
    expect(text).not.toMatch(/[\u001b\u202e]/);
    expect(clean("a\tb\u0007\r\n")).toBe("a\tb\ufffd\ufffd\ufffd");
  });
});

describe("operations", () => {
  const operation = (state: OperationView["state"]): OperationView => ({
    id: "op1", kind: "bring_up", state, startedAtMs: 1, endedAtMs: state === "running" ? null : 2,
    nodes: [{ nodeId: "a", state: state === "running" ? "running" : state, error: state === "failed" ? ConsoleError.of("H303", { user: "ops", host: "a" }).view : null, steps: [
      { id: "connect", state: "done", startedAtMs: 0, endedAtMs: 1200, progress: null, detail: "ops@a", error: null },
      { id: "preflight", state: state === "failed" ? "failed" : "done", startedAtMs: 1, endedAtMs: 2, progress: null, detail: null, error: state === "failed" ? ConsoleError.of("H303", { user: "ops", host: "a" }).view : null },
    ] }],
  });
  it("up shows each step and ends well", async () => {
    const w = world([nodeView("a")]);
    w.operations = [operation("succeeded")];
    const result = await cli(w, ["up"]);
    expect(result.status).toBe(0);
    expect(result.out).toContain("a: connect done 1.2 s (ops@a)");
    expect(result.out).toContain("a: succeeded");
  });
  it("up that fails says the code once and the next step, with status 1; --json gives the operation", async () => {
    const w = world([nodeView("a")]);
    w.operations = [operation("failed")];
    const text = await cli(w, ["up", "a"]);
    expect(text.status).toBe(EXIT.failed);
    expect(text.out.match(/H303/g)).toHaveLength(1);
    expect(JSON.parse((await cli(w, ["--json", "up", "a"])).out)).toMatchObject({ id: "op1", state: "failed" });
  });
  it("Ctrl-C cancels, waits for the end, and is told by the status", async () => {
    const w = world([nodeView("a")]);
    w.operations = [operation("running")];
    w.overrides["operations.cancel"] = () => { w.operations = [operation("cancelled")]; return {}; };
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 20);
    expect((await cli(w, ["up"], { signal: abort.signal })).status).toBe(EXIT.interrupted);
    expect(w.closed).toBe(1);
  });
  it("down wants its nodes named", async () => expect((await cli(world([nodeView("a")]), ["down"])).status).toBe(EXIT.usage));
});

describe("run", () => {
  const row = { bytes: 8, count: 2, datatype: "float", redop: "sum", root: -1, algorithm: "ring", transport: "tcp", iterations: 20, outOfPlace: timing(0), inPlace: timing(0), expectedTimeUs: null };
  const two = (): NodeView[] => [nodeView("n1", { phase: "up" }), nodeView("n2", { phase: "up" }), nodeView("n3", { phase: "reachable" })];
  it("runs on the nodes that are up, prints the table, ends with 0", async () => {
    const w = world(two());
    w.runs = [runView({ state: "succeeded", endedAtMs: 2, rows: [row], wrongTotal: 0, avgBusbwGBps: 0.66 })];
    const result = await cli(w, ["run", "all_reduce", "-e", "16M", "-T", "rdma"]);
    expect(result.status).toBe(0);
    expect(result.out).toMatch(/#wrong 0, average bus bandwidth 0\.6600 GB\/s/);
    expect(result.out).toMatch(/^ +8 +2 +float +sum +-1 +50\.0 +0\.500 +0\.660 +0 +50\.0/m);
    expect(w.calls.find((call) => call.method === "runs.start")?.params).toMatchObject({ nodeIds: ["n1", "n2"], maxBytes: 16777216, transport: "rdma", check: true });
  });
  it.each(Collective.options)("takes %s, a root, a type and an algorithm", async (collective) => {
    const w = world(two());
    w.runs = [runView({ state: "succeeded", endedAtMs: 2, rows: [{ ...row, inPlace: null }], wrongTotal: 0 })];
    const result = await cli(w, ["run", collective, "--root", "1", "-d", "bfloat16", "-a", "ring"]);
    expect(result.status).toBe(0);
    expect(result.out).toMatch(/ 0 +N\/A +N\/A +N\/A +N\/A$/m);
    expect(w.calls.find((call) => call.method === "runs.start")?.params).toMatchObject({ collective, root: 1, datatype: "bfloat16", algorithm: "ring" });
  });
  it("--json gives one object a line, the run last", async () => {
    const w = world(two());
    w.runs = [runView({ state: "succeeded", endedAtMs: 2, rows: [row, { ...row, bytes: 16 }], wrongTotal: 0 })];
    const lines = (await cli(w, ["--json", "run", "all_reduce"])).out.trim().split("\n").map((line) => JSON.parse(line) as { event: string });
    expect(lines.map((line) => line.event)).toEqual(["row", "row", "end"]);
  });
  it.each([
    ["wrong results", { state: "succeeded" as const, wrongTotal: 3 }, EXIT.wrongData],
    ["a failure", { state: "failed" as const, error: ConsoleError.of("H504", { rank: 1, name: "n2", detail: "signal SIGKILL" }).view }, EXIT.failed],
  ])("%s have a status of their own", async (_name, more, status) => {
    const w = world(two());
    w.runs = [runView({ endedAtMs: 2, rows: [row], ...more })];
    expect((await cli(w, ["run", "all_reduce"])).status).toBe(status);
  });
  it("refuses what the contract refuses, and unknown collectives, before anything starts", async () => {
    const w = world(two());
    expect((await cli(w, ["run", "all_reduce", "-b", "16M", "-e", "8"])).err).toContain("minBytes is above maxBytes");
    expect((await cli(w, ["run", "all_destroy"])).status).toBe(EXIT.usage);
    expect((await cli(w, ["run", "all_reduce", "-b", "lots"])).status).toBe(EXIT.usage);
    expect(w.calls.filter((call) => call.method === "runs.start")).toEqual([]);
  });
  it("Ctrl-C stops the run", async () => {
    const w = world(two());
    w.runs = [runView({})];
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 20);
    expect((await cli(w, ["run", "all_reduce"], { signal: abort.signal })).status).toBe(EXIT.interrupted);
    expect(w.calls.map((call) => call.method)).toContain("runs.stop");
  });
  it("bytes are powers of 1024", () => expect(["8", "1K", "16M", "1GiB"].map(parseBytes)).toEqual([8, 1024, 16777216, 1073741824]));
});

describe("memory", () => {
  const MIB = 1024 ** 2;
  const process = {
    key: "7.0.00000000deadbeef", pid: 7, rank: 0, worldSize: 2, communicator: "00000000deadbeef", job: "train\u001b[2J", gpuUuid: "GPU-0", gpuIndex: 3, updatedAtMs: 1, errorCode: null, operations: 1,
    pool: { capacityBytes: 512 * MIB, heldBytes: 64 * MIB, usedBytes: 48 * MIB, stagingBytes: 16 * MIB, largestFreeBytes: null, buffers: 3, fragmentationPermille: 250, cacheRatioPermille: 100 }, device: { freeBytes: null, totalBytes: null },
    defrag: { intervalMs: 500, blocked: "ungated_graphs", epochs: 1, movedBytes: 0, releasedBytes: 0, last: null }, asyncLevel: "stream", asyncReason: null, smBudget: 0, multiprocessors: 132, pipelineDepth: 4, dmaConcurrency: 4,
    prefetchDepth: 2, pageBytes: 0, graphLanes: 16, lanesInUse: 0, settingsCurrent: true, settings: [],
  };
  const view = (more: object) => ({ nodeId: "a", readAtMs: 1, host: { totalBytes: 64 * 1024 * MIB, availableBytes: null, sampledAtMs: null, daemonRssKib: 2100 }, gpus: [], processes: [process], omitted: 0, damaged: 0, supported: true, error: null, ...more });
  it("shows pools and hosts in words, with what could not be shown on the error stream", async () => {
    const w = world([nodeView("a", { phase: "up" }), nodeView("b", { phase: "unreachable" })]);
    w.overrides["memory.get"] = () => [view({ damaged: 1 })];
    const result = await cli(w, ["memory"]);
    expect(result.status).toBe(EXIT.ok);
    expect(w.calls.find((call) => call.method === "memory.get")!.params).toEqual({ nodeIds: ["a"] });
    expect(result.out).toMatch(/a\s+64 GiB\s+-\s+2100 KiB/);
    expect(result.out).toMatch(/a\s+3\s+train\ufffd\[2J\s+0\/2\s+7\s+512 MiB\s+64 MiB\s+48 MiB\s+-\s+25\.0%\s+held up: ungated_graphs\s+stream/);
    expect(result.err).toContain("a: 1 process(es) could not be shown.");
  });
  it("gives machines the contract's objects, and fails when a named node does not answer", async () => {
    const w = world([nodeView("a", { phase: "up" })]);
    w.overrides["memory.get"] = () => [view({ processes: [], error: { code: "H401", message: "gone", next: "wait", params: {} } })];
    const result = await cli(w, ["--json", "memory", "a"]);
    expect(result.status).toBe(EXIT.failed);
    expect(JSON.parse(result.out)).toMatchObject([{ nodeId: "a", processes: [], error: { code: "H401" } }]);
    expect(result.err).toContain("H401");
    w.overrides["memory.get"] = () => [view({ processes: [], supported: false })];
    const quiet = await cli(w, ["memory", "a"]);
    expect(quiet.out).toContain("No GPU process publishes now.");
    expect(quiet.err).toContain("stepccl up a");
  });
});
