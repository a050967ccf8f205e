import { describe, expect, it, vi } from "vitest";
import { Client } from "../client/client.js";
import { FakeHost } from "../dev/fake-host.js";
import { HostClock } from "./clock.js";
import { createConsole } from "./console.js";
import { createKeyedStore } from "./keyed.js";
import { flowKey, TelemetryBuffer } from "./telemetry.js";

describe("a keyed store", () => {
  const make = () => createKeyedStore<{ id: string; n: number }>((item) => item.id);

  it("keeps the identity of its id list while membership does not change", () => {
    const store = make();
    store.apply({ kind: "snapshot", items: [{ id: "a", n: 1 }, { id: "b", n: 1 }] });
    const { ids } = store.api.getState();
    store.apply({ kind: "patch", upsert: [{ id: "a", n: 2 }], remove: [] });
    store.apply({ kind: "snapshot", items: [{ id: "a", n: 3 }, { id: "b", n: 3 }] });
    expect(store.api.getState().ids).toBe(ids);
    store.apply({ kind: "patch", upsert: [{ id: "c", n: 1 }], remove: ["a"] });
    expect(store.api.getState().ids).toEqual(["b", "c"]);
  });

  it("keeps the identity of items that a patch does not name", () => {
    const store = make();
    store.apply({ kind: "snapshot", items: [{ id: "a", n: 1 }, { id: "b", n: 1 }] });
    const b = store.api.getState().items.get("b");
    store.apply({ kind: "patch", upsert: [{ id: "a", n: 2 }], remove: ["unknown"] });
    expect(store.api.getState().items.get("b")).toBe(b);
    expect(store.api.getState().items.get("a")?.n).toBe(2);
  });

  it("forgets what a later snapshot lacks, and its error with it", () => {
    const store = make();
    store.apply({ kind: "snapshot", items: [{ id: "a", n: 1 }] });
    store.fail({ code: "H105", message: "m", next: "n" });
    store.apply({ kind: "snapshot", items: [] });
    expect(store.api.getState()).toMatchObject({ loaded: true, ids: [], error: null });
    expect(store.api.getState().items.size).toBe(0);
  });
});

describe("the telemetry buffer", () => {
  const sample = (nodeId: string, sampledAtMs: number, tx: number) => ({
    nodeId, sampledAtMs, ranks: 0, lostOps: 0, daemonRssKib: 1, cpuPermille: 0, memoryAvailableBytes: 1,
    nics: [{ name: "eth1", kind: "netdev" as const, state: "active" as const, speedMbps: 1, txBytesPerSecond: tx, rxBytesPerSecond: 0, txBytes: 0, rxBytes: 0, errors: 0, drops: 0 }],
  });
  const flow = { from: "a", to: "b", transport: "rdma" as const, bytesPerSecond: 5e8, bytes: 1e9, queueDepth: 1, errors: 0 };

  it("sets the rate of a flow that is no longer told to zero and keeps its total", () => {
    const buffer = new TelemetryBuffer();
    buffer.apply({ atMs: 1, nodes: [], flows: [flow] });
    buffer.apply({ atMs: 2, nodes: [], flows: [] });
    expect(buffer.flows.get(flowKey("a", "b", "rdma"))).toMatchObject({ bytesPerSecond: 0, bytes: 1e9 });
  });

  it("keeps 120 points a node and takes no sample twice", () => {
    const buffer = new TelemetryBuffer();
    for (let at = 1; at <= 130; at++) buffer.apply({ atMs: at, nodes: [sample("a", at, at)], flows: [] });
    buffer.apply({ atMs: 131, nodes: [sample("a", 130, 7)], flows: [] });
    const history = buffer.history("a");
    expect(history).toHaveLength(120);
    expect(history.at(-1)).toEqual({ atMs: 130, value: 130 });
  });

  it("counts its version and tells its listeners until they leave", () => {
    const buffer = new TelemetryBuffer();
    const heard = vi.fn();
    const stop = buffer.subscribe(heard);
    buffer.apply({ atMs: 1, nodes: [], flows: [] });
    stop();
    buffer.apply({ atMs: 2, nodes: [], flows: [] });
    expect([heard.mock.calls.length, buffer.version]).toEqual([1, 2]);
  });
});

describe("the host's clock", () => {
  it("takes small differences for transport and large ones for clocks", () => {
    let now = 1_000_000;
    const clock = new HostClock(() => now);
    clock.observe(now - 150);
    expect(clock.now()).toBe(now);
    const far = new HostClock(() => now);
    far.observe(now - 3_600_150);
    far.observe(now - 3_600_020);
    now += 500;
    expect(far.now()).toBe(now - 3_600_020);
  });
});

describe("a console", () => {
  it("fills every store from its stream, and again after the connection came back", async () => {
    const host = new FakeHost();
    const console = createConsole(new Client(host, { validate: true }));
    await vi.waitFor(() => expect(console.diagnoses.api.getState().loaded).toBe(true));
    expect(console.nodes.api.getState().ids).toHaveLength(11);
    expect(console.topology.getState().links.length).toBeGreaterThan(0);
    expect(console.host.getState()).toMatchObject({ connection: "open", hello: { version: "0.1.0" } });
    host.setState("closed");
    expect(console.host.getState().lostAtMs).not.toBeNull();
    host.nodes.delete("n1");
    host.setState("open");
    await vi.waitFor(() => expect(console.nodes.api.getState().ids).toHaveLength(10));
    expect(console.host.getState().lostAtMs).toBeNull();
    host.emitWithGap("nodes");
    const count = host.received.filter((message) => message.type === "subscribe" && message.stream === "nodes").length;
    expect(count).toBe(3);
    console.dispose();
    host.close();
  });
});
