import { setTimeout as delay } from "node:timers/promises";
import { COLLECTIVE_TAKES, ConsoleError, toErrorView, type ErrorView } from "../contract/index.js";
import type { NodeDirectory } from "../link/directory.js";
import type { AgentParams, RunEvent } from "../link/schemas.js";
import type { AgentClient } from "../link/types.js";
import { onlyEchoes } from "./blame.js";
import type { Run, RunSignal } from "./run.js";

export interface Timing {
  /** How long to wait for the cause when so far only its echoes came, and when the cause itself came. */
  echoGraceMs: number;
  causeGraceMs: number;
  /** How long a lost daemon may take to come back with the run still going on. */
  resumeMs: number;
  /** How often a daemon is asked for a sign of life, and how long its answer may take on a node whose network still answers. */
  pingMs: number;
  pingTimeoutMs: number;
  /** After so long without an answer the node's network is asked, which has so long for its own. Together with pingMs below 5 s. */
  doubtMs: number;
  probeMs: number;
  startTimeoutMs: number;
  stopTimeoutMs: number;
}
export const DEFAULT_TIMING: Timing = {
  echoGraceMs: 2000, causeGraceMs: 300, resumeMs: 2500, pingMs: 1000, pingTimeoutMs: 8000, doubtMs: 1500, probeMs: 1800, startTimeoutMs: 30_000, stopTimeoutMs: 5000,
};

/**
 * Carries one run from its start to its end: rank 0's node first (it gives the unique id), the others at once after it;
 * then listens on every node, and ends the run everywhere as soon as a rank or a daemon is lost. Never rejects: what goes wrong is in the run.
 */
export class Launch {
  readonly done: Promise<void>;
  readonly #abort = new AbortController();
  readonly #leave: (() => void)[] = [];
  readonly #nextSeq = new Map<string, number>();
  #stopped = false;
  #finish: () => void = () => {};
  readonly #finished = new Promise<void>((done) => { this.#finish = done; });
  #deadline: NodeJS.Timeout | undefined;
  #fast = false;
  /** Nodes whose connection broke and whose daemon may yet come back, with what was said last. */
  readonly #inDoubt = new Map<string, string>();

  constructor(
    private readonly run: Run, private readonly rendezvous: string, private readonly clients: ReadonlyMap<string, AgentClient>,
    private readonly nodes: NodeDirectory, private readonly timing: Timing,
    private readonly on: { changed(): void; /** The node is out of the run, or cannot be reached. */ free(nodeId: string): void },
  ) {
    this.done = this.#carry();
  }

  /** The operator's stop. Resolves when the run has ended everywhere it could be reached. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.run.markStopping();
    this.#abort.abort();
    this.#finish();
    await this.done;
  }

  async #carry(): Promise<void> {
    const [first, ...others] = this.run.plan.nodes;
    try {
      for (const node of this.run.plan.nodes) this.#watch(node.nodeId, this.clients.get(node.nodeId)!);
      const uniqueId = await this.#start(first!.nodeId, null);
      if (!this.#abort.signal.aborted && uniqueId !== undefined) {
        await Promise.all(others.map((node) => this.#start(node.nodeId, uniqueId)));
      }
      await this.#finished;
    } finally {
      clearTimeout(this.#deadline);
      const failed = this.run.suspects.length > 0;
      this.run.markStopping();
      this.#abort.abort();
      // A failure is shown at once; an unreachable node must not hold it back. A stop is done when it is done everywhere.
      if (failed) this.#conclude();
      if (failed || this.#stopped) await this.#stopAll();
      this.#conclude();
    }
  }

  #conclude(): void {
    for (const leave of this.#leave.splice(0)) leave();
    this.run.conclude(Date.now(), this.#stopped);
    this.on.changed();
  }

  /** Starts the ranks of one node; gives the unique id, or undefined when it failed (the run knows). */
  async #start(nodeId: string, uniqueId: string | null): Promise<string | undefined> {
    const client = this.clients.get(nodeId)!;
    const spec = this.run.spec;
    const params: AgentParams<"run.start"> = {
      run_id: this.run.id, collective: spec.collective, transport: spec.transport, world_size: this.run.plan.worldSize,
      ranks: this.run.plan.nodes.find((node) => node.nodeId === nodeId)!.ranks, unique_id: uniqueId, rendezvous: { address: this.rendezvous },
      datatype: spec.datatype, redop: spec.redop, ...(COLLECTIVE_TAKES[spec.collective].root ? { root: spec.root } : {}), algorithm: spec.algorithm, min_bytes: spec.minBytes, max_bytes: spec.maxBytes,
      step_factor: spec.stepFactor, iterations: spec.iterations, warmup: spec.warmup, check: spec.check, timeout_ms: spec.timeoutMs, env: {},
    };
    try {
      const answer = await client.call("run.start", params, { signal: this.#abort.signal, timeoutMs: this.timing.startTimeoutMs });
      await client.call("run.subscribe", { run_id: this.run.id, from_seq: 0 }, { signal: this.#abort.signal, timeoutMs: this.timing.startTimeoutMs });
      if (uniqueId === null && answer.unique_id === null) throw ConsoleError.of("H404", { host: nodeId, detail: "run.start on rank 0's node gave no unique id" });
      return answer.unique_id ?? uniqueId ?? undefined;
    } catch (error) {
      if (this.#stopped) return undefined;
      this.run.failLaunch(nodeId, toErrorView(error));
      this.on.changed();
      this.#onSignal("failing");
      return undefined;
    }
  }

  #watch(nodeId: string, client: AgentClient): void {
    const leaveEvents = client.onRunEvent((event) => this.#onEvent(nodeId, event));
    const leaveClose = client.onClose((reason) => void this.#onLost(nodeId, reason.view));
    let asking = false;
    const ping = setInterval(() => {
      if (asking || this.run.nodeEnded(nodeId)) return;
      asking = true;
      const answered = new AbortController();
      const doubt = setTimeout(() => void this.#doubt(nodeId, answered.signal), this.timing.doubtMs);
      client.call("run.list", {}, { timeoutMs: this.timing.pingTimeoutMs }).catch((error: unknown) => {
        // A closed connection is told by onClose; an error that the daemon words itself is a sign of life.
        if (toErrorView(error).code === "H209") this.#lose(nodeId, "it gives no sign of life");
      }).finally(() => {
        asking = false;
        answered.abort();
        clearTimeout(doubt);
      });
    }, this.timing.pingMs);
    this.#leave.push(leaveEvents, leaveClose, () => clearInterval(ping));
  }

  /**
   * The daemon is silent. A node that is off says nothing at all, and TCP takes minutes to notice: where not even its network
   * stack answers, it is gone; where that does, the daemon is slow and gets its time.
   */
  async #doubt(nodeId: string, answered: AbortSignal): Promise<void> {
    const over = AbortSignal.any([answered, this.#abort.signal]);
    const silent = AbortSignal.timeout(this.timing.probeMs);
    const answers = await this.nodes.reachable(nodeId, AbortSignal.any([over, silent])).catch(() => false);
    if (!answers && !over.aborted) this.#lose(nodeId, "neither its daemon nor its network answers");
  }

  #onEvent(nodeId: string, event: RunEvent): void {
    if (event.run_id !== this.run.id || event.seq < (this.#nextSeq.get(nodeId) ?? 0)) return;
    this.#nextSeq.set(nodeId, event.seq + 1);
    if (event.rank !== null && event.event["event"] !== "spawned" && event.event["event"] !== "stderr" && event.event["event"] !== "exited") this.run.markRankRunning(event.rank);
    const signal = this.run.apply(nodeId, event.rank, event.event);
    this.on.changed();
    this.#onSignal(signal);
  }

  #onSignal(signal: RunSignal): void {
    if (signal === "finished") this.#finish();
    if (signal !== "failing") return;
    // The clock starts with the first bad news, and is shortened once when the news names its own cause.
    const echoes = onlyEchoes(this.run.suspects);
    if (this.#deadline && (this.#fast || echoes)) return;
    clearTimeout(this.#deadline);
    this.#fast = !echoes;
    this.#deadline = setTimeout(() => {
      // Its peers complain and its connection is gone: two witnesses, no need to wait longer for it.
      for (const [nodeId, detail] of this.#inDoubt) this.#lose(nodeId, detail);
      this.#finish();
    }, echoes ? this.timing.echoGraceMs : this.timing.causeGraceMs);
  }

  /** The connection to a daemon closed. A daemon that lives on keeps its run: look for it a moment before giving it up. */
  async #onLost(nodeId: string, reason: ErrorView): Promise<void> {
    if (this.run.ended || this.run.nodeEnded(nodeId) || this.#abort.signal.aborted) return;
    this.#inDoubt.set(nodeId, reason.message);
    const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(this.timing.resumeMs)]);
    const back = await this.#resume(nodeId, signal);
    this.#inDoubt.delete(nodeId);
    if (!back && !this.#abort.signal.aborted) this.#lose(nodeId, reason.message);
  }

  async #resume(nodeId: string, signal: AbortSignal): Promise<boolean> {
    while (!signal.aborted) {
      try {
        const client = await this.nodes.agent(nodeId, signal);
        this.#watch(nodeId, client);
        await client.call("run.subscribe", { run_id: this.run.id, from_seq: this.#nextSeq.get(nodeId) ?? 0 }, { signal });
        return true;
      } catch (error) {
        // It answers and does not know the run: it was started anew, and its workers are gone with the old one.
        if (toErrorView(error).code === "A201") return false;
        await delay(250, undefined, { signal }).catch(() => undefined);
      }
    }
    return false;
  }

  #lose(nodeId: string, detail: string): void {
    const signal = this.run.loseNode(nodeId, ConsoleError.of("H402", { host: nodeId, detail }).view);
    this.on.changed();
    this.#onSignal(signal);
  }

  /** Ends the run on every node that can be reached, so that all are free again. */
  async #stopAll(): Promise<void> {
    await Promise.all(this.run.plan.nodes.map(async ({ nodeId }) => {
      const signal = AbortSignal.timeout(this.timing.stopTimeoutMs);
      try {
        const kept = this.clients.get(nodeId)!;
        const client = kept.closed ? await this.nodes.agent(nodeId, signal) : kept;
        await client.call("run.stop", { run_id: this.run.id }, { signal });
      } catch (error) {
        // The run ends as it does; a node that cannot be told is either lost already or does not know the run.
        if (!(error instanceof ConsoleError)) throw error;
      } finally {
        this.on.free(nodeId);
      }
    }));
  }
}
