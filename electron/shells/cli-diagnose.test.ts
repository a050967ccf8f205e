import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createHost } from "../host.js";
import type { Host } from "../gate.js";
import { EXIT, runCli } from "./cli.js";

/** The commands over a real host without nodes: what concerns files, and what is refused. */
let dir: string;
beforeEach(() => { dir = mkdtempSync(join(tmpdir(), "cli-diag-")); });
afterEach(() => rmSync(dir, { recursive: true, force: true }));

async function cli(argv: string[], change: (host: Host) => Host = (host) => host): Promise<{ status: number; out: string; err: string }> {
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const status = await runCli(argv, {
    io: streams, version: "0.1.0", signal: new AbortController().signal, console: async () => 0,
    openHost: async () => change(await createHost({ dataDir: join(dir, "data"), bundleDir: join(dir, "bundle"), shell: "cli", fleet: { sshConfig: join(dir, "none") } })),
  });
  return { status, out: String(streams.stdout.read() ?? ""), err: String(streams.stderr.read() ?? "") };
}
const file = (name: string, text: string): string => { const path = join(dir, name); writeFileSync(path, text); return path; };

describe("files", () => {
  it("diagnose --file: the cause first, what follows from it under it, hostile text cleaned", async () => {
    const path = file("dmesg", "[ 10.0] pcieport 0000:80:03.1: DPC: containment event, status:0x1f01 source:0x0000\n[ 10.2] NVRM: Xid (PCI:0000:81:00): 79, GPU\u001b[31m has fallen off the bus.\n");
    const { status, out } = await cli(["diagnose", "--file", path]);
    expect(status).toBe(EXIT.ok);
    expect(out).toMatch(/^2 lines: cause found\n {2}\[\w+\] pcie\.dpc/);
    expect(out).toMatch(/what follows from it:\n {6}\[\w+\] gpu\.xid_79/);
    expect(out).not.toContain("\u001b");
    expect(out).not.toContain("apply it");
    const asJson = JSON.parse((await cli(["--json", "diagnose", "--file", path])).out) as { findings: { class: string }[] };
    expect(asJson.findings[0]!.class).toBe("pcie.dpc");
  });
  it("hangs --file names the rank, and its status says that there is one", async () => {
    const rank = (r: number, ended: boolean): string => JSON.stringify({ format: "stepccl-flight-recorder", version: 1, job: "j", communicator: "00000000000000ab", rank: r, world_size: 2, hostname: `n${r}`, pid: 1, alive: true, taken_at_unix_ns: "1764520060000000000", operations: [{ sequence: ended ? "1" : "2", collective: "all_reduce", datatype: "float32", redop: "sum", count: "8", root: 0, state: ended ? "completed" : "started", queued_at_unix_ns: "1764520000000000000", started_at_unix_ns: "1764520000000000000", ended_at_unix_ns: null, error_code: null, waiting_for: [] }] });
    const { status, out } = await cli(["hangs", "--file", file("0.json", rank(0, false)), "--file", file("1.json", rank(1, true))]);
    expect(status).toBe(EXIT.failed);
    expect(out).toContain("[hang] rank 1 has not called operation 2");
  });
  it("support writes an archive once, and never over another file", async () => {
    const path = join(dir, "b.tar.gz");
    expect((await cli(["support", "-o", path])).out).toContain("files");
    expect(readFileSync(path).subarray(0, 2)).toEqual(Buffer.from([0x1f, 0x8b]));
    expect((await cli(["support", "-o", path])).err).toContain("exists already");
  });
  it("a file that is not there is a wrong command line", async () => {
    expect(await cli(["diagnose", "--file", join(dir, "nothing")])).toMatchObject({ status: EXIT.usage, err: expect.stringContaining("There is no file") });
  });
});

describe("mend", () => {
  const node = { id: "n1", name: "node1", host: "h", port: 22, user: "u", authKind: "agent", keyPath: null, jump: [], dataAddress: null, phase: "up", hostKey: { status: "trusted", algorithm: null, offered: null, trusted: null, source: null }, connection: { state: "connected", sinceMs: 0 }, agent: { state: "running", version: null, rssKib: null }, member: 0, facts: null, error: null, lastSeenMs: null, addedAtMs: 1 };
  const offer = (risk: string) => ({ offerId: "o", nodeId: "n1", findingId: "f", class: "a.b", commands: [{ mendId: "m", command: "rm -- /var/tmp/core", explanation: { en: "Deletes it.", zh: "x" }, risk }], risk, secondConsent: risk === "destructive" ? "node1" : null, retest: [], expiresAtMs: 9e15 });
  const over = (risk: string, applied: unknown[]) => (host: Host): Host => ({
    ...host, close: () => host.close(),
    request: (async (method: string, params: unknown) => {
      if (method === "nodes.list") return [node];
      if (method === "mends.offer") return offer(risk);
      if (method === "mends.apply") { applied.push(params); return { id: "r" }; }
      return host.request(method as never, params as never);
    }) as Host["request"],
    subscribe: ((_s: string, listener: (e: unknown) => void) => {
      listener({ kind: "snapshot", items: [{ id: "r", endedAtMs: 1, state: "mended", class: "a.b", steps: [{ state: "done", command: "rm -- /var/tmp/core", output: "gone\n" }], after: null, error: null }] });
      return () => {};
    }) as Host["subscribe"],
  });
  it("runs nothing without consent, and shows what it would run", async () => {
    const applied: unknown[] = [];
    const { status, err } = await cli(["mend", "node1", "f", "m"], over("none", applied));
    expect(status).toBe(EXIT.needsConfirmation);
    expect(err).toContain("$ rm -- /var/tmp/core");
    expect(applied).toEqual([]);
  });
  it("what destroys something takes the name too", async () => {
    const applied: unknown[] = [];
    expect((await cli(["mend", "node1", "f", "m", "--yes"], over("destructive", applied))).status).toBe(EXIT.needsConfirmation);
    expect(applied).toEqual([]);
    const done = await cli(["mend", "node1", "f", "m", "--yes", "--confirm", "node1"], over("destructive", applied));
    expect(done).toMatchObject({ status: EXIT.ok, out: expect.stringContaining("mended: a.b is gone") });
    expect(applied).toEqual([{ offerId: "o", commands: ["rm -- /var/tmp/core"], secondConsent: "node1" }]);
  });
});

describe("pairs and guides", () => {
  const node = { id: "n1", name: "node1", host: "h", port: 22, phase: "unknown" };
  it.each([["pairs", ["pairs", "--kind", "verbs", "--kind", "tcp"], "pairs.start", { nodeIds: ["n1"], kinds: ["verbs", "tcp"], sampling: "all" }], ["guide", ["guide", "slow"], "guides.start", { guideId: "slow", nodeIds: ["n1"] }]])("%s dials first, since the facts of a fresh process are not known", async (_name, argv, method, params) => {
    const asked: [string, unknown][] = [];
    await cli(argv, (host) => ({
      ...host, close: () => host.close(),
      request: (async (name: string, given: unknown) => { asked.push([name, given]); return name === "nodes.list" ? [node] : name === "nodes.connect" ? node : { id: "r" }; }) as Host["request"],
      subscribe: ((_s: string, listener: (e: unknown) => void) => { listener({ kind: "snapshot", items: [{ id: "r", endedAtMs: 1, state: "done", results: [], suspects: [], steps: [], paths: [], conclusion: null, error: null }] }); return () => {}; }) as Host["subscribe"],
    }));
    expect(asked.slice(-2)).toEqual([["nodes.connect", { nodeId: "n1" }], [method, params]]);
  });
  it("a kind of ping that there is not is a wrong command line", async () => {
    expect(await cli(["pairs", "--kind", "icmp"])).toMatchObject({ status: EXIT.usage, err: expect.stringContaining("one of verbs, rdma, tcp") });
  });
});
