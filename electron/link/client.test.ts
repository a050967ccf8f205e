import { describe, expect, it, vi } from "vitest";
import type { Duplex } from "node:stream";
import { ConsoleError } from "../contract/index.js";
import { FAKE_HELLO, FakeDaemon, NO_ANSWER, RpcFailure, encodeFrame } from "./testing.js";

// What the client does with a frame is tested here; the decoder has its own tests in native/.
vi.mock("./addon.js", () => ({
  loadAddon: async () => ({
    decodeTelemetryFrame: (bytes: Uint8Array) => {
      if (bytes[8] !== 1) throw new Error("version 9");
      return { byteLength: bytes.length };
    },
  }),
}));
const { connectAgent } = await import("./client.js");

const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  try {
    await promise;
  } catch (error) {
    if (error instanceof ConsoleError) return error.view.code;
    throw error;
  }
  throw new Error("it did not fail");
};
const closed = (client: { onClose(l: (reason: ConsoleError) => void): () => void }): Promise<ConsoleError> => new Promise((done) => void client.onClose(done));

describe("connectAgent", () => {
  it("says hello with the protocol's version and gives what the daemon said of itself", async () => {
    const daemon = new FakeDaemon();
    const client = await connectAgent(daemon.connect(), { host: "n1" });
    expect(daemon.callsOf("hello")).toEqual([{ protocol: 1, client: "StepCCL Console" }]);
    expect(client.hello.version).toBe("0.1.0");
    client.close();
  });

  it.each([
    ["answers with another protocol", (d: FakeDaemon) => { d.handlers.hello = () => ({ ...FAKE_HELLO, protocol: 2 }); }, "H403"],
    ["refuses our protocol", (d: FakeDaemon) => { d.handlers.hello = () => { throw new RpcFailure("A104", "protocol 2 here"); }; }, "H403"],
    ["never answers", (d: FakeDaemon) => { d.handlers.hello = () => NO_ANSWER; }, "H401"],
    ["is not the daemon", (d: FakeDaemon) => { d.handlers.hello = (_p, c) => { c.raw("SSH-2.0-OpenSSH\r\n"); return NO_ANSWER; }; }, "H404"],
    ["answers with a wrong shape", (d: FakeDaemon) => { d.handlers.hello = () => ({ protocol: 1 }); }, "H404"],
    ["hangs up", (d: FakeDaemon) => { d.handlers.hello = () => { d.kill(); return NO_ANSWER; }; }, "H401"],
  ])("a peer that %s", async (_name, arrange, code) => {
    const daemon = new FakeDaemon();
    arrange(daemon);
    const stream: Duplex = daemon.connect();
    expect(await codeOf(connectAgent(stream, { host: "n1", helloTimeoutMs: 100 }))).toBe(code);
    expect(stream.destroyed).toBe(true);
  });
});

describe("calls", () => {
  it("answers come to the right call, out of order", async () => {
    const daemon = new FakeDaemon();
    let first: () => void = () => {};
    daemon.handlers["log.tail"] = async (params: { lines: number }) => {
      if (params.lines === 1) await new Promise<void>((done) => { first = done; });
      else first();
      return { lines: [String(params.lines)] };
    };
    const client = await connectAgent(daemon.connect());
    const [a, b] = await Promise.all([client.call("log.tail", { lines: 1 }), client.call("log.tail", { lines: 2 })]);
    expect([a.lines, b.lines]).toEqual([["1"], ["2"]]);
    client.close();
  });

  it("keeps the daemon's own code, sentence and next step", async () => {
    const daemon = new FakeDaemon();
    daemon.handlers["run.stop"] = () => { throw new RpcFailure("A201", "no run r1", "Reload the list.", { run_id: "r1", nested: { x: 1 } }); };
    const client = await connectAgent(daemon.connect(), { host: "n1" });
    await expect(client.call("run.stop", { run_id: "r1" })).rejects.toMatchObject({
      view: { code: "A201", message: "no run r1", next: "Reload the list.", params: { host: "n1", method: "run.stop", run_id: "r1" } },
    });
    client.close();
  });

  it("parameters that break the schema are never sent", async () => {
    const daemon = new FakeDaemon();
    const client = await connectAgent(daemon.connect());
    expect(await codeOf(client.call("log.tail", { lines: 0 }))).toBe("H101");
    expect(await codeOf(client.call("run.stop", { run_id: "../x" }))).toBe("H101");
    expect(daemon.calls.map((c) => c.method)).toEqual(["hello"]);
    client.close();
  });

  it("a wrong answer fails its call and leaves the connection", async () => {
    const daemon = new FakeDaemon();
    daemon.handlers["log.tail"] = () => ({ lines: [1, 2] });
    const client = await connectAgent(daemon.connect());
    expect(await codeOf(client.call("log.tail", { lines: 5 }))).toBe("H404");
    expect(client.closed).toBe(false);
    client.close();
  });

  it("time passes, the caller gives up, and a late answer harms nothing", async () => {
    const daemon = new FakeDaemon();
    const late: (() => void)[] = [];
    daemon.handlers["log.tail"] = async () => {
      await new Promise<void>((done) => late.push(done));
      return { lines: [] };
    };
    const client = await connectAgent(daemon.connect());
    expect(await codeOf(client.call("log.tail", { lines: 1 }, { timeoutMs: 30 }))).toBe("H209");
    const abort = new AbortController();
    const aborted = codeOf(client.call("log.tail", { lines: 1 }, { signal: abort.signal }));
    await vi.waitFor(() => expect(late).toHaveLength(2));
    abort.abort();
    expect(await aborted).toBe("H104");
    late.forEach((done) => done());
    daemon.handlers["log.tail"] = () => ({ lines: ["still here"] });
    expect((await client.call("log.tail", { lines: 1 })).lines).toEqual(["still here"]);
    client.close();
  });

  it("a lost connection fails all that waits and all that comes, with the same reason", async () => {
    const daemon = new FakeDaemon();
    daemon.handlers["log.tail"] = () => NO_ANSWER;
    const client = await connectAgent(daemon.connect(), { host: "n1" });
    const reason = closed(client);
    const waiting = codeOf(client.call("log.tail", { lines: 1 }));
    await vi.waitFor(() => expect(daemon.callsOf("log.tail")).toHaveLength(1));
    daemon.kill();
    expect(await waiting).toBe("H401");
    expect((await reason).view.params).toMatchObject({ host: "n1" });
    expect(await codeOf(client.call("log.tail", { lines: 1 }))).toBe("H401");
  });
});

describe("what the daemon sends by itself", () => {
  it("run events and frames reach their listeners until they leave", async () => {
    const daemon = new FakeDaemon();
    const client = await connectAgent(daemon.connect());
    const seen: unknown[] = [];
    const leave = client.onRunEvent((event) => seen.push(event.event));
    client.onFrame((frame) => seen.push(frame));
    const connection = daemon.connections[0]!;
    connection.runEvent({ run_id: "r1", seq: 1, rank: 0, event: { event: "row", new_member: 1 } });
    connection.raw(encodeFrame({}));
    await vi.waitFor(() => expect(seen).toEqual([{ event: "row", new_member: 1 }, { byteLength: 80 }]));
    leave();
    connection.runEvent({ run_id: "r1", seq: 2, rank: 0, event: { event: "row" } });
    connection.send({ jsonrpc: "2.0", method: "something.new", params: {} });
    connection.raw(encodeFrame({}));
    await vi.waitFor(() => expect(seen).toHaveLength(3));
    expect(client.closed).toBe(false);
    client.close();
  });

  it.each([
    ["junk", "hello\n"],
    ["broken JSON", '{"id":\n'],
    ["an answer to no request", '{"jsonrpc":"2.0","id":999,"result":{}}\n'],
    ["an answer without id", '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}\n'],
    ["a broken run event", '{"jsonrpc":"2.0","method":"run.event","params":{"run_id":"../../etc"}}\n'],
    ["a line without end", `{${"x".repeat((1 << 20) + 1)}`],
    ["a frame of another version", Buffer.from(encodeFrame({})).fill(9, 8, 9)],
  ])("%s ends the connection with H404", async (_name, bytes) => {
    const daemon = new FakeDaemon();
    const client = await connectAgent(daemon.connect(), { host: "n1" });
    const reason = closed(client);
    daemon.connections[0]!.raw(bytes);
    expect((await reason).view.code).toBe("H404");
    expect(client.closed).toBe(true);
  });

  it("a peer that does not read is given up before it fills our memory", async () => {
    const daemon = new FakeDaemon();
    const client = await connectAgent(daemon.connect(), { host: "n1" });
    const reason = closed(client);
    daemon.connections[0]!.stream.pause();
    const member = { node: 1, name: "x".repeat(255), addresses: [] };
    const params = { cluster_id: "c", epoch: 1, self: 1, members: Array.from({ length: 2000 }, () => member) };
    const calls = Array.from({ length: 20 }, () => codeOf(client.call("cluster.set", params)));
    expect((await reason).view).toMatchObject({ code: "H401" });
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["H401"]));
  });
});
