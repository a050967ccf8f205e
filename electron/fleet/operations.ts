import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { ConsoleError, toErrorView, type ErrorView, type OperationView, type StepView } from "../contract/index.js";
import { plainLine } from "../ssh/index.js";
import { KeyedTopic } from "../streams.js";
import type { Documents } from "./store.js";

type NodeOperation = OperationView["nodes"][number];

/** Reports from inside one step. */
export interface StepReport {
  progress(done: number, total: number, unit: "bytes" | "items"): void;
  /** One line of what was found or done; hostile text is made plain. */
  detail(text: string): void;
}

/** What goes on with one node of one operation. */
export class NodeTask {
  constructor(readonly view: NodeOperation, readonly signal: AbortSignal, private readonly changed: () => void) {}

  /**
   * Runs one step: not begun when the operation was cancelled. `"skipped"` as result says that there was nothing to do.
   */
  async step<T>(id: string, work: (report: StepReport) => Promise<T>): Promise<T> {
    const step = this.view.steps.find((s) => s.id === id);
    if (!step) throw new Error(`no step ${id}`);
    if (this.signal.aborted) throw ConsoleError.of("H104");
    this.view.state = "running";
    Object.assign(step, { state: "running", startedAtMs: Date.now() });
    this.changed();
    try {
      const result = await work({
        progress: (done, total, unit) => {
          step.progress = { done, total, unit };
          this.changed();
        },
        detail: (text) => {
          step.detail = plainLine(text);
          this.changed();
        },
      });
      step.state = result === "skipped" ? "skipped" : "done";
      return result;
    } catch (error) {
      step.state = "failed";
      step.error = toErrorView(error);
      throw error;
    } finally {
      step.endedAtMs = Date.now();
      this.changed();
    }
  }

  /** Marks what `ids` did as undone, or says why it could not be. */
  rolledBack(ids: readonly string[], problem: string | null): void {
    for (const step of this.view.steps) {
      if (!ids.includes(step.id)) continue;
      if (problem !== null && (step.state === "done" || step.state === "failed")) step.detail = plainLine(problem);
      else if (step.state === "done") step.state = "rolled_back";
    }
    this.changed();
  }
}

/** All that goes on with nodes, newest first; what ended survives a restart. */
export class Operations {
  readonly topic: KeyedTopic<OperationView>;
  readonly #views = new Map<string, OperationView>();
  readonly #running = new Map<string, { abort: AbortController; over: Promise<void> }>();

  constructor(private readonly documents: Documents<OperationView>) {
    for (const view of documents.list().reverse()) {
      if (view.state === "running") documents.put(view.id, view.startedAtMs, interrupt(view));
      this.#views.set(view.id, view);
    }
    this.topic = new KeyedTopic({ list: () => this.list(), get: (id) => this.#views.get(id) });
  }

  list(): OperationView[] {
    return [...this.#views.values()].reverse();
  }

  /**
   * Starts `work` for each node by itself: one that fails leaves the others alone. The operation is over when all are.
   * `work` is called at once for every node and waits for its own turn.
   */
  start(kind: OperationView["kind"], nodeIds: readonly string[], steps: readonly string[], work: (nodeId: string, task: NodeTask) => Promise<void>): { id: string; over: Promise<void> } {
    const id = `${kind.replace("_", "-")}-${Date.now().toString(36)}-${randomBytes(3).toString("hex")}`;
    const view: OperationView = {
      id, kind, state: "running", startedAtMs: Date.now(), endedAtMs: null,
      nodes: [...new Set(nodeIds)].map((nodeId) => ({ nodeId, state: "pending", steps: steps.map(emptyStep), error: null })),
    };
    const abort = new AbortController();
    // Every node listens, and each of its commands.
    setMaxListeners(0, abort.signal);
    this.#views.set(id, view);
    this.documents.put(id, view.startedAtMs, view);
    const changed = (): void => this.topic.changed(id);
    const over = Promise.all(view.nodes.map((node) => runNode(node, new NodeTask(node, abort.signal, changed), work, changed))).then(() => {
      const states = new Set(view.nodes.map((n) => n.state));
      view.state = states.has("failed") ? "failed" : states.has("cancelled") ? "cancelled" : "succeeded";
      view.endedAtMs = Date.now();
      this.#running.delete(id);
      this.documents.put(id, view.startedAtMs, view);
      changed();
    });
    this.#running.set(id, { abort, over });
    changed();
    return { id, over };
  }

  /** Ends an operation: each node stops at its next safe point and is rolled back. One that is over stays as it is. */
  cancel(id: string): void {
    this.#running.get(id)?.abort.abort();
    if (!this.#views.has(id)) throw ConsoleError.of("H101", { detail: `there is no operation ${id}` });
  }

  /** Cancels everything and waits until all is rolled back. */
  async close(): Promise<void> {
    for (const { abort } of this.#running.values()) abort.abort();
    await Promise.all([...this.#running.values()].map((r) => r.over));
  }
}

async function runNode(node: NodeOperation, task: NodeTask, work: (nodeId: string, task: NodeTask) => Promise<void>, changed: () => void): Promise<void> {
  try {
    // Whoever starts an operation knows its id before anything of it happens.
    await Promise.resolve();
    await work(node.nodeId, task);
    node.state = "succeeded";
  } catch (error) {
    const view: ErrorView = toErrorView(error);
    node.state = view.code === "H104" ? "cancelled" : "failed";
    node.error = view;
  }
  changed();
}

const emptyStep = (id: string): StepView => ({ id, state: "pending", startedAtMs: null, endedAtMs: null, progress: null, detail: null, error: null });

/** An operation that the console's end cut off. The node's own journal undoes it at the next bring-up. */
function interrupt(view: OperationView): OperationView {
  const error = ConsoleError.of("H105", { detail: "the console ended while this was going on" }).view;
  view.state = "failed";
  view.endedAtMs = view.nodes.reduce((last, n) => n.steps.reduce((l, s) => Math.max(l, s.endedAtMs ?? s.startedAtMs ?? 0), last), view.startedAtMs);
  for (const node of view.nodes) {
    if (node.state !== "running" && node.state !== "pending") continue;
    Object.assign(node, { state: "failed", error });
    for (const step of node.steps) if (step.state === "running") Object.assign(step, { state: "failed", error });
  }
  return view;
}
