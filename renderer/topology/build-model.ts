import type { NodeView } from "../../electron/contract/index.js";
import { age, linkSpeed, rate, STALE_AFTER_MS } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import type { NodeSample, TelemetryBuffer } from "../store/telemetry.js";
import { laneId, laneRate, type Lane } from "./lanes.js";
import type { SceneModel, SceneNode } from "./scene/model.js";
import type { Mark } from "./store.js";

/** The two ports that the fabric uses most: an RDMA device first, then netdevs by what they carry. */
function portsOf(node: NodeView, sample: NodeSample | undefined): SceneNode["ports"] {
  if (sample && sample.nics.length > 0) {
    return [...sample.nics]
      .filter((nic) => nic.name !== "lo")
      .sort((a, b) => Number(b.kind === "rdma") - Number(a.kind === "rdma") || b.txBytesPerSecond + b.rxBytesPerSecond - a.txBytesPerSecond - a.rxBytesPerSecond || (a.name < b.name ? -1 : 1))
      .map((nic) => ({ name: oneLine(nic.name, 24), label: nic.state === "active" ? `↑${rate(nic.txBytesPerSecond).replace("/s", "")}` : nic.state, up: nic.state === "active" }));
  }
  if (!node.facts) return [];
  return [
    ...node.facts.rdma.map((port) => ({ name: oneLine(port.name, 24), label: port.rateGbps === null ? "" : `${port.rateGbps}G`, up: port.state.toLowerCase() === "active" })),
    ...node.facts.nics.filter((nic) => nic.name !== "lo").map((nic) => ({ name: oneLine(nic.name, 24), label: linkSpeed(nic.speedMbps), up: nic.state === "up" })),
  ];
}

/** A link is marked as its lane where there is one, else at both of its ends. */
const markedLane = (mark: Mark | null, lanes: readonly Lane[]): string | null => {
  if (mark?.ref.kind !== "link") return null;
  const id = laneId(mark.ref.from, mark.ref.to, mark.ref.transport);
  return lanes.some((lane) => lane.id === id) ? id : null;
};
function markOf(mark: Mark | null, nodeId: string, hasLane: boolean): SceneNode["marked"] {
  if (!mark) return null;
  const { ref } = mark;
  if (ref.kind === "link") return !hasLane && (ref.from === nodeId || ref.to === nodeId) ? { port: null } : null;
  return ref.nodeId === nodeId ? { port: ref.kind === "nic" || ref.kind === "rdma" ? ref.name : null } : null;
}

/** What the scene draws now. Pure: the same stores and time give the same model. */
export function buildModel(nodes: Iterable<NodeView>, lanes: readonly Lane[], telemetry: TelemetryBuffer, nowMs: number, mark: Mark | null = null): SceneModel {
  const markedId = markedLane(mark, lanes);
  const staleNode = (sampledAtMs: number | null) => sampledAtMs === null || nowMs - sampledAtMs > STALE_AFTER_MS;
  const list: SceneNode[] = [];
  for (const node of nodes) {
    const sample = telemetry.nodes.get(node.id);
    const seen = sample ? Math.max(sample.sampledAtMs, node.lastSeenMs ?? 0) : node.lastSeenMs;
    const stale = staleNode(seen);
    let [tx, rx] = [0, 0];
    if (sample && !stale) {
      for (const nic of sample.nics) {
        if (nic.kind !== "netdev") continue;
        tx += nic.txBytesPerSecond;
        rx += nic.rxBytesPerSecond;
      }
    }
    list.push({
      id: node.id, name: oneLine(node.name, 60), phase: node.phase, stale, age: stale && seen !== null ? age(nowMs - seen) : null, ports: portsOf(node, sample),
      txBytesPerSecond: tx, rxBytesPerSecond: rx, marked: markOf(mark, node.id, markedId !== null),
    });
  }
  return {
    nodes: list,
    lanes: lanes.map((lane) => {
      const of = laneRate(lane, telemetry.flows, telemetry.nodes);
      return { ...lane, rate: of, stale: staleNode(of.sampledAtMs), marked: lane.id === markedId };
    }),
  };
}
