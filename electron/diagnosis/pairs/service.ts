import { randomInt, randomUUID } from "node:crypto";
import { setMaxListeners } from "node:events";
import { ConsoleError, RunSpec, toErrorView, type NodeView, type PairResult, type PairTestKind, type PairTestView, type RunView } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import { KeyedTopic } from "../../streams.js";
import { verbsPing } from "./verbs.js";

export interface PairsOptions {
  nodes: NodeDirectory;
  /** Two ranks over one transport, to the end. */
  probe(spec: RunSpec, signal: AbortSignal): Promise<RunView>;
  verbs?: typeof verbsPing;
}
type Sampling = PairTestView["sampling"];

/** Pairs that run at the same time; a node is in one of them at most, or its figures would be its neighbours'. */
const SIDE_BY_SIDE = 8;
/** A test's view is one message: so many results fit. */
const MAX_PAIRS = 2000;
const QUOTED_FAILURES = 100;
const KEPT = 50;
const PROBE = { collective: "send_recv", minBytes: 8, maxBytes: 1 << 20, stepFactor: 1024, iterations: 10, warmup: 2, timeoutMs: 15_000 } as const;

/**
 * Which pairs are tested: `all` ordered pairs, `ring` each with the next, `random` so many that every node comes once where that is enough.
 * @throws ConsoleError H607 more than 2,000
 */
export function choosePairs(nodeIds: readonly string[], sampling: Sampling, maxPairs: number, random: (below: number) => number = randomInt): [string, string][] {
  const n = nodeIds.length;
  if (sampling === "ring") return nodeIds.map((id, i) => [id, nodeIds[(i + 1) % n]!] as [string, string]).slice(0, n === 2 ? 1 : n);
  const total = n * (n - 1);
  if (sampling === "all") {
    if (total > MAX_PAIRS) throw ConsoleError.of("H607", { detail: `${total} pairs are more than ${MAX_PAIRS}: take a sample` });
    return nodeIds.flatMap((a) => nodeIds.filter((b) => b !== a).map((b) => [a, b] as [string, string]));
  }
  const chosen = new Map<string, [string, string]>();
  const add = (a: string, b: string): void => { if (a !== b && chosen.size < Math.min(maxPairs, total)) chosen.set(`${a} ${b}`, [a, b]); };
  const shuffled = [...nodeIds];
  for (let i = n - 1; i > 0; i--) { const j = random(i + 1); [shuffled[i], shuffled[j]] = [shuffled[j]!, shuffled[i]!]; }
  for (let i = 0; i < n; i += 2) add(shuffled[i]!, shuffled[(i + 1) % n]!);
  for (let tries = 0; chosen.size < Math.min(maxPairs, total) && tries < 50 * maxPairs; tries++) add(nodeIds[random(n)]!, nodeIds[random(n)]!);
  return [...chosen.values()];
}

/** Nodes that stand in more failed pairs than others, the likelier first. */
export function suspectsOf(results: readonly PairResult[]): PairTestView["suspects"] {
  const tally = new Map<string, { failed: number; of: number }>();
  const at = (id: string): { failed: number; of: number } => { const t = tally.get(id) ?? { failed: 0, of: 0 }; tally.set(id, t); return t; };
  for (const r of results) {
    if (r.state !== "ok" && r.state !== "failed") continue;
    at(r.from).of++;
    at(r.to).of++;
    if (r.state !== "failed") continue;
    // Where one half failed by itself, the other is not blamed.
    if (r.failed !== "to") at(r.from).failed++;
    if (r.failed !== "from") at(r.to).failed++;
  }
  const rows = [...tally].filter(([, t]) => t.failed > 0).map(([nodeId, t]) => ({ nodeId, ...t })).sort((a, b) => b.failed / b.of - a.failed / a.of || b.failed - a.failed);
  const worst = rows[0] ? rows[0].failed / rows[0].of : 0;
  return rows.filter((r) => r.failed / r.of >= worst * 0.75).slice(0, 16);
}

/** Pings between chosen nodes, by verbs and by StepCCL's own transports. */
export class Pairs {
  readonly topic: KeyedTopic<PairTestView>;
  readonly #views = new Map<string, PairTestView>();
  readonly #running = new Map<string, { abort: AbortController; over: Promise<void> }>();
  constructor(private readonly options: PairsOptions) {
    this.topic = new KeyedTopic({ list: () => this.list(), get: (id) => this.#views.get(id) });
  }

  list(): PairTestView[] {
    return [...this.#views.values()].reverse();
  }

  /** @throws ConsoleError H301, H607 */
  start(params: { nodeIds: readonly string[]; kinds: readonly PairTestKind[]; sampling: Sampling; maxPairs: number }): PairTestView {
    for (const nodeId of params.nodeIds) this.#node(nodeId);
    const kinds = [...new Set(params.kinds)];
    const pairs = choosePairs(params.nodeIds, params.sampling, params.maxPairs);
    if (pairs.length * kinds.length > MAX_PAIRS) throw ConsoleError.of("H607", { detail: `${pairs.length * kinds.length} tests are more than ${MAX_PAIRS}: take a sample` });
    const id = `pairs-${randomUUID()}`;
    const abort = new AbortController();
    setMaxListeners(0, abort.signal);
    this.#put({
      id, nodeIds: [...params.nodeIds], kinds, sampling: params.sampling, state: "running", startedAtMs: Date.now(), endedAtMs: null, suspects: [], error: null,
      results: pairs.flatMap(([from, to]) => kinds.map((kind): PairResult => ({ from, to, kind, state: "pending", latencyUs: null, bandwidthGBps: null, failed: null, text: null, evidence: [], error: null, endedAtMs: null }))),
    });
    const over = this.#carry(id, abort.signal).finally(() => this.#running.delete(id));
    this.#running.set(id, { abort, over });
    return this.#views.get(id)!;
  }

  /** @throws ConsoleError H609 */
  cancel(pairTestId: string): void {
    if (!this.#views.has(pairTestId)) throw ConsoleError.of("H609", { what: "pair test", id: pairTestId });
    this.#running.get(pairTestId)?.abort.abort();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#running.values()].map(({ abort, over }) => { abort.abort(); return over; }));
  }

  /** One verbs ping by itself, for a guide. @throws ConsoleError H301, H104 */
  ping(from: string, to: string, signal: AbortSignal): Promise<PairResult> {
    return (this.options.verbs ?? verbsPing)(this.options.nodes, this.#node(from), this.#node(to), signal);
  }

  async #carry(id: string, signal: AbortSignal): Promise<void> {
    const busy = new Set<string>();
    const waiting = this.#views.get(id)!.results.map((_r, i) => i);
    const running = new Set<Promise<void>>();
    while ((waiting.length > 0 || running.size > 0) && !signal.aborted) {
      const at = running.size >= SIDE_BY_SIDE ? -1 : waiting.findIndex((i) => { const r = this.#views.get(id)!.results[i]!; return !busy.has(r.from) && !busy.has(r.to); });
      if (at < 0) { await Promise.race(running); continue; }
      const [index] = waiting.splice(at, 1);
      const { from, to } = this.#views.get(id)!.results[index!]!;
      busy.add(from).add(to);
      const work = this.#one(id, index!, signal).finally(() => { busy.delete(from); busy.delete(to); running.delete(work); });
      running.add(work);
    }
    await Promise.all(running);
    const results = this.#views.get(id)!.results.map((r) => (r.state === "pending" || r.state === "running" ? { ...r, state: "cancelled" as const, endedAtMs: Date.now() } : r));
    this.#put({ ...this.#views.get(id)!, state: signal.aborted ? "cancelled" : "done", endedAtMs: Date.now(), results, suspects: suspectsOf(results) });
  }

  async #one(id: string, index: number, signal: AbortSignal): Promise<void> {
    const own = this.#views.get(id)!.results[index]!;
    this.#result(id, index, { ...own, state: "running" });
    try {
      const result = own.kind === "verbs" ? await this.ping(own.from, own.to, signal) : await this.#probe(own, own.kind, signal);
      this.#result(id, index, result);
    } catch (error) {
      this.#result(id, index, { ...own, state: signal.aborted ? "cancelled" : "failed", error: signal.aborted ? null : toErrorView(error), failed: signal.aborted ? null : "between", endedAtMs: Date.now() });
    }
  }

  async #probe(own: PairResult, transport: "tcp" | "rdma", signal: AbortSignal): Promise<PairResult> {
    const skipped = [own.from, own.to].map((n) => this.#node(n)).find((n) => n.phase !== "up" && n.phase !== "degraded");
    if (skipped) return { ...own, state: "skipped", text: { en: `${skipped.name} is not up.`, zh: `${skipped.name} 未就绪。` }, endedAtMs: Date.now() };
    const run = await this.options.probe(RunSpec.parse({ ...PROBE, nodeIds: [own.from, own.to], transport }), signal);
    const small = run.rows[0];
    const large = run.rows.at(-1);
    if (run.state === "succeeded" && small && large) return { ...own, state: "ok", latencyUs: small.outOfPlace.timeUs, bandwidthGBps: large.outOfPlace.algbwGBps, endedAtMs: Date.now() };
    const blamed = run.ranks.filter((r) => r.error !== null);
    const first = blamed.find((r) => r.error?.message === run.error?.message) ?? blamed[0];
    // When only one rank complains of something of its own, that half failed.
    const failed = blamed.length === 1 && first ? (first.nodeId === own.from ? "from" : "to") : "between";
    return { ...own, state: "failed", failed, error: run.error, text: null, endedAtMs: Date.now(), evidence: blamed.slice(0, 2).map((r) => ({ source: `rank ${r.rank}`, line: `${r.error!.code}: ${r.error!.message}`.slice(0, 300), lineNumber: null, meaning: null })) };
  }

  #node(nodeId: string): NodeView {
    const node = this.options.nodes.get(nodeId);
    if (!node) throw ConsoleError.of("H301", { nodeId });
    return node;
  }
  #result(id: string, index: number, result: PairResult): void {
    const view = this.#views.get(id)!;
    const results = view.results.slice();
    const failures = view.results.filter((r) => r.state === "failed").length;
    results[index] = failures < QUOTED_FAILURES ? result : { ...result, evidence: [] };
    this.#put({ ...view, results, suspects: suspectsOf(results) });
  }
  #put(view: PairTestView): void {
    this.#views.set(view.id, view);
    for (const [oldest, old] of this.#views) if (this.#views.size > KEPT && old.endedAtMs !== null) this.#views.delete(oldest);
    this.topic.changed(view.id);
  }
}
