import { ConsoleError, type TopologyView } from "../contract/index.js";
import { withAbort } from "../abort.js";
import type { NodeDirectory } from "../link/directory.js";
import { LatestTopic } from "../streams.js";
import { mergeLinks, type MemberRoutes } from "./links.js";

export const REFRESH_MS = 10_000;
const CALL_TIMEOUT_MS = 5000;
/** An echo to every member that does not answer takes this long at the node. */
const PROBE_TIMEOUT_MS = 30_000;

/** The paths between members. Kept fresh while somebody looks; a node that does not answer leaves its part to the others' tables. */
export class Topology {
  readonly topic = new LatestTopic<TopologyView>(() => this.#view);
  readonly #nodes: NodeDirectory;
  readonly #leave: () => void;
  readonly #timer: NodeJS.Timeout;
  readonly #onError: (error: unknown) => void;
  #view: TopologyView = { epoch: 0, links: [] };
  #running: Promise<TopologyView> | null = null;
  #membership = "";

  constructor(options: { nodes: NodeDirectory; refreshMs?: number; onError?: (error: unknown) => void }) {
    this.#nodes = options.nodes;
    this.#onError = options.onError ?? (() => {});
    this.#leave = options.nodes.onChange(() => {
      const membership = this.#members().map((node) => `${node.id} ${String(node.member)}`).sort().join();
      if (membership === this.#membership) return;
      this.#membership = membership;
      this.get().catch(this.#onError);
    });
    this.#timer = setInterval(() => {
      if (this.topic.listeners > 0) this.get().catch(this.#onError);
    }, options.refreshMs ?? REFRESH_MS);
    this.#timer.unref();
  }

  /** What was known last, without asking. */
  get current(): TopologyView {
    return this.#view;
  }

  /** What the daemons know now. */
  get(signal?: AbortSignal): Promise<TopologyView> {
    this.#running ??= this.#read("routes.get", AbortSignal.timeout(CALL_TIMEOUT_MS)).finally(() => { this.#running = null; });
    return withAbort(this.#running, signal);
  }

  /** Has every node measure its paths, and gives what they found. */
  async probe(signal?: AbortSignal): Promise<TopologyView> {
    const until = signal ? AbortSignal.any([signal, AbortSignal.timeout(PROBE_TIMEOUT_MS)]) : AbortSignal.timeout(PROBE_TIMEOUT_MS);
    const view = await this.#read("routes.probe", until);
    if (signal?.aborted) throw ConsoleError.of("H104");
    return view;
  }

  close(): void {
    this.#leave();
    clearInterval(this.#timer);
  }

  #members(): { id: string; member: number }[] {
    return this.#nodes.list().flatMap((node) =>
      (node.member !== null && (node.phase === "up" || node.phase === "degraded") ? [{ id: node.id, member: node.member }] : []));
  }

  async #read(method: "routes.get" | "routes.probe", signal: AbortSignal): Promise<TopologyView> {
    const tables = await this.#each(async (nodeId, member): Promise<MemberRoutes> => {
      const client = await this.#nodes.agent(nodeId, signal);
      return { nodeId, member, routes: await client.call(method, {}, { signal, timeoutMs: PROBE_TIMEOUT_MS }) };
    });
    const byMember = new Map(this.#nodes.list().flatMap((node) => (node.member === null ? [] : [[node.member, node.id] as const])));
    const view = mergeLinks(tables, (member) => byMember.get(member));
    if (JSON.stringify(view) !== JSON.stringify(this.#view)) {
      this.#view = view;
      this.topic.changed();
    }
    return this.#view;
  }

  /** Asks all members at once; those that fail are left out. */
  async #each<T>(ask: (nodeId: string, member: number) => Promise<T>): Promise<T[]> {
    const answers = await Promise.all(this.#members().map(async ({ id, member }) => {
      try {
        return { value: await ask(id, member) };
      } catch (error) {
        if (error instanceof ConsoleError) return null;
        throw error;
      }
    }));
    return answers.flatMap((answer) => (answer ? [answer.value] : []));
  }
}
