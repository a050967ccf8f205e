import type { TelemetryFrame } from "../../native/addon/index.js";
import type { FlowTotals, NicTotals, NodeTotals } from "./rates.js";

const UNKNOWN_NODE = 0xffff;
const STATES = ["unknown", "down", "init", "armed", "active"] as const;
/** Numbers of 64 bits come as bigint where the addon keeps them whole; a double is exact to 9 PB, enough for rates. */
const num = (value: number | bigint): number => Number(value);

/** The addon's frame as plain totals. */
export function totalsOf(frame: TelemetryFrame): NodeTotals {
  return {
    member: frame.node === null || frame.node === UNKNOWN_NODE ? null : frame.node,
    monotonicMs: num(frame.monotonicNs) / 1e6, realtimeMs: num(frame.realtimeNs) / 1e6, intervalMs: frame.intervalMs,
    lostOps: num(frame.lostOps), ranks: frame.rankCount, daemonRssKib: frame.daemonRssKib, cpuPermille: frame.cpuPermille, memoryAvailableBytes: num(frame.memAvailableBytes),
    nics: frame.nics.map((nic): NicTotals => ({
      name: nic.name, kind: nic.kind === 2 ? "rdma" : "netdev", port: nic.port, state: STATES[nic.state] ?? "unknown", speedMbps: nic.speedMbps,
      txBytes: num(nic.txBytes), rxBytes: num(nic.rxBytes), errors: num(nic.errors), drops: num(nic.drops),
    })),
    flows: frame.flows.map((flow): FlowTotals => ({
      commId: String(flow.commId), rank: flow.rank, peerRank: flow.peerRank, peerMember: flow.peerNode === null || flow.peerNode === UNKNOWN_NODE ? null : flow.peerNode, transport: flow.transport,
      queueDepth: flow.queueDepth, txBytes: num(flow.txBytes), rxBytes: num(flow.rxBytes), errors: num(flow.errors),
    })),
  };
}
