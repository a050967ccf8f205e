import type { FlowSample, Transport } from "../contract/index.js";
import type { NodeRates } from "./rates.js";

/** Numbers of enum stepccl_transport (native/include/stepccl/telemetry.h). */
const TRANSPORTS: Record<number, Transport> = { 1: "shm", 2: "tcp", 3: "rdma", 4: "dma", 5: "gpu_peer" };
/** A node's word counts as its present state for this many intervals. */
const STALE_INTERVALS = 6;

/**
 * What ranks move between nodes, summed over the ranks of each pair. The sender's count is taken; where the sending node is
 * silent, the receiver's. A node that has said nothing for a while moves nothing that we know of.
 */
export function flowsBetween(samples: ReadonlyMap<string, NodeRates>, nodeOf: (member: number) => string | undefined, nowMs: number): FlowSample[] {
  const flows = new Map<string, FlowSample>();
  const fresh = new Map([...samples].filter(([, sample]) => nowMs - sample.sampledAtMs < STALE_INTERVALS * Math.max(sample.intervalMs, 100)));
  for (const [nodeId, sample] of fresh) {
    for (const flow of sample.flows) {
      const transport = TRANSPORTS[flow.transport];
      const peer = flow.peerMember === null ? undefined : nodeOf(flow.peerMember);
      if (!transport || peer === undefined) continue;
      add(flows, nodeId, peer, transport, { bytesPerSecond: flow.txBytesPerSecond, bytes: flow.txBytes, queueDepth: flow.queueDepth, errors: flow.errors });
      if (!fresh.has(peer) && flow.rxBytes > 0) add(flows, peer, nodeId, transport, { bytesPerSecond: flow.rxBytesPerSecond, bytes: flow.rxBytes, queueDepth: 0, errors: 0 });
    }
  }
  return [...flows.values()];
}

function add(flows: Map<string, FlowSample>, from: string, to: string, transport: Transport, amount: Pick<FlowSample, "bytesPerSecond" | "bytes" | "queueDepth" | "errors">): void {
  const key = `${from} ${to} ${transport}`;
  const sum = flows.get(key);
  if (!sum) flows.set(key, { from, to, transport, ...amount });
  else {
    sum.bytesPerSecond += amount.bytesPerSecond;
    sum.bytes += amount.bytes;
    sum.queueDepth += amount.queueDepth;
    sum.errors += amount.errors;
  }
}
