import type { AlertView, CheckedParams, HistorySeries, Thresholds } from "../contract/index.js";
import type { NodeDirectory } from "../link/directory.js";
import { KeyedTopic } from "../streams.js";
import type { EndedOp } from "../telemetry/frame.js";
import type { NodeRates } from "../telemetry/rates.js";
import { Recorder } from "./recorder.js";
import { AlertRules } from "./rules.js";
import type { AlertStore } from "./store.js";

const SETTLE_MS = 5_000;
/** An alert that lasts is written at most this often. */
const SAVE_MS = 10_000;
const PRUNE_MS = 3_600_000;
/** Alerts that are kept at hand. */
const SHOWN = 2000;

export interface AlertsOptions {
  nodes: NodeDirectory;
  store: AlertStore;
  onError?: (error: unknown) => void;
  now?: () => number;
}

/** Watches the telemetry of all nodes: what is out of bounds, and how things were. Both outlive the console. */
export class Alerts {
  readonly topic: KeyedTopic<AlertView>;
  readonly #o: Required<AlertsOptions>;
  readonly #alerts: Map<string, AlertView>;
  readonly #rules: AlertRules;
  readonly #recorder: Recorder;
  readonly #savedAt = new Map<string, number>();
  readonly #timers: NodeJS.Timeout[];
  #thresholds: Thresholds;

  constructor(options: AlertsOptions) {
    this.#o = { onError: () => {}, now: Date.now, ...options };
    this.#thresholds = options.store.thresholds();
    this.#alerts = new Map(options.store.load().map((alert) => [alert.id, alert]));
    this.topic = new KeyedTopic<AlertView>({ list: () => this.list(), get: (id) => this.#alerts.get(id) });
    this.#rules = new AlertRules(() => this.#thresholds, (alert) => this.#take(alert));
    this.#recorder = new Recorder((buckets) => this.#guard(() => options.store.record(buckets)));
    this.#timers = [
      setInterval(() => {
        this.#rules.settle(this.#o.now());
        this.#recorder.flush(this.#o.now());
      }, SETTLE_MS),
      setInterval(() => this.#guard(() => options.store.prune()), PRUNE_MS),
    ];
    for (const timer of this.#timers) timer.unref();
  }

  /** Newest first. */
  list(): AlertView[] {
    return [...this.#alerts.values()].sort((a, b) => b.startedAtMs - a.startedAtMs).slice(0, SHOWN);
  }

  /** One sample of one node, with the operations that ended since the last. */
  observe(nodeId: string, sample: NodeRates, ops: readonly EndedOp[]): void {
    const atMs = this.#o.now();
    const netdevs = sample.nics.filter((nic) => nic.kind === "netdev");
    // A RoCE port's bytes are its netdev's; an InfiniBand port has no netdev that counts them.
    const nics = [...netdevs, ...sample.nics.filter((nic) => nic.kind === "rdma" && nic.txBytes + nic.rxBytes > 0)];
    this.#rules.observe({ nodeId, nodeName: this.#o.nodes.get(nodeId)?.name ?? nodeId, atMs, ops, nics, busy: sample.flows.some((flow) => flow.queueDepth > 0) });
    const sum = (of: (nic: (typeof nics)[number]) => number): number => nics.reduce((all, nic) => all + of(nic), 0);
    const slowest = ops.reduce((worst, op) => Math.max(worst, op.durationMs), 0);
    this.#recorder.add(nodeId, atMs, {
      tx_bytes_per_second: sum((nic) => nic.txBytesPerSecond), rx_bytes_per_second: sum((nic) => nic.rxBytesPerSecond), cpu_percent: sample.cpuPermille / 10, memory_available_bytes: sample.memoryAvailableBytes,
      ops_per_second: (ops.length * 1000) / Math.max(1, sample.intervalMs), ...(ops.length > 0 ? { op_latency_ms: slowest } : {}),
    });
  }

  forget(nodeId: string): void {
    this.#rules.forget(nodeId);
  }

  /** Ids that are not known any more are passed over. */
  acknowledge(ids: readonly string[]): void {
    const atMs = this.#o.now();
    const seen = ids.flatMap((id) => {
      const alert = this.#alerts.get(id);
      return alert && alert.acknowledgedAtMs === null ? [{ ...alert, acknowledgedAtMs: atMs }] : [];
    });
    for (const alert of seen) {
      this.#rules.acknowledge(alert.id, atMs);
      this.#alerts.set(alert.id, alert);
    }
    this.#o.store.save(seen);
    this.topic.changed(...seen.map((alert) => alert.id));
  }

  thresholds(): Thresholds {
    return this.#thresholds;
  }
  setThreshold({ rule, ...threshold }: CheckedParams<"alerts.setThreshold">): Thresholds {
    this.#o.store.setThreshold(rule, threshold);
    this.#thresholds = { ...this.#thresholds, [rule]: threshold };
    return this.#thresholds;
  }

  history({ metric, fromMs, toMs, points }: CheckedParams<"history.get">): HistorySeries[] {
    this.#recorder.flush(this.#o.now());
    return this.#o.store.curves(metric, fromMs, toMs, points);
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
    this.#recorder.flush();
    this.#guard(() => this.#o.store.save([...this.#alerts.values()].filter((alert) => alert.endedAtMs === null)));
  }

  #take(alert: AlertView): void {
    const old = this.#alerts.get(alert.id);
    this.#alerts.set(alert.id, alert);
    const now = this.#o.now();
    if (!old || alert.endedAtMs !== null || now - (this.#savedAt.get(alert.id) ?? 0) >= SAVE_MS) {
      this.#guard(() => this.#o.store.save([alert]));
      if (alert.endedAtMs === null) this.#savedAt.set(alert.id, now);
      else this.#savedAt.delete(alert.id);
    }
    if (!old && this.#alerts.size > SHOWN) for (const gone of [...this.#alerts.values()].filter((a) => a.endedAtMs !== null).sort((a, b) => a.startedAtMs - b.startedAtMs).slice(0, this.#alerts.size - SHOWN)) {
      this.#alerts.delete(gone.id);
      this.topic.changed(gone.id);
    }
    this.topic.changed(alert.id);
  }

  /** A full disk must not end the watch. */
  #guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#o.onError(error);
    }
  }
}
