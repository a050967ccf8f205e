import type { FlowSample, TelemetryTick } from "../../electron/contract/index.js";

export type NodeSample = TelemetryTick["nodes"][number];
export interface Point { atMs: number; value: number }

/** Points of each node that are kept for a sparkline. */
const HISTORY = 120;

export const flowKey = (from: string, to: string, transport: string): string => `${from}\u0000${to}\u0000${transport}`;

/**
 * Samples live here, outside React and outside zustand: ten ticks a second for a thousand nodes must not touch a reconciler.
 * Readers look at `version` (the map each frame, tables once a second).
 */
export class TelemetryBuffer {
  version = 0;
  atMs: number | null = null;
  readonly nodes = new Map<string, NodeSample>();
  readonly flows = new Map<string, FlowSample & { atMs: number }>();
  readonly #rates = new Map<string, Point[]>();
  readonly #listeners = new Set<() => void>();

  apply(tick: TelemetryTick): void {
    this.atMs = tick.atMs;
    for (const sample of tick.nodes) {
      const before = this.nodes.get(sample.nodeId);
      this.nodes.set(sample.nodeId, sample);
      if (before?.sampledAtMs !== sample.sampledAtMs) this.#record(sample);
    }
    for (const flow of tick.flows) this.flows.set(flowKey(flow.from, flow.to, flow.transport), { ...flow, atMs: tick.atMs });
    // A flow that is no longer told has ended: its rate is zero, its total stays.
    for (const flow of this.flows.values()) if (flow.atMs !== tick.atMs) flow.bytesPerSecond = 0;
    this.version++;
    for (const listener of [...this.#listeners]) listener();
  }

  /** The bytes a second that a node sent on all its netdevs, newest last. */
  history(nodeId: string): readonly Point[] {
    return this.#rates.get(nodeId) ?? [];
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  #record(sample: NodeSample): void {
    let value = 0;
    for (const nic of sample.nics) value += nic.txBytesPerSecond;
    const points = this.#rates.get(sample.nodeId) ?? [];
    points.push({ atMs: sample.sampledAtMs, value });
    if (points.length > HISTORY) points.splice(0, points.length - HISTORY);
    this.#rates.set(sample.nodeId, points);
  }
}
