import { ConsoleError, type NodeView, type RunSpec } from "../contract/index.js";
import type { Cluster } from "../link/schemas.js";

export interface PlannedNode {
  nodeId: string;
  name: string;
  ranks: number[];
}
export interface RunPlan {
  worldSize: number;
  nodes: PlannedNode[];
}

/**
 * Which ranks run where: node-major, so that ranks of a node are neighbours in a ring, in the order in which the nodes were named.
 * @throws ConsoleError H501 fewer than two ranks, H301 unknown node, H502 a node that is not up
 */
export function planRun(spec: RunSpec, find: (nodeId: string) => NodeView | undefined): RunPlan {
  const worldSize = spec.nodeIds.length * spec.ranksPerNode;
  if (worldSize < 2) throw ConsoleError.of("H501");
  const nodes = spec.nodeIds.map((nodeId, i): PlannedNode => {
    const node = find(nodeId);
    if (!node) throw ConsoleError.of("H301", { nodeId });
    if (node.phase !== "up" && node.phase !== "degraded") throw ConsoleError.of("H502", { name: node.name });
    return { nodeId, name: node.name, ranks: Array.from({ length: spec.ranksPerNode }, (_, j) => i * spec.ranksPerNode + j) };
  });
  return { worldSize, nodes };
}

/**
 * Where rank 0 listens: the data address of its node. `clusterOf` is the membership as each node's own daemon knows it.
 * @throws ConsoleError H503 when a node lacks what the transport needs
 */
export function rendezvousAddress(spec: RunSpec, plan: RunPlan, clusterOf: (nodeId: string) => Cluster | null): string {
  const alone = plan.nodes.length === 1;
  if (!alone && (spec.transport === "shm" || spec.transport === "dma")) {
    throw ConsoleError.of("H503", { name: plan.nodes[1]!.name, transport: `${spec.transport} to another node` });
  }
  const addresses = plan.nodes.map((node) => {
    const cluster = clusterOf(node.nodeId);
    const own = cluster?.members.find((member) => member.node === cluster.self)?.addresses ?? [];
    const fitting = spec.transport === "rdma" ? own.find((address) => address.rdma_device !== null) : own[0];
    if (!fitting && (!alone || spec.transport === "rdma")) throw ConsoleError.of("H503", { name: node.name, transport: spec.transport });
    return fitting?.address ?? "127.0.0.1";
  });
  return addresses[0]!;
}
