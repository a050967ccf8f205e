import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ConsoleError, METHODS, STREAMS, type Method, type Stream } from "./contract/index.js";
import { hostOf, type Handlers, type Topics } from "./gate.js";
import { createHost, type Host } from "./host.js";
import { LatestTopic } from "./streams.js";

const live = new AbortController().signal;
const codeOf = (promise: Promise<unknown>): Promise<string> => promise.then(() => "none", (error: unknown) => (error instanceof ConsoleError ? error.view.code : String(error)));

describe("the gate", () => {
  const topics = Object.fromEntries(Object.keys(STREAMS).map((name) => [name, new LatestTopic(() => ({}))])) as unknown as Topics;
  const gate = (handlers: Partial<Record<Method, () => unknown>>, errors: unknown[] = []): Host => hostOf(handlers as Handlers, topics, async () => {}, (error) => errors.push(error));

  it.each(["", "nodes.lists", "__proto__", "constructor", "toString", "hasOwnProperty", "x".repeat(10_000)])("there is no method or stream %j", async (name) => {
    const host = gate({});
    expect(await codeOf(host.wire.dispatch(name, {}, live))).toBe("H102");
    expect(() => host.wire.subscribe(name, () => {})).toThrow(/H102/);
  });
  it("cuts results to the contract: nothing that it does not name leaves", async () => {
    const host = gate({ "nodes.bringUp": () => ({ operationId: "op-1", secret: "hunter2" }) });
    expect(await host.request("nodes.bringUp", { nodeIds: ["a"] })).toEqual({ operationId: "op-1" });
  });
  it("a result that breaks the contract is our fault, and said so", async () => {
    expect(await codeOf(gate({ "nodes.bringUp": () => ({ operationId: "NOT AN ID" }) }).request("nodes.bringUp", { nodeIds: ["a"] }))).toBe("H105");
  });
  it("logs what has no code, and only that", async () => {
    const errors: unknown[] = [];
    const bug = new TypeError("boom");
    const host = gate({ "runs.list": () => { throw bug; }, "runs.get": () => { throw ConsoleError.of("H505", { runId: "r" }); } }, errors);
    await expect(host.request("runs.list", {})).rejects.toBe(bug);
    expect(await codeOf(host.request("runs.get", { runId: "r" }))).toBe("H505");
    expect(errors).toEqual([bug]);
  });
  it("a request that was cancelled before it began does nothing", async () => {
    let called = 0;
    expect(await codeOf(gate({ "runs.list": () => { called++; return []; } }).request("runs.list", {}, AbortSignal.abort()))).toBe("H104");
    expect(called).toBe(0);
  });
});

describe("createHost", () => {
  let folder: string;
  let host: Host;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), "stepccl-host-"));
    host = await createHost({ dataDir: join(folder, "data"), bundleDir: join(folder, "bundle"), shell: "cli", fleet: { sshConfig: join(folder, "no-config") } });
  });
  afterEach(async () => {
    await host.close();
    rmSync(folder, { recursive: true });
  });

  it("greets with what it is and can", async () => {
    expect(await host.request("hello", {})).toMatchObject({ shell: "cli", version: expect.stringMatching(/^\d+\.\d+\.\d+/), bundle: null, capabilities: { nativeFileDialog: false, keepsSecrets: false } });
  });
  it.each(Object.keys(METHODS) as Method[])("%s refuses parameters that are not its own, and does nothing", async (method) => {
    for (const params of [undefined, null, 7, "x", [], { bogus: true }, { nodeId: "../../etc" }, { nodeIds: [] }, { nodeIds: Array(20_000).fill("a") }, { __proto__: null, runId: "" }]) {
      expect(await codeOf(host.wire.dispatch(method, params, live)), JSON.stringify(params)?.slice(0, 40)).toBe("H101");
    }
    expect(await host.request("nodes.list", {})).toEqual([]);
    expect(await host.request("operations.list", {})).toEqual([]);
    expect(await host.request("runs.list", {})).toEqual([]);
  });
  it("every stream begins with a snapshot that passes the contract", async () => {
    for (const stream of Object.keys(STREAMS) as Stream[]) {
      const event = await new Promise((done) => {
        const leave = host.wire.subscribe(stream, (first) => {
          queueMicrotask(() => leave());
          done(first);
        });
      });
      expect(STREAMS[stream].event.safeParse(event).error, stream).toBeUndefined();
    }
  });
  it("a password goes in and comes out nowhere: no result, no stream, no file", async () => {
    const events: unknown[] = [];
    const leave = host.subscribe("nodes", (event) => events.push(event));
    const node = await host.request("nodes.add", { host: "192.0.2.1", user: "ops", auth: { kind: "password", password: "hunter2-correct-horse" } });
    await new Promise((done) => setTimeout(done, 150));
    leave();
    expect(node.authKind).toBe("password");
    expect(JSON.stringify([node, events, await host.request("nodes.list", {})])).not.toContain("hunter2");
    for (const entry of readdirSync(join(folder, "data"), { recursive: true, encoding: "utf8" })) {
      const path = join(folder, "data", entry);
      if (statSync(path).isFile()) expect(readFileSync(path).includes("hunter2"), entry).toBe(false);
    }
    expect(statSync(join(folder, "data")).mode & 0o077).toBe(0);
  });
  it("errors that need a node or a run name it", async () => {
    expect(await codeOf(host.request("nodes.bringUp", { nodeIds: ["nobody"] }))).toMatch(/^H(301|313)$/);
    expect(await codeOf(host.request("diagnose.start", { nodeIds: ["nobody"] }))).toBe("H301");
    expect(await codeOf(host.request("runs.get", { runId: "none" }))).toBe("H505");
    expect(await codeOf(host.request("runs.start", { collective: "all_reduce", nodeIds: ["nobody", "else"] }))).toBe("H301");
    expect(await codeOf(host.request("runs.start", { collective: "all_reduce", nodeIds: ["nobody"] }))).toBe("H501");
  });
});
