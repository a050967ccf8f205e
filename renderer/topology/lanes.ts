import type { FlowSample, LinkView, NicSample, Transport } from "../../electron/contract/index.js";
import { flowKey, type NodeSample } from "../store/telemetry.js";

/** What the map draws between two nodes: one lane for each transport, both directions together. Shared memory stays inside a node. */
export type LaneTransport = Exclude<Transport, "shm">;
export interface Lane {
  id: string;
  a: string;
  b: string;
  transport: LaneTransport;
  aPort: string | null;
  bPort: string | null;
  /** The worse of both directions. */
  state: LinkView["state"];
  rttUs: number | null;
  measuredAtMs: number | null;
  reason: string | null;
}

export const laneId = (a: string, b: string, transport: string): string => (a < b ? `${a}|${b}|${transport}` : `${b}|${a}|${transport}`);

const WORSE: Record<LinkView["state"], number> = { down: 0, unknown: 1, up: 2 };

/** Both daemons tell of a path between them; the two views become one lane. Order is by id, so that redraws are equal. */
export function lanesOf(links: readonly LinkView[]): Lane[] {
  const lanes = new Map<string, Lane>();
  for (const link of links) {
    if (link.transport === "shm" || link.from === link.to) continue;
    const id = laneId(link.from, link.to, link.transport);
    const forward = link.from < link.to;
    const before = lanes.get(id);
    const newer = !before || (link.measuredAtMs ?? 0) > (before.measuredAtMs ?? 0);
    lanes.set(id, {
      id, a: forward ? link.from : link.to, b: forward ? link.to : link.from, transport: link.transport,
      aPort: before?.aPort ?? (forward ? link.fromPort : link.toPort), bPort: before?.bPort ?? (forward ? link.toPort : link.fromPort),
      state: before && WORSE[before.state] < WORSE[link.state] ? before.state : link.state,
      rttUs: newer && link.rttUs !== null ? link.rttUs : (before?.rttUs ?? link.rttUs), measuredAtMs: newer ? link.measuredAtMs : before.measuredAtMs,
      reason: before?.reason ?? link.reason,
    });
  }
  return [...lanes.values()].sort((x, y) => (x.id < y.id ? -1 : 1));
}

export interface LaneRate {
  /** Bytes a second from a to b, and from b to a. */
  forward: number;
  backward: number;
  forwardBytes: number;
  backwardBytes: number;
  errors: number;
  /** When the older end took its sample; null before the first. */
  sampledAtMs: number | null;
}

const portOf = (sample: NodeSample | undefined, name: string | null): NicSample | undefined =>
  name === null ? undefined : sample?.nics.find((nic) => nic.name === name);

/** What flows on a lane now: the ranks' own flows, and the error counters of the ports at its ends. */
export function laneRate(lane: Lane, flows: ReadonlyMap<string, FlowSample>, nodes: ReadonlyMap<string, NodeSample>): LaneRate {
  const forward = flows.get(flowKey(lane.a, lane.b, lane.transport));
  const backward = flows.get(flowKey(lane.b, lane.a, lane.transport));
  const [a, b] = [nodes.get(lane.a), nodes.get(lane.b)];
  const ports = [portOf(a, lane.aPort), portOf(b, lane.bPort)];
  return {
    forward: forward?.bytesPerSecond ?? 0, backward: backward?.bytesPerSecond ?? 0, forwardBytes: forward?.bytes ?? 0, backwardBytes: backward?.bytes ?? 0,
    errors: (forward?.errors ?? 0) + (backward?.errors ?? 0) + ports.reduce((sum, port) => sum + (port?.errors ?? 0), 0),
    sampledAtMs: a && b ? Math.min(a.sampledAtMs, b.sampledAtMs) : null,
  };
}
