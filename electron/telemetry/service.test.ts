import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { TelemetryTick, TopologyView } from "../contract/index.js";
import { directoryOf, FakeNode } from "../collectives/testing.js";
import { encodeFrame, NO_ANSWER, type FrameInput } from "../link/testing.js";
import { Telemetry } from "./service.js";
import { Topology } from "./topology.js";

let nodes: FakeNode[];
let listeners: Set<(ids: readonly string[]) => void>;
const directory = () => ({ ...directoryOf(nodes), onChange: (listener: (ids: readonly string[]) => void) => { listeners.add(listener); return () => void listeners.delete(listener); } });
const soon = <T>(look: () => T): Promise<T> => vi.waitFor(look, { timeout: 8000, interval: 10 });
const send = (node: FakeNode, frame: FrameInput): void => node.daemon.connections.at(-1)!.raw(encodeFrame(frame));

beforeEach(() => {
  listeners = new Set();
  nodes = [new FakeNode(0), new FakeNode(1)];
  for (const node of nodes) {
    node.daemon.handlers["telemetry.subscribe"] = () => ({ subscription: 1 });
    node.daemon.handlers["telemetry.unsubscribe"] = () => ({});
  }
});

describe("Telemetry", () => {
  let telemetry: Telemetry;
  beforeEach(() => { telemetry = new Telemetry({ nodes: directory(), onError: (error) => { throw error; } }); });
  afterEach(() => telemetry.close());
  const subscribed = (): Promise<unknown> => soon(() => expect(nodes.every((node) => node.daemon.callsOf("telemetry.subscribe").length > 0)).toBe(true));

  it("subscribes to every node that is up and turns frames into rates and flows", async () => {
    await subscribed();
    expect(nodes[0]!.daemon.callsOf("telemetry.subscribe")).toEqual([{ interval_ms: 500 }]);
    const now = BigInt(Date.now()) * 1_000_000n;
    const frame = (ms: number, tx: number): FrameInput => ({
      node: 0, monotonicNs: BigInt(ms) * 1_000_000n, realtimeNs: now + BigInt(ms) * 1_000_000n, rankCount: 1, rssKib: 2100, memAvailableBytes: 5e9,
      nics: [{ name: "eth1", tx, rx: 0, speedMbps: 1000 }, { name: "rxe0", kind: 2, port: 1, tx, rx: 0 }], flows: [{ rank: 0, peerRank: 1, peerNode: 1, transport: 3, queueDepth: 4, tx, rx: 0 }],
    });
    send(nodes[0]!, frame(1000, 0));
    send(nodes[0]!, frame(1500, 1_000_000));
    const tick = await soon(() => {
      const value = TelemetryTick.parse(telemetry.tick());
      expect(value.flows).toHaveLength(1);
      expect(value.flows[0]!.bytesPerSecond).toBeGreaterThan(0);
      return value;
    });
    expect(tick.flows).toEqual([
      { from: "n0", to: "n1", transport: "rdma", bytesPerSecond: 2_000_000, bytes: 1_000_000, queueDepth: 4, errors: 0 },
    ]);
    expect(tick.nodes[0]).toMatchObject({ nodeId: "n0", ranks: 1, daemonRssKib: 2100, memoryAvailableBytes: 5e9, nics: [{ name: "eth1", kind: "netdev", state: "active", txBytesPerSecond: 2_000_000 }, { name: "rxe0", kind: "rdma" }] });
  });
  it("a daemon that comes back is followed again", async () => {
    await subscribed();
    nodes[0]!.daemon.kill();
    await soon(() => expect(nodes[0]!.daemon.callsOf("telemetry.subscribe")).toHaveLength(2));
  });
  it("a node that is no longer up is let go; one that is gone is forgotten", async () => {
    await subscribed();
    send(nodes[1]!, { node: 1, monotonicNs: 1n, realtimeNs: 1n });
    await soon(() => expect(telemetry.tick().nodes.map((node) => node.nodeId)).toEqual(["n1"]));
    nodes[1]!.view = { ...nodes[1]!.view, phase: "unreachable" };
    for (const listener of listeners) listener(["n1"]);
    await soon(() => expect(nodes[1]!.daemon.callsOf("telemetry.unsubscribe")).toHaveLength(1));
    expect(telemetry.tick().nodes).toHaveLength(1);
    nodes = [nodes[0]!];
    telemetry.close();
    telemetry = new Telemetry({ nodes: directory() });
    expect(telemetry.tick().nodes).toEqual([]);
  });
});

describe("Topology", () => {
  const path = (local: string, peer: string) => ({ transport: "tcp", local_address: local, peer_address: peer, netdev: "eth1", rdma_device: null, gid_index: null, state: "up", rtt_us: 90, measured_at_ms: 1, reason: null });
  const routes = (member: number) => ({ epoch: 1, routes: [{ from: member, to: 1 - member, paths: [path(nodes[member]!.address, nodes[1 - member]!.address)] }] });

  it("merges the tables of those that answer, within its time", async () => {
    nodes[0]!.daemon.handlers["routes.get"] = () => routes(0);
    nodes[1]!.daemon.handlers["routes.get"] = () => routes(1);
    const topology = new Topology({ nodes: directory() });
    const view = TopologyView.parse(await topology.get());
    expect(view.links.map((link) => [link.from, link.to, link.fromPort, link.toPort])).toEqual([["n0", "n1", "eth1", "eth1"], ["n1", "n0", "eth1", "eth1"]]);
    nodes[1]!.kill();
    expect((await topology.get()).links.map((link) => link.from)).toEqual(["n0"]);
    topology.close();
  });
  it("probe has the nodes measure; cancelling it does not wait for them", async () => {
    nodes[0]!.daemon.handlers["routes.probe"] = () => routes(0);
    nodes[1]!.daemon.handlers["routes.probe"] = () => NO_ANSWER;
    const topology = new Topology({ nodes: directory() });
    const abort = new AbortController();
    const probing = topology.probe(abort.signal);
    await soon(() => expect(nodes[1]!.daemon.callsOf("routes.probe")).toHaveLength(1));
    abort.abort();
    await expect(probing).rejects.toMatchObject({ view: { code: "H104" } });
    topology.close();
  });
});
