import type { z } from "zod";
import { ConsoleError, SOURCE_PIECE_CHARS, toErrorView, type DiagnosisView, type NodeView, type SourcePiece } from "../contract/index.js";
import type { NodeTask, Operations } from "../fleet/operations.js";
import type { ClusterState } from "../fleet/store.js";
import type { NodeDirectory } from "../link/directory.js";
import { plainLine } from "../ssh/quote.js";
import { KeyedTopic } from "../streams.js";
import { collect, type CollectedSources } from "./collect.js";
import { judgeNode } from "./diagnose.js";
import { peerAnswers, TIMED_OUT, type LiveNode, type Settled } from "./live/index.js";
import { sourcesFor, type Spec } from "./sources.js";

/** Where diagnoses are kept between two starts of the console; fleet/store.ts has one. */
export interface DiagnosisDocuments {
  list(): DiagnosisView[];
  put(id: string, startedAtMs: number, document: DiagnosisView): void;
  remove(id: string): void;
}

export interface DiagnosisOptions {
  nodes: NodeDirectory;
  operations: Pick<Operations, "start">;
  documents: DiagnosisDocuments;
  /** The members as this console told them to the daemons: for a node whose own daemon cannot be asked. */
  members: () => ClusterState["members"];
}

/** How long the daemon may take to tell the membership. */
const CLUSTER_TIMEOUT_MS = 5_000;

/** Of so many nodes the whole texts are kept, for comparing and for re-tests. */
const KEPT_NODES = 256;

/** So many others try again at a re-test. */
const MAX_ACCUSERS = 8;

const STEPS = ["collect", "evaluate"] as const;

/** Diagnoses of nodes: reads, judges, keeps the newest of each node. */
export class Diagnosis {
  readonly topic: KeyedTopic<DiagnosisView>;
  readonly #views = new Map<string, DiagnosisView>();
  readonly #collected = new Map<string, CollectedSources>();
  readonly #memberships = new Map<string, Membership>();
  readonly #settled = new Map<string, Settled>();
  readonly #leave: () => void;

  constructor(private readonly options: DiagnosisOptions) {
    for (const view of options.documents.list().reverse()) this.#views.set(view.nodeId, interrupted(view));
    this.topic = new KeyedTopic({ list: () => this.list(), get: (nodeId) => this.#views.get(nodeId) });
    this.#leave = options.nodes.onChange((ids) => {
      for (const id of ids) if (!options.nodes.get(id) && this.#views.delete(id)) this.#forgot(id);
    });
  }

  list(): DiagnosisView[] {
    return [...this.#views.values()].sort((a, b) => b.startedAtMs - a.startedAtMs);
  }

  /** Begins a diagnosis of these nodes, each by itself and then side by side. @throws ConsoleError H301 */
  start(nodeIds: readonly string[]): { operationId: string } {
    const { operationId } = this.run(nodeIds);
    return { operationId };
  }

  /** The same, with its end. @throws ConsoleError H301 */
  run(nodeIds: readonly string[]): { operationId: string; over: Promise<void> } {
    const ids = [...new Set(nodeIds)];
    for (const nodeId of ids) if (!this.options.nodes.get(nodeId)) throw ConsoleError.of("H301", { nodeId });
    const read = new Map(ids.map((nodeId) => [nodeId, deferred<CollectedSources | null>()]));
    const others = Promise.all([...read].map(async ([nodeId, { promise }]) => [nodeId, await promise] as const));
    const { id, over } = this.options.operations.start("diagnose", ids, STEPS, async (nodeId, task) => {
      const mine = read.get(nodeId)!;
      try {
        await this.#diagnose(nodeId, task, (sources) => mine.resolve(sources), others);
      } finally {
        mine.resolve(null);
      }
    });
    return { operationId: id, over };
  }

  close(): void {
    this.#leave();
  }

  /**
   * Reads a node again, after a mend: what costs next to nothing, and of the other sources those that are named. What was not read again
   * stays. With "peers", whoever did not get through to this node tries again too.
   * @throws ConsoleError H301, H104, and what the connection says
   */
  async retest(nodeId: string, sourceIds: readonly string[], signal: AbortSignal): Promise<DiagnosisView> {
    const startedAtMs = Date.now();
    const before = this.#collected.get(nodeId) ?? new Map();
    const accusers = sourceIds.includes("peers") ? this.#accusersOf(nodeId) : [];
    await Promise.all([
      this.#readAgain(nodeId, (s) => s.light === true || sourceIds.includes(s.id) || !before.has(s.id), signal),
      // Who cannot be asked again stands by what it said.
      ...accusers.map((id) => this.#readAgain(id, (s) => s.id === "peers", signal).catch((error: unknown) => { if (signal.aborted) throw error; })),
    ]);
    for (const id of accusers) if (this.#collected.has(id) && this.#views.get(id)?.state === "done") this.#judgeAgain(id, this.#views.get(id)!.startedAtMs);
    return this.#judgeAgain(nodeId, startedAtMs);
  }

  async #readAgain(nodeId: string, which: (spec: Spec) => boolean, signal: AbortSignal): Promise<void> {
    const specs = this.#specs(nodeId, await this.#membership(nodeId, signal)).filter(which);
    const fresh = await collect(await this.options.nodes.session(nodeId, signal), specs, signal);
    this.#keep(nodeId, new Map([...(this.#collected.get(nodeId) ?? []), ...fresh]));
  }

  /** The nodes whose last reading says that this one does not answer them. */
  #accusersOf(nodeId: string): string[] {
    const address = this.liveNode(nodeId)?.dataAddress;
    return [...this.#collected.keys()].filter((id) => id !== nodeId && this.options.nodes.get(id) !== undefined
      && peerAnswers(this.liveNode(id)!)?.some((p) => p.peer === address && p.tcpStatus === TIMED_OUT) === true).slice(0, MAX_ACCUSERS);
  }

  #judgeAgain(nodeId: string, startedAtMs: number): DiagnosisView {
    const collected = this.#collected.get(nodeId)!;
    const others = [...this.#collected].flatMap(([id, sources]) => (id !== nodeId && this.options.nodes.get(id) ? [this.#live(id, sources, null)] : []));
    const { findings, cannotTell, verdict } = judgeNode(this.liveNode(nodeId)!, others, this.#settled.get(nodeId));
    const view: DiagnosisView = { nodeId, startedAtMs, endedAtMs: Date.now(), state: "done", verdict, sources: [...collected.values()].map((c) => c.view), findings, cannotTell, error: null };
    this.#show(view);
    this.options.documents.put(nodeId, view.startedAtMs, view);
    return view;
  }

  /** What was logged of this finding until that moment is history from here on. */
  settle(nodeId: string, findingId: string, until: { time: number; clock: string; bootId: string }): void {
    this.#settled.set(nodeId, new Map([...(this.#settled.get(nodeId) ?? []), [findingId, until]]));
    const view = this.#views.get(nodeId);
    if (view && view.state !== "running" && this.#collected.has(nodeId)) this.#judgeAgain(nodeId, view.startedAtMs);
  }

  view(nodeId: string): DiagnosisView | undefined {
    return this.#views.get(nodeId);
  }
  /** A piece of what was read last of one source. @throws ConsoleError H301, H609 */
  source(nodeId: string, sourceId: string, fromChar: number): z.infer<typeof SourcePiece> {
    if (!this.options.nodes.get(nodeId)) throw ConsoleError.of("H301", { nodeId });
    const source = [...(this.#collected.get(nodeId)?.values() ?? [])].find((s) => s.view.id === sourceId);
    if (!source) throw ConsoleError.of("H609", { what: "source", id: plainLine(sourceId, 60) });
    return { text: source.text.slice(fromChar, fromChar + SOURCE_PIECE_CHARS), fromChar, totalChars: source.text.length };
  }
  /** What was read last on a node, whole; undefined when this console has not read it since its start. */
  collected(nodeId: string): CollectedSources | undefined {
    return this.#collected.get(nodeId);
  }
  /** What was read last, as the checks take it. */
  liveNode(nodeId: string): LiveNode | undefined {
    const collected = this.#collected.get(nodeId);
    return collected && this.#live(nodeId, collected, this.#memberships.get(nodeId) ?? null);
  }

  #show(view: DiagnosisView): void {
    this.#views.set(view.nodeId, view);
    this.topic.changed(view.nodeId);
  }
  #keep(nodeId: string, collected: CollectedSources): void {
    this.#collected.delete(nodeId);
    this.#collected.set(nodeId, collected);
    for (const [oldest] of this.#collected) if (this.#collected.size > KEPT_NODES) this.#collected.delete(oldest);
  }
  #specs(nodeId: string, membership: Membership | null): Spec[] {
    const known = this.options.nodes.list().filter((n) => n.id !== nodeId && n.member !== null).flatMap((n) => dataAddressOf(n) ?? []);
    return sourcesFor(membership ? membership.peers : known);
  }

  async #diagnose(
    nodeId: string, task: NodeTask, publish: (sources: CollectedSources) => void, others: Promise<(readonly [string, CollectedSources | null])[]>,
  ): Promise<void> {
    let view: DiagnosisView = { nodeId, startedAtMs: Date.now(), endedAtMs: null, state: "running", verdict: null, sources: [], findings: [], cannotTell: [], error: null };
    const show = (change: Partial<DiagnosisView>): void => this.#show((view = { ...view, ...change }));
    show({});
    try {
      const membership = await this.#membership(nodeId, task.signal);
      const specs = this.#specs(nodeId, membership);
      const collected = await task.step("collect", async (report) => {
        const session = await this.options.nodes.session(nodeId, task.signal);
        let done = 0;
        return collect(session, specs, task.signal, () => report.progress(++done, specs.length, "items"));
      });
      this.#keep(nodeId, collected);
      publish(collected);
      await task.step("evaluate", async (report) => {
        const self = this.#live(nodeId, collected, membership);
        const judge = (others: readonly LiveNode[]): ReturnType<typeof judgeNode> => judgeNode(self, others, this.#settled.get(nodeId));
        const own = judge([]);
        show({ sources: [...collected.values()].map((source) => source.view), verdict: own.verdict, findings: own.findings, cannotTell: own.cannotTell });
        // The comparison waits for the slowest node; what this node shows by itself is on screen already.
        const side = (await others).flatMap(([id, sources]) => (id !== nodeId && sources && this.options.nodes.get(id) ? [this.#live(id, sources, null)] : []));
        const verdict = side.length > 0 ? judge(side) : own;
        show({ verdict: verdict.verdict, findings: verdict.findings, cannotTell: verdict.cannotTell, state: "done", endedAtMs: Date.now() });
        const told = verdict.findings.filter((f) => f.severity !== "info");
        report.detail(told.length === 0 ? "no fault found" : `${told.length} finding(s), ${told[0]!.class} first`);
      });
    } catch (error) {
      show({ state: "failed", endedAtMs: Date.now(), error: toErrorView(error) });
      throw error;
    } finally {
      this.options.documents.put(nodeId, view.startedAtMs, view);
    }
  }

  #live(nodeId: string, collected: CollectedSources, membership: Membership | null): LiveNode {
    const node = this.options.nodes.get(nodeId);
    return { nodeId, name: node?.name ?? nodeId, collected, dataAddress: membership?.address ?? (node ? dataAddressOf(node) : null), gidIndex: membership?.gidIndex ?? null, netdev: membership?.netdev ?? null, rdmaDevice: membership?.rdmaDevice ?? null };
  }

  /** What the cluster knows of the node; null when it is no member or its daemon does not answer, which is a finding of its own. */
  async #membership(nodeId: string, signal: AbortSignal): Promise<Membership | null> {
    const node = this.options.nodes.get(nodeId);
    if (!node || node.member === null) return null;
    // Without its daemon, what was known before still says where its peers are.
    const known = (): Membership => this.#memberships.get(nodeId) ?? membershipOf(node.member!, this.options.members());
    if (node.agent.state !== "running") return known();
    try {
      const agent = await this.options.nodes.agent(nodeId, signal);
      const cluster = await agent.call("cluster.get", {}, { signal, timeoutMs: CLUSTER_TIMEOUT_MS });
      const membership = membershipOf(cluster.self, cluster.members);
      this.#memberships.set(nodeId, membership);
      return membership;
    } catch {
      if (signal.aborted) throw ConsoleError.of("H104");
      return known();
    }
  }

  #forgot(nodeId: string): void {
    this.#collected.delete(nodeId);
    this.#memberships.delete(nodeId);
    this.#settled.delete(nodeId);
    this.options.documents.remove(nodeId);
    this.topic.changed(nodeId);
  }
}

/** The address on the data network: the one that was set, else the first IPv4 address of an interface with an RDMA device. */
function dataAddressOf(node: NodeView): string | null {
  if (node.dataAddress !== null) return node.dataAddress;
  for (const nic of node.facts?.nics ?? []) if (nic.rdmaDevice !== null) for (const a of nic.addresses) if (/^\d{1,3}(?:\.\d{1,3}){3}/.test(a)) return a.replace(/\/\d+$/, "");
  return null;
}

interface Membership {
  address: string | null;
  netdev: string | null;
  rdmaDevice: string | null;
  gidIndex: number | null;
  /** Data addresses of the other members. */
  peers: string[];
}

function membershipOf(self: number, members: ClusterState["members"]): Membership {
  const own = members.find((m) => m.node === self)?.addresses[0];
  return {
    address: own?.address ?? null, netdev: own?.netdev ?? null, rdmaDevice: own?.rdma_device ?? null, gidIndex: own?.gid_index ?? null,
    peers: members.filter((m) => m.node !== self).flatMap((m) => m.addresses.slice(0, 1).map((a) => a.address)),
  };
}

interface Deferred<T> {
  promise: Promise<T>;
  resolve(value: T): void;
}
function deferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((done) => { resolve = done; });
  return { promise, resolve };
}

function interrupted(view: DiagnosisView): DiagnosisView {
  if (view.endedAtMs !== null) return view;
  return { ...view, state: "failed", endedAtMs: view.startedAtMs, error: ConsoleError.of("H105", { detail: "the console ended while the diagnosis was going on" }).view };
}
