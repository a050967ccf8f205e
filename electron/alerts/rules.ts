import type { AlertRule, AlertView, Thresholds } from "../contract/index.js";
import type { EndedOp } from "../telemetry/frame.js";

export interface NicUse {
  name: string;
  speedMbps: number;
  txBytesPerSecond: number;
  rxBytesPerSecond: number;
}
/** What a node said at one moment. */
export interface Observation {
  nodeId: string;
  nodeName: string;
  atMs: number;
  ops: readonly EndedOp[];
  nics: readonly NicUse[];
  /** Operations are posted and not completed: the links should be working. */
  busy: boolean;
}

const TIMEOUTS: ReadonlySet<number> = new Set([203, 207]);
/** Rates are of this span, and need so many operations to mean anything. */
export const WINDOW_MS = 300_000;
export const LEAST_OPS = 100;
/** A link counts as under-used when it was so for all of this, without a pause in the work. */
export const USE_MS = 10_000;
/** What happens at a moment (a slow operation, a timeout) is over after so long without another. */
export const QUIET_MS = 60_000;
const SLOT_MS = 5_000;

interface Slot {
  atMs: number;
  ops: number;
  timeouts: number;
  failures: number;
}
interface NodeState {
  slots: Slot[];
  /** Since when each interface has been under-used, without a pause. */
  lowSince: Map<string, number>;
}

/**
 * Turns observations into alerts. Each (rule, node, subject) has at most one alert that lasts; it keeps the worst value, how
 * often it was seen and when last. Memory is bounded by nodes and interfaces, never by the rate of operations.
 */
export class AlertRules {
  readonly #nodes = new Map<string, NodeState>();
  readonly #open = new Map<string, AlertView>();

  constructor(private readonly thresholds: () => Thresholds, private readonly changed: (alert: AlertView) => void) {}

  observe(o: Observation): void {
    const node = this.#node(o.nodeId);
    const slowest = o.ops.reduce((worst, op) => Math.max(worst, op.durationMs), 0);
    const timeouts = o.ops.filter((op) => TIMEOUTS.has(op.error)).length;
    this.#count(node, o, timeouts);
    const limit = (rule: AlertRule): number | null => (this.thresholds()[rule].enabled ? this.thresholds()[rule].value : null);
    const latency = limit("latency");
    if (latency !== null && slowest > latency) this.#see("latency", o, null, slowest, latency, o.ops.filter((op) => op.durationMs > latency).length, Math.max);
    if (this.thresholds().timeout.enabled && timeouts > 0) this.#see("timeout", o, null, timeouts, null, timeouts, (a, b) => a + b);
    const sum = node.slots.reduce((all, slot) => ({ ops: all.ops + slot.ops, timeouts: all.timeouts + slot.timeouts, failures: all.failures + slot.failures }), { ops: 0, timeouts: 0, failures: 0 });
    this.#rate("timeout_rate", o, sum.timeouts, sum.ops, limit("timeout_rate"));
    this.#rate("failure_rate", o, sum.failures, sum.ops, limit("failure_rate"));
    this.#links(node, o, limit("utilization"));
  }

  /** Ends what was not seen again; called now and then, also while a node says nothing. */
  settle(nowMs: number): void {
    for (const [key, alert] of this.#open) if (nowMs - alert.lastAtMs > QUIET_MS) this.#end(key, alert, alert.lastAtMs);
  }

  forget(nodeId: string): void {
    this.#nodes.delete(nodeId);
    for (const [key, alert] of this.#open) if (alert.nodeId === nodeId) this.#end(key, alert, alert.lastAtMs);
  }

  #node(nodeId: string): NodeState {
    let node = this.#nodes.get(nodeId);
    if (!node) this.#nodes.set(nodeId, (node = { slots: [], lowSince: new Map() }));
    return node;
  }

  #count(node: NodeState, o: Observation, timeouts: number): void {
    node.slots = node.slots.filter((slot) => o.atMs - slot.atMs < WINDOW_MS);
    let slot = node.slots.at(-1);
    if (!slot || o.atMs - slot.atMs >= SLOT_MS) node.slots.push((slot = { atMs: o.atMs, ops: 0, timeouts: 0, failures: 0 }));
    slot.ops += o.ops.length;
    slot.timeouts += timeouts;
    slot.failures += o.ops.filter((op) => op.failed).length;
  }

  #rate(rule: "timeout_rate" | "failure_rate", o: Observation, bad: number, ops: number, limit: number | null): void {
    const percent = ops < LEAST_OPS ? 0 : (bad / ops) * 100;
    if (limit !== null && percent > limit) this.#see(rule, o, null, percent, limit, 1, Math.max);
    else this.#stop(rule, o, null);
  }

  #links(node: NodeState, o: Observation, limit: number | null): void {
    const names = new Set(o.nics.map((nic) => nic.name));
    for (const name of node.lowSince.keys()) if (!names.has(name)) node.lowSince.delete(name);
    for (const nic of o.nics) {
      // A link without a known speed has no utilization.
      const percent = nic.speedMbps > 0 ? (Math.max(nic.txBytesPerSecond, nic.rxBytesPerSecond) * 8) / (nic.speedMbps * 1e4) : null;
      // An interface that moves next to nothing is not the one that the work goes over.
      const used = percent !== null && percent >= 1;
      if (limit === null || !o.busy || !used || percent >= limit) {
        node.lowSince.delete(nic.name);
        if (percent !== null) this.#stop("utilization", o, nic.name);
        continue;
      }
      const since = node.lowSince.get(nic.name) ?? o.atMs;
      node.lowSince.set(nic.name, since);
      if (o.atMs - since >= USE_MS) this.#see("utilization", o, nic.name, percent, limit, 1, Math.min);
    }
  }

  #see(rule: AlertRule, o: Observation, subject: string | null, value: number, threshold: number | null, count: number, worst: (a: number, b: number) => number): void {
    const key = keyOf(rule, o.nodeId, subject);
    const old = this.#open.get(key);
    const alert: AlertView = old
      ? { ...old, lastAtMs: o.atMs, worst: worst(old.worst, value), count: old.count + count, threshold }
      : { id: `${key} ${o.atMs}`, rule, nodeId: o.nodeId, nodeName: o.nodeName, subject, startedAtMs: o.atMs, endedAtMs: null, lastAtMs: o.atMs, worst: value, threshold, count, acknowledgedAtMs: null };
    this.#open.set(key, alert);
    this.changed(alert);
  }

  /** The operator has seen it. */
  acknowledge(id: string, atMs: number): void {
    for (const [key, alert] of this.#open) if (alert.id === id) this.#open.set(key, { ...alert, acknowledgedAtMs: atMs });
  }

  #stop(rule: AlertRule, o: Observation, subject: string | null): void {
    const key = keyOf(rule, o.nodeId, subject);
    const alert = this.#open.get(key);
    if (alert) this.#end(key, alert, o.atMs);
  }

  #end(key: string, alert: AlertView, atMs: number): void {
    this.#open.delete(key);
    this.changed({ ...alert, endedAtMs: atMs });
  }
}

const keyOf = (rule: AlertRule, nodeId: string, subject: string | null): string => [rule, nodeId, ...(subject === null ? [] : [subject])].join(" ").slice(0, 150);
