import { setTimeout as delay } from "node:timers/promises";
import { ConsoleError, type TelemetryTick } from "../contract/index.js";
import type { NodeDirectory } from "../link/directory.js";
import type { AgentClient } from "../link/types.js";
import { LatestTopic } from "../streams.js";
import { flowsBetween } from "./flows.js";
import { endedOps, totalsOf, type EndedOp } from "./frame.js";
import { RateMeter, type NodeRates } from "./rates.js";

export const SAMPLE_INTERVAL_MS = 500;
const RETRY_MS = { first: 500, most: 15_000 };

export interface TelemetryOptions {
  nodes: NodeDirectory;
  intervalMs?: number;
  /** Told each sample, with the operations that ended since the last. */
  onSample?: (nodeId: string, sample: NodeRates, ops: EndedOp[]) => void;
  /** A node that is gone from the console. */
  onGone?: (nodeId: string) => void;
  onError?: (error: unknown) => void;
}

/** Follows the telemetry of every node whose daemon runs. A slow or lost node holds up no other. */
export class Telemetry {
  readonly topic = new LatestTopic<TelemetryTick>(() => this.tick());
  readonly #nodes: NodeDirectory;
  readonly #intervalMs: number;
  readonly #onError: (error: unknown) => void;
  readonly #onSample: NonNullable<TelemetryOptions["onSample"]>;
  readonly #onGone: NonNullable<TelemetryOptions["onGone"]>;
  readonly #followed = new Map<string, AbortController>();
  readonly #samples = new Map<string, NodeRates>();
  readonly #leave: () => void;

  constructor(options: TelemetryOptions) {
    this.#nodes = options.nodes;
    this.#intervalMs = options.intervalMs ?? SAMPLE_INTERVAL_MS;
    this.#onError = options.onError ?? (() => {});
    this.#onSample = options.onSample ?? (() => {});
    this.#onGone = options.onGone ?? (() => {});
    this.#leave = options.nodes.onChange((ids) => ids.forEach((id) => this.#reconcile(id)));
    for (const node of options.nodes.list()) this.#reconcile(node.id);
  }

  /** The newest of every node, with its age; a node that fell silent keeps its last words. */
  tick(): TelemetryTick {
    const atMs = Date.now();
    const byMember = new Map(this.#nodes.list().flatMap((node) => (node.member === null ? [] : [[node.member, node.id] as const])));
    return {
      atMs,
      nodes: [...this.#samples].map(([nodeId, sample]) => ({
        nodeId, sampledAtMs: sample.sampledAtMs, ranks: sample.ranks, lostOps: sample.lostOps, daemonRssKib: sample.daemonRssKib,
        cpuPermille: sample.cpuPermille, memoryAvailableBytes: sample.memoryAvailableBytes,
        nics: sample.nics.map(({ port: _port, ...nic }) => nic),
      })),
      flows: flowsBetween(this.#samples, (member) => byMember.get(member), atMs),
    };
  }

  /** A node's newest sample. */
  sample(nodeId: string): NodeRates | undefined {
    return this.#samples.get(nodeId);
  }

  close(): void {
    this.#leave();
    for (const abort of this.#followed.values()) abort.abort();
    this.#followed.clear();
  }

  #reconcile(nodeId: string): void {
    const node = this.#nodes.get(nodeId);
    const wanted = node?.phase === "up" || node?.phase === "degraded";
    const following = this.#followed.get(nodeId);
    if (wanted && !following) {
      const abort = new AbortController();
      this.#followed.set(nodeId, abort);
      this.#follow(nodeId, abort.signal).catch(this.#onError);
    } else if (!wanted && following) {
      this.#followed.delete(nodeId);
      following.abort();
    }
    if (!node && this.#samples.delete(nodeId)) {
      this.#onGone(nodeId);
      this.topic.changed();
    }
  }

  async #follow(nodeId: string, signal: AbortSignal): Promise<void> {
    let wait = RETRY_MS.first;
    while (!signal.aborted) {
      try {
        const client = await this.#nodes.agent(nodeId, signal);
        const began = performance.now();
        await this.#read(nodeId, client, signal);
        if (performance.now() - began > 10_000) wait = RETRY_MS.first;
      } catch (error) {
        if (!(error instanceof ConsoleError)) throw error;
      }
      await delay(wait, undefined, { signal }).catch(() => undefined);
      wait = Math.min(wait * 2, RETRY_MS.most);
    }
  }

  /** Reads until the connection closes or nobody wants it any more. */
  async #read(nodeId: string, client: AgentClient, signal: AbortSignal): Promise<void> {
    const meter = new RateMeter();
    const leaveFrames = client.onFrame((frame) => {
      const sample = meter.feed(totalsOf(frame), Date.now());
      if (!sample) return;
      this.#samples.set(nodeId, sample);
      this.#onSample(nodeId, sample, endedOps(frame));
      this.topic.changed();
    });
    let leaveClose = (): void => {};
    const over = new Promise<void>((done) => {
      leaveClose = client.onClose(() => done());
      signal.addEventListener("abort", () => done(), { once: true });
    });
    try {
      const { subscription } = await client.call("telemetry.subscribe", { interval_ms: this.#intervalMs }, { signal });
      await over;
      if (!client.closed) await client.call("telemetry.unsubscribe", { subscription });
    } finally {
      leaveFrames();
      leaveClose();
    }
  }
}
