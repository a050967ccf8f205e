import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Carrier, ClientMessage, HostMessage } from "../../electron/contract/index.js";
import { Client } from "./client.js";
import { RequestError } from "./page-error.js";

class Wire implements Carrier {
  sent: ClientMessage[] = [];
  #message: (message: HostMessage) => void = () => undefined;
  #state: (state: "connecting" | "open" | "closed") => void = () => undefined;
  send(message: ClientMessage): void { this.sent.push(message); }
  onMessage(listener: (message: HostMessage) => void): () => void { this.#message = listener; return () => undefined; }
  onState(listener: (state: "connecting" | "open" | "closed") => void): () => void { this.#state = listener; return () => undefined; }
  close(): void {}
  say(message: unknown): void { this.#message(message as HostMessage); }
  be(state: "connecting" | "open" | "closed"): void { this.#state(state); }
  last(type: ClientMessage["type"]): ClientMessage & { id: number } { return this.sent.filter((each) => each.type === type).at(-1)!; }
}
const codeOf = async (promise: Promise<unknown>): Promise<string> => promise.then(() => "resolved", (thrown: unknown) => (thrown instanceof RequestError ? thrown.view.code : String(thrown)));

describe("Client", () => {
  let wire: Wire;
  let client: Client;
  beforeEach(() => { wire = new Wire(); client = new Client(wire); wire.be("open"); });
  afterEach(() => vi.useRealTimers());

  it("answers a request by id, whatever the order", async () => {
    const [a, b] = [client.request("nodes.list", {}), client.request("runs.list", {})];
    const [first, second] = wire.sent as Array<{ id: number }>;
    wire.say({ type: "result", id: second!.id, result: ["b"] });
    wire.say({ type: "result", id: first!.id, result: ["a"] });
    expect([await a, await b]).toEqual([["a"], ["b"]]);
  });

  it("rejects with the host's error", async () => {
    const request = client.request("nodes.connect", { nodeId: "n1" });
    wire.say({ type: "error", id: wire.last("request").id, error: { code: "H301", message: "There is no node n1.", next: "Reload." } });
    expect(await codeOf(request)).toBe("H301");
  });

  it("sends cancel once and rejects with H104 when the signal aborts; a late answer is nothing", async () => {
    const controller = new AbortController();
    const request = client.request("topology.probe", {}, { signal: controller.signal });
    const { id } = wire.last("request");
    controller.abort();
    controller.abort();
    expect(await codeOf(request)).toBe("H104");
    expect(wire.sent.filter((message) => message.type === "cancel")).toEqual([{ type: "cancel", id }]);
    expect(() => wire.say({ type: "result", id, result: {} })).not.toThrow();
  });

  it("never sends a request whose signal was aborted before", async () => {
    expect(await codeOf(client.request("nodes.list", {}, { signal: AbortSignal.abort() }))).toBe("H104");
    expect(wire.sent).toEqual([]);
  });

  it("rejects what was sent when the connection goes, and keeps what was not", async () => {
    const sent = client.request("nodes.list", {});
    wire.be("closed");
    expect(await codeOf(sent)).toBe("P101");
    const waiting = client.request("runs.list", {});
    expect(wire.sent).toHaveLength(1);
    wire.be("connecting");
    wire.be("open");
    wire.say({ type: "result", id: wire.last("request").id, result: [] });
    expect(await waiting).toEqual([]);
  });

  it("gives a request up after its time and tells the host", async () => {
    vi.useFakeTimers();
    const request = codeOf(client.request("nodes.list", {}, { timeoutMs: 5000 }));
    await vi.advanceTimersByTimeAsync(5000);
    expect(await request).toBe("P102");
    expect(wire.sent.at(-1)?.type).toBe("cancel");
  });

  it("subscribes again under a new id after a reconnection and counts from 1", () => {
    const events: unknown[] = [];
    client.subscribe("topology", (event) => events.push(event.epoch));
    const before = wire.last("subscribe").id;
    wire.say({ type: "event", id: before, seq: 1, data: { epoch: 1, links: [] } });
    wire.be("closed");
    wire.be("open");
    const after = wire.last("subscribe").id;
    expect(after).not.toBe(before);
    wire.say({ type: "event", id: before, seq: 2, data: { epoch: 99, links: [] } });
    wire.say({ type: "event", id: after, seq: 1, data: { epoch: 2, links: [] } });
    expect(events).toEqual([1, 2]);
  });

  it("asks for a new snapshot when a sequence number is missing, and drops the event that came after the gap", () => {
    const events: number[] = [];
    client.subscribe("topology", (event) => events.push(event.epoch));
    const before = wire.last("subscribe").id;
    wire.say({ type: "event", id: before, seq: 1, data: { epoch: 1, links: [] } });
    wire.say({ type: "event", id: before, seq: 3, data: { epoch: 3, links: [] } });
    expect(wire.sent.slice(-2)).toEqual([{ type: "cancel", id: before }, { type: "subscribe", id: before + 1, stream: "topology" }]);
    wire.say({ type: "event", id: before + 1, seq: 1, data: { epoch: 4, links: [] } });
    expect(events).toEqual([1, 4]);
  });

  it("ends a subscription with cancel", () => {
    const stop = client.subscribe("nodes", () => undefined);
    const { id } = wire.last("subscribe");
    stop();
    stop();
    expect(wire.sent.filter((message) => message.type === "cancel")).toEqual([{ type: "cancel", id }]);
  });

  it("survives messages that match no contract and a listener that throws", () => {
    const quiet = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const failures: string[] = [];
    client.subscribe("topology", () => { throw new Error("boom"); }, (error) => failures.push(error.code));
    for (const message of [null, {}, { type: "event" }, { type: "result", id: "x" }, "text"]) wire.say(message);
    wire.say({ type: "event", id: wire.last("subscribe").id, seq: 1, data: { epoch: 1, links: [] } });
    expect(failures).toEqual(["P103"]);
    expect(quiet).toHaveBeenCalled();
    quiet.mockRestore();
  });

  it("reports data that break the contract where it validates", async () => {
    const strict = new Client(wire, { validate: true });
    wire.be("open");
    const request = strict.request("nodes.list", {});
    wire.say({ type: "result", id: wire.last("request").id, result: [{ id: 5 }] });
    expect(await codeOf(request)).toBe("P103");
  });
});
