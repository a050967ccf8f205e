import type { NodePhase, NodeView } from "../../electron/contract/index.js";
import type { Sort } from "../shared/DataGrid.js";

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
/** gpu2 before gpu10, whatever the language of the page. */
export const byName = (a: string, b: string): number => collator.compare(a, b);

/** Trouble first: what wants a person stands on top. */
const URGENCY: Record<NodePhase, number> = { failed: 0, unreachable: 1, degraded: 2, needs_host_key: 3, bringing_up: 4, new: 5, reachable: 6, up: 7 };

export const rdmaPorts = (node: NodeView): { active: number; total: number } | null => {
  if (!node.facts) return null;
  const ports = node.facts.rdma;
  return { active: ports.filter((port) => port.state.toLowerCase() === "active").length, total: ports.length };
};

/** Every word must stand in the node's name, address, kernel, phase, GPU name or error code. */
export function filterNodes(nodes: Iterable<NodeView>, text: string): NodeView[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...nodes];
  if (words.length === 0) return all;
  return all.filter((node) => {
    const haystack = [
      node.name, `${node.user}@${node.host}:${node.port}`, node.phase.replace(/_/g, " "), node.dataAddress ?? "", node.facts?.kernel ?? "", node.facts?.hostname ?? "",
      node.error?.code ?? "", node.facts?.gpus[0]?.name ?? "", ...(node.facts?.rdma.map((port) => port.name) ?? []),
    ].join("\n").toLowerCase();
    return words.every((word) => haystack.includes(word));
  });
}

const ORDER: Record<string, (a: NodeView, b: NodeView) => number> = {
  name: () => 0,
  address: (a, b) => byName(a.host, b.host) || a.port - b.port,
  phase: (a, b) => URGENCY[a.phase] - URGENCY[b.phase],
  hostKey: (a, b) => byName(a.hostKey.status, b.hostKey.status),
  kernel: (a, b) => byName(a.facts?.kernel ?? "", b.facts?.kernel ?? ""),
  driver: (a, b) => byName(a.facts?.driver.version ?? "", b.facts?.driver.version ?? ""),
  daemon: (a, b) => byName(a.agent.version ?? "", b.agent.version ?? ""),
  rdma: (a, b) => (rdmaPorts(a)?.active ?? -1) - (rdmaPorts(b)?.active ?? -1),
  gpus: (a, b) => (a.facts?.gpus.length ?? -1) - (b.facts?.gpus.length ?? -1),
  lastSeen: (a, b) => (b.lastSeenMs ?? 0) - (a.lastSeenMs ?? 0),
};

/** Stable: ties go by name, then by id, so rows never dance. */
export function sortNodes(nodes: NodeView[], sort: Sort): NodeView[] {
  const compare = ORDER[sort.key] ?? ORDER.name!;
  const sign = sort.descending ? -1 : 1;
  return [...nodes].sort((a, b) => sign * (compare(a, b) || (sort.key === "name" ? byName(a.name, b.name) : 0)) || byName(a.name, b.name) || byName(a.id, b.id));
}
