import type { Severity } from "../../contract/index.js";
import { addresses, netdevs, rdmaPorts, type NodeSources } from "../facts.js";
import type { Hit } from "./rule.js";

/** Checks that need several nodes: each compares a node with the others that were read in the same diagnosis. */

export interface ClusterNode {
  nodeId: string;
  name: string;
  dataAddress: string | null;
  sources: NodeSources;
}
export interface ClusterRule {
  class: string;
  severity: Severity;
  find(nodes: readonly ClusterNode[]): { hits: Map<string, Hit[]>; cannotTell: Map<string, string[]> };
}

/** Clocks this far apart break what lives by time: TLS, log comparison, leases. */
const MAX_SKEW_S = 2;
const FAR_SKEW_S = 60;

export const clusterRules: readonly ClusterRule[] = [
  {
    class: "link.mtu_mismatch", severity: "high",
    find: (nodes) => compare(nodes, "MTU of the data interface", (node) => {
      const device = dataNetdev(node);
      return device ? { value: device.mtu, hit: (usual, others) => ({ evidence: [{ source: "ip_link", line: device.line }], params: { netdev: device.name, mtu: device.mtu, usual, others } }) } : null;
    }),
  },
  {
    class: "host.clock_skew", severity: "medium",
    find: (nodes) => {
      const offsets = nodes.map((node) => ({ node, offset: clockOffset(node.sources) }));
      const hits = new Map<string, Hit[]>();
      const cannotTell = new Map<string, string[]>();
      const known = offsets.flatMap(({ offset }) => (offset ? [offset.seconds] : [])).sort((a, b) => a - b);
      for (const { node, offset } of offsets) {
        if (!offset || known.length < 2) {
          cannotTell.set(node.nodeId, [offset ? "the clock of another node" : "clock"]);
          continue;
        }
        const median = known[Math.floor((known.length - 1) / 2)]!;
        const apart = offset.seconds - median;
        if (Math.abs(apart) <= MAX_SKEW_S + offset.uncertaintyS) continue;
        const line = node.sources.lines("clock")![0]!;
        hits.set(node.nodeId, [{ evidence: [{ source: "clock", line }], params: { seconds: Math.round(apart * 10) / 10, others: known.length - 1 }, ...(Math.abs(apart) > FAR_SKEW_S ? { severity: "high" } : {}) }]);
      }
      return { hits, cannotTell };
    },
  },
];

/** The node's clock less ours, from the midpoint of the command that read it. */
function clockOffset(sources: NodeSources): { seconds: number; uncertaintyS: number } | null {
  const source = sources.collected.get("clock");
  const text = sources.text("clock")?.trim();
  if (!source || !text || !/^\d{9,12}\.\d{1,9}$/.test(text)) return null;
  return { seconds: Number(text) - (source.beganAtMs + source.endedAtMs) / 2000, uncertaintyS: (source.endedAtMs - source.beganAtMs) / 2000 };
}

/** The interface that carries the data: the one with the data address, else the one under an RDMA device. */
function dataNetdev(node: ClusterNode): ReturnType<typeof netdevs> extends (infer T)[] | undefined ? T | null : never {
  const devices = netdevs(node.sources);
  if (!devices) return null;
  const byAddress = node.dataAddress === null ? undefined : [...(addresses(node.sources) ?? [])].find(([, list]) => list.includes(node.dataAddress!))?.[0];
  const byRdma = rdmaPorts(node.sources)?.find((port) => port.netdev !== null)?.netdev;
  return devices.find((device) => device.name === (byAddress ?? byRdma)) ?? null;
}

/** Names the nodes whose value is not the usual one; where none is usual, all of them. */
function compare(
  nodes: readonly ClusterNode[], what: string, read: (node: ClusterNode) => { value: number; hit: (usual: string, others: number) => Hit } | null,
): { hits: Map<string, Hit[]>; cannotTell: Map<string, string[]> } {
  const values = nodes.map((node) => ({ node, read: read(node) }));
  const counts = new Map<number, number>();
  for (const { read: found } of values) if (found) counts.set(found.value, (counts.get(found.value) ?? 0) + 1);
  const known = [...counts.values()].reduce((a, b) => a + b, 0);
  const most = Math.max(0, ...counts.values());
  const usual = [...counts].filter(([, count]) => count === most).map(([value]) => value);
  const hits = new Map<string, Hit[]>();
  const cannotTell = new Map<string, string[]>();
  for (const { node, read: found } of values) {
    if (!found || known < 2) cannotTell.set(node.nodeId, [found ? `${what} of another node` : what]);
    else if (counts.size > 1 && (usual.length > 1 || found.value !== usual[0])) {
      const rest = usual.length > 1 ? [...counts.keys()].filter((value) => value !== found.value) : usual;
      hits.set(node.nodeId, [found.hit(rest.sort((a, b) => a - b).join(", "), known - 1)]);
    }
  }
  return { hits, cannotTell };
}
