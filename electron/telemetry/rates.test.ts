import { describe, expect, it } from "vitest";
import { flowsBetween } from "./flows.js";
import { RateMeter, type FlowTotals, type NicTotals, type NodeTotals } from "./rates.js";

const nic = (tx: number, rx: number, name = "eth1"): NicTotals => ({ name, kind: "netdev", port: 0, state: "active", speedMbps: 1000, txBytes: tx, rxBytes: rx, errors: 0, drops: 0 });
const totals = (ms: number, nics: NicTotals[] = [], flows: FlowTotals[] = [], realtimeMs = 1_000_000 + ms): NodeTotals => ({
  member: 0, monotonicMs: ms, realtimeMs, intervalMs: 500, lostOps: 0, ranks: 0, daemonRssKib: 1, cpuPermille: 0, memoryAvailableBytes: 0, nics, flows,
});

describe("RateMeter", () => {
  it("the first totals have no rate; then bytes over the node's own time", () => {
    const meter = new RateMeter();
    expect(meter.feed(totals(0, [nic(1000, 0)]), 0)?.nics[0]).toMatchObject({ txBytesPerSecond: 0, txBytes: 1000 });
    // The frame came 3 s late; the node's clock counts, not ours.
    expect(meter.feed(totals(500, [nic(2000, 100)]), 3500)?.nics[0]).toMatchObject({ txBytesPerSecond: 2000, rxBytesPerSecond: 200 });
  });
  it("a gap gives the mean over the gap", () => {
    const meter = new RateMeter();
    meter.feed(totals(0, [nic(0, 0)]), 0);
    expect(meter.feed(totals(10_000, [nic(50_000, 0)]), 10_000)?.nics[0]?.txBytesPerSecond).toBe(5000);
  });
  it("a counter that went down begins anew and is never negative", () => {
    const meter = new RateMeter();
    meter.feed(totals(0, [nic(9000, 9000)]), 0);
    expect(meter.feed(totals(500, [nic(100, 9100)]), 500)?.nics[0]).toMatchObject({ txBytesPerSecond: 0, rxBytesPerSecond: 0 });
    expect(meter.feed(totals(1000, [nic(200, 9200)]), 1000)?.nics[0]).toMatchObject({ txBytesPerSecond: 200, rxBytesPerSecond: 200 });
  });
  it("a reboot begins everything anew, though a counter may stand higher than before", () => {
    const meter = new RateMeter();
    meter.feed(totals(900_000, [nic(100, 0)]), 0);
    expect(meter.feed(totals(1000, [nic(5000, 0)]), 1000)?.nics[0]?.txBytesPerSecond).toBe(0);
    expect(meter.feed(totals(2000, [nic(6000, 0)]), 2000)?.nics[0]?.txBytesPerSecond).toBe(1000);
  });
  it("a device that comes back after it was away has no rate at first", () => {
    const meter = new RateMeter();
    meter.feed(totals(0, [nic(100, 0)]), 0);
    meter.feed(totals(500, []), 500);
    expect(meter.feed(totals(1000, [nic(900, 0)]), 1000)?.nics[0]?.txBytesPerSecond).toBe(0);
  });
  it("totals of the same moment (a frame that carries on the last one) give nothing", () => {
    const meter = new RateMeter();
    meter.feed(totals(500), 0);
    expect(meter.feed(totals(500), 1)).toBeNull();
  });
  it("gives the sample's time in our clock, free of the clocks' offset and of a late arrival", () => {
    const meter = new RateMeter();
    const skew = 3_600_000;
    meter.feed(totals(0, [], [], 50_000 + skew), 50_010);
    expect(meter.feed(totals(500, [], [], 50_500 + skew), 50_510)?.sampledAtMs).toBe(50_510);
    expect(meter.feed(totals(1000, [], [], 51_000 + skew), 54_000)?.sampledAtMs).toBe(51_010);
  });
});

describe("flowsBetween", () => {
  const flow = (rank: number, peerRank: number, peerMember: number | null, tx: number, rx = 0, transport = 2): FlowTotals => ({ commId: "1", rank, peerRank, peerMember, transport, queueDepth: 1, txBytes: tx, rxBytes: rx, errors: 0 });
  const rated = (first: FlowTotals[], second: FlowTotals[]): ReturnType<RateMeter["feed"]> & object => {
    const meter = new RateMeter();
    meter.feed(totals(0, [], first), 1000);
    return meter.feed(totals(1000, [], second), 2000)!;
  };
  const nodeOf = (member: number): string | undefined => ["a", "b"][member];

  it("sums the ranks of a pair, by the sender's count", () => {
    const samples = new Map([
      ["a", rated([flow(0, 2, 1, 0), flow(1, 3, 1, 0)], [flow(0, 2, 1, 1000), flow(1, 3, 1, 500)])],
      ["b", rated([flow(2, 0, 0, 0, 0)], [flow(2, 0, 0, 70, 1000)])],
    ]);
    expect(flowsBetween(samples, nodeOf, 2000)).toEqual([
      { from: "a", to: "b", transport: "tcp", bytesPerSecond: 1500, bytes: 1500, queueDepth: 2, errors: 0 },
      { from: "b", to: "a", transport: "tcp", bytesPerSecond: 70, bytes: 70, queueDepth: 1, errors: 0 },
    ]);
  });
  it("takes the receiver's count where the sender is silent, and nothing from the stale", () => {
    const samples = new Map([["a", rated([flow(0, 2, 1, 0, 0)], [flow(0, 2, 1, 10, 300)])]]);
    expect(flowsBetween(samples, nodeOf, 2000)).toContainEqual({ from: "b", to: "a", transport: "tcp", bytesPerSecond: 300, bytes: 300, queueDepth: 0, errors: 0 });
    expect(flowsBetween(samples, nodeOf, 60_000)).toEqual([]);
  });
  it("leaves out peers and transports that it does not know", () => {
    const samples = new Map([["a", rated([], [flow(0, 2, null, 1), flow(0, 3, 9, 1), flow(0, 4, 1, 1, 0, 77)])]]);
    expect(flowsBetween(samples, nodeOf, 2000)).toEqual([]);
  });
});
