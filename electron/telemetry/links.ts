import type { LinkView, TopologyView } from "../contract/index.js";
import type { RoutePath, Routes } from "../link/schemas.js";

export interface MemberRoutes {
  nodeId: string;
  member: number;
  routes: Routes;
}

const portOf = (path: RoutePath): string | null => (path.transport === "rdma" ? path.rdma_device : null) ?? path.netdev;

/**
 * The daemons' routing tables as one topology: one link for each direction and path. A path is measured by the node that it begins
 * at; the port at its other end is looked up in the other end's own table.
 */
export function mergeLinks(tables: readonly MemberRoutes[], nodeOf: (member: number) => string | undefined): TopologyView {
  const own = new Map(tables.map((table) => [table.member, table]));
  // What a member says of its own paths counts; what others derive about it serves only while it is silent.
  const pathsFrom = (from: number, to: number): readonly RoutePath[] => {
    const sources = own.has(from) ? [own.get(from)!] : tables;
    for (const { routes } of sources) {
      const route = routes.routes.find((entry) => entry.from === from && entry.to === to);
      if (route) return route.paths;
    }
    return [];
  };
  const members = new Set(tables.flatMap((table) => [table.member, ...table.routes.routes.flatMap((route) => [route.from, route.to])]));
  const sorted = [...members].filter((member) => nodeOf(member) !== undefined).sort((a, b) => a - b);
  const links: LinkView[] = [];
  for (const from of sorted) {
    for (const to of sorted) {
      const back = pathsFrom(to, from);
      for (const path of from === to ? [] : pathsFrom(from, to)) links.push(linkOf(nodeOf(from)!, nodeOf(to)!, path, back));
    }
  }
  return { epoch: tables.reduce((max, table) => Math.max(max, table.routes.epoch), 0), links };
}

function linkOf(from: string, to: string, path: RoutePath, back: readonly RoutePath[]): LinkView {
  const reverse = back.find((other) => other.transport === path.transport && other.local_address === path.peer_address && other.peer_address === path.local_address);
  return {
    from, to, transport: path.transport, fromPort: portOf(path), toPort: reverse ? portOf(reverse) : null,
    state: path.state, rttUs: path.rtt_us, measuredAtMs: path.measured_at_ms, reason: path.reason,
  };
}
