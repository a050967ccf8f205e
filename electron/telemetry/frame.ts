import type { TelemetryFrame } from "../../native/addon/index.js";
import type { FlowTotals, NicTotals, NodeTotals } from "./rates.js";

const UNKNOWN_NODE = 0xffff;
const STATES = ["unknown", "down", "init", "armed", "active"] as const;

/** One operation of one rank that ended. */
export interface EndedOp {
  durationMs: number;
  failed: boolean;
  /** A runtime code as a number: 203 is R203; 0 = none. */
  error: number;
}
const OP_COMPLETED = 2;
const OP_FAILED = 3;

/** The operations that ended in this frame; those that only began are left out. */
export function endedOps(frame: TelemetryFrame): EndedOp[] {
  const { ops } = frame;
  return ops.commId.flatMap((_, i): EndedOp[] => {
    const state = ops.state[i]!;
    if (state !== OP_COMPLETED && state !== OP_FAILED) return [];
    return [{ durationMs: Math.max(0, ops.endNs[i]! - ops.beginNs[i]!) / 1e6, failed: state === OP_FAILED, error: ops.error[i]! }];
  });
}

/** The addon's columns as plain totals, one object for each interface and flow. */
export function totalsOf(frame: TelemetryFrame): NodeTotals {
  const { nics, flows } = frame;
  return {
    member: frame.node, monotonicMs: Number(frame.monotonicNs) / 1e6, realtimeMs: Number(frame.realtimeNs) / 1e6, intervalMs: frame.intervalMs,
    lostOps: frame.lostOps, ranks: frame.rankCount, daemonRssKib: frame.daemonRssKib, cpuPermille: frame.cpuPermille, memoryAvailableBytes: frame.memAvailableBytes,
    nics: nics.name.map((name, i): NicTotals => ({
      name, kind: nics.kind[i] === 2 ? "rdma" : "netdev", port: nics.port[i]!, state: STATES[nics.state[i]!] ?? "unknown", speedMbps: nics.speedMbps[i]!,
      txBytes: nics.txBytes[i]!, rxBytes: nics.rxBytes[i]!, errors: nics.errors[i]!, drops: nics.drops[i]!,
    })),
    flows: flows.commId.map((commId, i): FlowTotals => ({
      commId, rank: flows.rank[i]!, peerRank: flows.peerRank[i]!, peerMember: flows.peerNode[i] === UNKNOWN_NODE ? null : flows.peerNode[i]!,
      transport: flows.transport[i]!, queueDepth: flows.queueDepth[i]!, txBytes: flows.txBytes[i]!, rxBytes: flows.rxBytes[i]!, errors: flows.errors[i]!,
    })),
  };
}
