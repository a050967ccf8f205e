import { z } from "zod";
import { NodeId } from "./nodes.js";

export const Transport = z.enum(["shm", "tcp", "rdma", "dma", "gpu_peer"]);
export type Transport = z.infer<typeof Transport>;

/** A path between two members, from the daemons' routing tables. */
export const LinkView = z.object({
  from: NodeId,
  to: NodeId,
  transport: Transport,
  /** Interface or RDMA device on each side; null where not known. */
  fromPort: z.string().nullable(),
  toPort: z.string().nullable(),
  state: z.enum(["up", "down", "unknown"]),
  rttUs: z.number().nullable(),
  measuredAtMs: z.number().nullable(),
  reason: z.string().nullable(),
});
export type LinkView = z.infer<typeof LinkView>;

export const TopologyView = z.object({ epoch: z.number(), links: z.array(LinkView) });
export type TopologyView = z.infer<typeof TopologyView>;

export const NicSample = z.object({
  name: z.string(), kind: z.enum(["netdev", "rdma"]), state: z.enum(["unknown", "down", "init", "armed", "active"]), speedMbps: z.number(),
  txBytesPerSecond: z.number(), rxBytesPerSecond: z.number(), txBytes: z.number(), rxBytes: z.number(), errors: z.number(), drops: z.number(),
});
export type NicSample = z.infer<typeof NicSample>;

/** Bytes that ranks move, summed over the ranks of a node pair. */
export const FlowSample = z.object({
  from: NodeId, to: NodeId, transport: Transport, bytesPerSecond: z.number(), bytes: z.number(), queueDepth: z.number(), errors: z.number(),
});
export type FlowSample = z.infer<typeof FlowSample>;

/** At most 10 a second for each view; every value carries its node's age. */
export const TelemetryTick = z.object({
  atMs: z.number(),
  nodes: z.array(z.object({
    nodeId: NodeId,
    /** When the node took the sample, in the console's clock. */
    sampledAtMs: z.number(),
    nics: z.array(NicSample),
    ranks: z.number(),
    lostOps: z.number(),
    daemonRssKib: z.number(),
    cpuPermille: z.number(),
    memoryAvailableBytes: z.number(),
  })),
  flows: z.array(FlowSample),
});
export type TelemetryTick = z.infer<typeof TelemetryTick>;
