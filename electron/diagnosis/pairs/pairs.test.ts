import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, it, vi } from "vitest";
import { ConsoleError, PairTestView, type NodeView, type PairResult, type RunView } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import type { ExecOptions } from "../../ssh/types.js";
import { choosePairs, Pairs, suspectsOf } from "./service.js";
import { failingHalf, readPingpong, verbsPing } from "./verbs.js";

const ids = (n: number): string[] => Array.from({ length: n }, (_, i) => `n${i}`);
const result = (from: string, to: string, state: PairResult["state"], failed: PairResult["failed"] = null): PairResult => ({ from, to, kind: "verbs", state, latencyUs: null, bandwidthGBps: null, failed, text: null, evidence: [], error: null, endedAtMs: 1 });
const GID = "0000:0000:0000:0000:0000:ffff:0a4d:000";
const node = (i: number): NodeView => ({ id: `n${i}`, name: `node${i}`, phase: "up", dataAddress: `10.77.0.${i}`, facts: { nics: [{ name: "eth1", addresses: [`10.77.0.${i}/24`], rdmaDevice: "rxe0" }], rdma: [{ name: "rxe0", netdev: "eth1", port: 1, linkLayer: "ethernet", gids: [{ index: 0, gid: "fe80::1", type: "roce_v2" }, { index: 1, gid: `${GID}${i}`, type: "roce_v2" }] }] } } as unknown as NodeView);

describe("which pairs", () => {
  it("all, a ring, or a sample with every node in it", () => {
    expect(choosePairs(ids(3), "all", 9)).toHaveLength(6);
    expect(choosePairs(ids(3), "ring", 9)).toEqual([["n0", "n1"], ["n1", "n2"], ["n2", "n0"]]);
    expect(choosePairs(ids(2), "ring", 9)).toEqual([["n0", "n1"]]);
    const sample = choosePairs(ids(41), "random", 30);
    expect(sample).toHaveLength(30);
    expect(new Set(sample.flat()).size).toBe(41);
    expect(sample.every(([a, b]) => a !== b)).toBe(true);
    expect(choosePairs(ids(3), "random", 100)).toHaveLength(6);
    expect(() => choosePairs(ids(100), "all", 9)).toThrow(/H607/);
  });
  it("the node in most failures is the suspect; a half that failed by itself alone is blamed", () => {
    const matrix = ids(4).flatMap((a) => ids(4).filter((b) => b !== a).map((b) => result(a, b, a === "n2" || b === "n2" ? "failed" : "ok", a === "n2" || b === "n2" ? "between" : null)));
    expect(suspectsOf(matrix)[0]).toEqual({ nodeId: "n2", failed: 6, of: 6 });
    expect(suspectsOf(matrix)).toHaveLength(1);
    expect(suspectsOf([result("n0", "n1", "failed", "to")])).toEqual([{ nodeId: "n1", failed: 1, of: 1 }]);
  });
});

describe("ibv_rc_pingpong", () => {
  const OUT = "  local address:  LID 0x0000, QPN 0x000011, PSN 0x1, GID ::ffff:10.77.0.1\n  remote address: LID 0x0000, QPN 0x000012, PSN 0x2, GID ::ffff:10.77.0.2\n1638400 bytes in 0.40 seconds = 32.77 Mbit/sec\n200 iters in 0.40 seconds = 2000.00 usec/iter\n";
  it("reads its figures, and which half failed", () => {
    expect(readPingpong(OUT)).toEqual({ latencyUs: 1000, bandwidthGBps: 32.77 / 8000 });
    expect(readPingpong("nothing")).toBeNull();
    const ready = { ready: true, text: "", status: null };
    expect(failingHalf({ ready: false, text: "No IB devices found", status: 1 }, { text: "", status: null })).toBe("to");
    expect(failingHalf(ready, { text: "IB device rxe0 not found\n", status: 1 })).toBe("from");
    expect(failingHalf(ready, { text: "Couldn't connect to 10.77.0.2:2000\n", status: 1 })).toBe("between");
    expect(failingHalf(ready, { text: "  local address: x\n", status: 124 })).toBe("between");
  });
  const directory = (serve: (onLine: (line: string) => void) => number, call: () => { status: number; stdout: string; stderr: string }): { nodes: NodeDirectory; commands: string[] } => {
    const commands: string[] = [];
    const over = (options: ExecOptions): Promise<never> => new Promise((_r, reject) => options.signal!.addEventListener("abort", () => reject(ConsoleError.of("H104"))));
    const session = {
      execLines: async (command: string, onLine: (s: string, line: string) => void, options: ExecOptions) => { commands.push(command); const status = serve((l) => onLine("stdout", l)); return status === 0 ? over(options) : { status }; },
      exec: async (command: string) => { commands.push(command); return call(); },
    };
    return { commands, nodes: { session: async () => session, get: (id: string) => [node(1), node(2)].find((n) => n.id === id) } as unknown as NodeDirectory };
  };
  it("starts the far end first, with the GID of the data address, and gives the figures", async () => {
    const d = directory((say) => { say("@@listens"); return 0; }, () => ({ status: 0, stdout: OUT, stderr: "" }));
    expect(await verbsPing(d.nodes, node(1), node(2), new AbortController().signal)).toMatchObject({ state: "ok", latencyUs: 1000, failed: null });
    expect(d.commands[0]).toMatch(/timeout -k 2 30 ibv_rc_pingpong -d rxe0 -i 1 -g 1 -p \d+ -n 200 -s 4096 &/);
    expect(d.commands[1]).toMatch(/ 10\.77\.0\.2$/);
  });
  it("does not wait for words that the far end keeps until it ends, and ends it with the test", async () => {
    const folder = mkdtempSync(join(tmpdir(), "pingpong-"));
    try {
      // As the program does into a pipe: all its output comes at its end; the far end serves one client.
      writeFileSync(join(folder, "ibv_rc_pingpong"), `#!${process.execPath}
const net = require("node:net"), fs = require("node:fs"), args = process.argv.slice(2);
const port = Number(args[args.indexOf("-p") + 1]);
const said = ${JSON.stringify(OUT)};
const end = (text) => { process.stdout.write(text); process.exit(0); };
if (args.at(-1) === "127.0.0.1") net.connect(port, "127.0.0.1", () => end(said)).on("error", (e) => { console.error("Couldn't connect to 127.0.0.1:" + port); process.exit(1); });
else { fs.writeFileSync(${JSON.stringify(join(folder, "pid"))}, String(process.pid)); setTimeout(() => net.createServer(() => {}).listen(port), 300); }
`, { mode: 0o755 });
      const run = (command: string, options: ExecOptions, onLine: (stream: "stdout" | "stderr", line: string) => void): Promise<{ status: number | null; stdout: string; stderr: string }> => new Promise((done) => {
        const closed = new AbortController();
        const child = spawn("/bin/sh", ["-c", command], { env: { ...process.env, PATH: `${folder}:${process.env.PATH}` }, stdio: ["ignore", "pipe", "pipe"], detached: true });
        // Like a server that ends the command's process group.
        options.signal!.addEventListener("abort", () => process.kill(-child.pid!, "SIGTERM"), { once: true, signal: closed.signal });
        const out = { stdout: "", stderr: "" };
        for (const stream of ["stdout", "stderr"] as const) createInterface(child[stream]).on("line", (line) => { out[stream] += `${line}\n`; onLine(stream, line); });
        child.on("close", (status) => { closed.abort(); done({ status, ...out }); });
      });
      const session = { execLines: (command: string, onLine: (s: "stdout" | "stderr", line: string) => void, options: ExecOptions) => run(command, options, onLine), exec: (command: string, options: ExecOptions) => run(command, options, () => undefined) };
      const nodes = { session: async () => session } as unknown as NodeDirectory;
      const here = { ...node(2), dataAddress: "127.0.0.1" };
      expect(await verbsPing(nodes, node(1), here, new AbortController().signal)).toMatchObject({ state: "ok", latencyUs: 1000, failed: null });
      const far = Number(readFileSync(join(folder, "pid"), "utf8"));
      await vi.waitFor(() => expect(() => process.kill(far, 0)).toThrow(/ESRCH/), { timeout: 5000 });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
  it("a far end that cannot open its device, a program that is missing, no device at all", async () => {
    const dead = directory((say) => { say("IB device rxe0 not found"); return 1; }, () => { throw new Error("not called"); });
    expect(await verbsPing(dead.nodes, node(1), node(2), new AbortController().signal)).toMatchObject({ state: "failed", failed: "to", evidence: [{ line: "IB device rxe0 not found" }] });
    const absent = directory((say) => { say("timeout: failed to run command 'ibv_rc_pingpong': No such file or directory"); return 127; }, () => { throw new Error("not called"); });
    expect((await verbsPing(absent.nodes, node(1), node(2), new AbortController().signal)).text!.en).toContain("ibverbs-utils");
    const bare = { ...node(2), facts: { ...node(2).facts!, rdma: [] } };
    expect(await verbsPing(dead.nodes, node(1), bare, new AbortController().signal)).toMatchObject({ failed: "to", text: { en: expect.stringContaining("no RDMA device") } });
  });
});

describe("a pair test", () => {
  const nodes = { get: (id: string) => (/^n\d$/.test(id) ? { ...node(Number(id[1])), id } : undefined) } as unknown as NodeDirectory;
  const row = (bytes: number, timeUs: number, algbwGBps: number) => ({ bytes, outOfPlace: { timeUs, algbwGBps } });
  it("keeps each node in one pair at a time, gives figures, names the half that failed", async () => {
    const now = new Set<string>();
    let clash = false;
    const probe = async (spec: { nodeIds: string[] }): Promise<RunView> => {
      clash ||= spec.nodeIds.some((n) => now.has(n));
      for (const n of spec.nodeIds) now.add(n);
      await new Promise((r) => setTimeout(r, 3));
      for (const n of spec.nodeIds) now.delete(n);
      const bad = spec.nodeIds.includes("n3");
      return { state: bad ? "failed" : "succeeded", rows: bad ? [] : [row(8, 40, 0.1), row(1 << 20, 900, 2)], error: bad ? { code: "R302", message: "no device", next: "" } : null, ranks: spec.nodeIds.map((nodeId, rank) => ({ rank, nodeId, state: "ended", error: bad && nodeId === "n3" ? { code: "R302", message: "no device", next: "" } : null })) } as unknown as RunView;
    };
    const pairs = new Pairs({ nodes, probe: probe as never });
    const { id } = pairs.start({ nodeIds: ["n0", "n1", "n2", "n3"], kinds: ["tcp"], sampling: "all", maxPairs: 99 });
    await vi.waitFor(() => expect(pairs.list()[0]!.state).toBe("done"));
    const view = PairTestView.parse(pairs.list().find((v) => v.id === id));
    expect(clash).toBe(false);
    expect(view.results).toHaveLength(12);
    expect(view.results.find((r) => r.from === "n0" && r.to === "n1")).toMatchObject({ state: "ok", latencyUs: 40, bandwidthGBps: 2 });
    expect(view.results.find((r) => r.from === "n3" && r.to === "n1")).toMatchObject({ state: "failed", failed: "from" });
    expect(view.suspects).toEqual([{ nodeId: "n3", failed: 6, of: 6 }]);
  });
  it("cancelled: what has not run is told so", async () => {
    const pairs = new Pairs({ nodes, probe: (_s, signal) => new Promise((_r, reject) => signal.addEventListener("abort", () => reject(ConsoleError.of("H104")))) });
    const { id } = pairs.start({ nodeIds: ["n0", "n1", "n2"], kinds: ["tcp"], sampling: "ring", maxPairs: 99 });
    pairs.cancel(id);
    await vi.waitFor(() => expect(pairs.list()[0]).toMatchObject({ state: "cancelled" }));
    expect(pairs.list()[0]!.results.every((r) => r.state === "cancelled")).toBe(true);
    expect(() => pairs.start({ nodeIds: ["n0", "x"], kinds: ["tcp"], sampling: "ring", maxPairs: 9 })).toThrow(/H301/);
  });
});
