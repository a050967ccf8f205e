import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { ConsoleError, type Collective, type RunSpec, type RunView } from "../contract/index.js";
import type { NodeDirectory } from "../link/directory.js";
import type { Cluster } from "../link/schemas.js";
import type { AgentClient } from "../link/types.js";
import { KeyedTopic } from "../streams.js";
import { exportRun } from "./export.js";
import { DEFAULT_TIMING, Launch, type Timing } from "./launch.js";
import type { Modeller } from "./model.js";
import { planRun, rendezvousAddress, type RunPlan } from "./plan.js";
import { Run } from "./run.js";
import type { RunStore } from "./store.js";

export interface CollectivesOptions {
  nodes: NodeDirectory;
  store: RunStore;
  /** Fits and predictions; without it runs have no model. */
  modeller?: Modeller;
  timing?: Partial<Timing>;
  /** Told what must not be lost and has no caller to go to, such as a run that could not be saved. */
  onError?: (error: unknown) => void;
}

/** Runs of collectives: starts, follows, ends and keeps them. */
export class Collectives {
  readonly topic: KeyedTopic<RunView>;
  readonly #nodes: NodeDirectory;
  readonly #store: RunStore;
  readonly #modeller: Modeller | undefined;
  readonly #timing: Timing;
  readonly #onError: (error: unknown) => void;
  readonly #views = new Map<string, RunView>();
  readonly #active = new Map<string, Launch>();
  /** Nodes that a run of this console holds, from before its first call to after its last. */
  readonly #busy = new Map<string, string>();

  constructor(options: CollectivesOptions) {
    this.#nodes = options.nodes;
    this.#store = options.store;
    this.#modeller = options.modeller;
    this.#timing = { ...DEFAULT_TIMING, ...options.timing };
    this.#onError = options.onError ?? (() => {});
    for (const view of options.store.load()) this.#views.set(view.id, view);
    this.topic = new KeyedTopic<RunView>({ list: () => this.list(), get: (id) => this.#views.get(id) });
  }

  /** Newest first. */
  list(): RunView[] {
    return [...this.#views.values()].sort((a, b) => b.startedAtMs - a.startedAtMs);
  }

  /** @throws ConsoleError H505 */
  get(runId: string): RunView {
    const view = this.#views.get(runId);
    if (!view) throw ConsoleError.of("H505", { runId });
    return view;
  }

  /**
   * Checks all that can be checked without starting anything, then starts and gives the run as it stands.
   * @throws ConsoleError H501, H502, H503, H506, H301, H401: nothing was started
   */
  async start(spec: RunSpec, signal?: AbortSignal): Promise<RunView> {
    return (await this.#begin(spec, true, signal)).view;
  }

  /**
   * Runs to its end and gives the result, which is kept in no list: for tests that come in dozens. Ended when `signal` is.
   * @throws ConsoleError as `start`, and H104
   */
  async probe(spec: RunSpec, signal: AbortSignal): Promise<RunView> {
    const { run, launch } = await this.#begin(spec, false, signal);
    const stop = (): void => void launch.stop();
    signal.addEventListener("abort", stop);
    await launch.done.finally(() => signal.removeEventListener("abort", stop));
    if (signal.aborted) throw ConsoleError.of("H104");
    return run.view();
  }

  async #begin(spec: RunSpec, listed: boolean, signal?: AbortSignal): Promise<{ run: Run; launch: Launch; view: RunView }> {
    const plan = planRun(spec, (nodeId) => this.#nodes.get(nodeId));
    await this.#letLeave(plan, signal);
    for (const node of plan.nodes) {
      const runId = this.#busy.get(node.nodeId);
      if (runId !== undefined) throw ConsoleError.of("H506", { name: node.name, runId });
    }
    const runId = `r${Date.now().toString(36)}-${randomBytes(4).toString("hex")}`;
    for (const node of plan.nodes) this.#busy.set(node.nodeId, runId);
    try {
      const clients = await this.#clients(plan, signal);
      await this.#refuseBusy(plan, clients, signal);
      const address = rendezvousAddress(spec, plan, await this.#clusters(plan, clients, signal));
      signal?.throwIfAborted();
      const run = new Run(runId, spec, plan, Date.now());
      return { run, launch: this.#launch(run, address, clients, listed), view: run.view() };
    } catch (error) {
      this.#release(runId);
      throw error;
    }
  }

  /** @throws ConsoleError H105 without the addon */
  async algorithms(worldSize: number): Promise<Record<Collective, string[]>> {
    if (!this.#modeller) throw ConsoleError.of("H105", { detail: "there is no model of the runtime's schedules" });
    return this.#modeller.algorithms(worldSize);
  }

  /** Ends a run everywhere; no error when it has ended already. @throws ConsoleError H505 */
  async stop(runId: string): Promise<void> {
    this.get(runId);
    await this.#active.get(runId)?.stop();
  }

  export(runId: string, format: "csv" | "json"): { fileName: string; mediaType: string; text: string } {
    return exportRun(this.get(runId), format);
  }

  /** Stops what runs, so that nothing is left behind on the nodes. */
  async close(): Promise<void> {
    const ends = [...this.#active.values()].map((launch) => launch.stop());
    await Promise.allSettled(ends);
    await new Promise((done) => setImmediate(done));
    this.#store.close();
  }

  #launch(run: Run, address: string, clients: ReadonlyMap<string, AgentClient>, listed: boolean): Launch {
    const changed = (): void => {
      if (!listed) return;
      this.#views.set(run.id, run.view());
      this.topic.changed(run.id);
    };
    const save = (): void => {
      if (listed) this.#store.save(run.view());
    };
    changed();
    save();
    let rows = 0;
    const launch = new Launch(run, address, clients, this.#nodes, this.#timing, {
      changed: () => {
        if (run.rows.length !== rows && this.#modeller) {
          rows = run.rows.length;
          this.#modeller.apply(run);
        }
        changed();
      },
      free: (nodeId) => {
        if (this.#busy.get(nodeId) === run.id) this.#busy.delete(nodeId);
      },
    });
    this.#active.set(run.id, launch);
    launch.done.catch(this.#onError).then(() => {
      this.#active.delete(run.id);
      this.#release(run.id);
      changed();
      save();
    }).catch(this.#onError);
    return launch;
  }

  /** A run that has just failed is still being ended on its nodes: a new one there waits for that, not for the nodes that were lost. */
  async #letLeave(plan: RunPlan, signal?: AbortSignal): Promise<void> {
    const leaving = (): boolean => plan.nodes.some((node) => {
      const runId = this.#busy.get(node.nodeId);
      return runId !== undefined && (this.#views.get(runId)?.endedAtMs ?? null) !== null;
    });
    for (let waitedMs = 0; leaving() && waitedMs < this.#timing.stopTimeoutMs; waitedMs += 25) await delay(25, undefined, signal ? { signal } : {});
  }

  #release(runId: string): void {
    for (const [nodeId, holder] of this.#busy) if (holder === runId) this.#busy.delete(nodeId);
  }

  async #clients(plan: RunPlan, signal?: AbortSignal): Promise<Map<string, AgentClient>> {
    const pairs = await Promise.all(plan.nodes.map(async (node) => [node.nodeId, await this.#nodes.agent(node.nodeId, signal)] as const));
    return new Map(pairs);
  }

  /** A run of another console (or of a user at the node) holds its nodes too. One of ours that was just ended gets a moment to go. */
  async #refuseBusy(plan: RunPlan, clients: ReadonlyMap<string, AgentClient>, signal?: AbortSignal): Promise<void> {
    await Promise.all(plan.nodes.map(async (node) => {
      for (let waitedMs = 0; ; waitedMs += 200) {
        const { runs } = await clients.get(node.nodeId)!.call("run.list", {}, signal ? { signal } : {});
        const running = runs.find((run) => run.state === "running");
        if (!running) return;
        const leaving = (this.#views.get(running.run_id)?.endedAtMs ?? null) !== null;
        if (!leaving || waitedMs >= 3000) throw ConsoleError.of("H506", { name: node.name, runId: running.run_id });
        await delay(200, undefined, signal ? { signal } : {});
      }
    }));
  }

  async #clusters(plan: RunPlan, clients: ReadonlyMap<string, AgentClient>, signal?: AbortSignal): Promise<(nodeId: string) => Cluster | null> {
    const entries = await Promise.all(plan.nodes.map(async (node) => {
      try {
        return [node.nodeId, await clients.get(node.nodeId)!.call("cluster.get", {}, signal ? { signal } : {})] as const;
      } catch (error) {
        if (error instanceof ConsoleError && error.view.code === "A301") return [node.nodeId, null] as const;
        throw error;
      }
    }));
    const clusters = new Map<string, Cluster | null>(entries);
    return (nodeId) => clusters.get(nodeId) ?? null;
  }
}
