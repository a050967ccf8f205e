import { BRING_UP_STEPS, ConsoleError, toErrorView } from "../contract/index.js";
import type { Cluster } from "../link/schemas.js";
import type { Limit } from "../ssh/index.js";
import { bringUp } from "./bring_up.js";
import { loadBundle, type Bundle } from "./bundle.js";
import { memberAddresses } from "./facts.js";
import type { LinkKeeper } from "./link_keeper.js";
import type { ManagedNode } from "./managed_node.js";
import type { Membership } from "./membership.js";
import type { NodeTask, Operations } from "./operations.js";
import { REMOVE_STEPS, takeDown } from "./take_down.js";

export interface DeployerOptions {
  readonly bundleDir: string;
  readonly consoleId: string;
  /** Nodes that are worked on at the same time. */
  readonly limit: Limit;
  readonly operations: Operations;
  readonly membership: Membership;
  readonly keeper: LinkKeeper;
  readonly node: (nodeId: string) => ManagedNode;
  readonly nodes: () => ManagedNode[];
  /** Gives the session its credentials. */
  readonly ready: (node: ManagedNode) => Promise<void>;
  readonly save: (node: ManagedNode) => void;
  readonly changed: (node: ManagedNode) => void;
}

/** Bring-ups and removals of many nodes, each by itself, and what they change in the cluster. */
export class Deployer {
  constructor(private readonly o: DeployerOptions) {}

  async bringUp(nodeIds: readonly string[]): Promise<string> {
    for (const id of nodeIds) this.o.node(id);
    const bundle = await loadBundle(this.o.bundleDir);
    this.#number(nodeIds);
    return this.o.operations.start("bring_up", nodeIds, BRING_UP_STEPS, (nodeId, task) => this.#hold(nodeId, "bring_up", task, (node) => this.#bringUpOne(node, bundle, task))).id;
  }

  /** Numbers in the order in which the nodes were named; one that was given once stays with its node. */
  #number(nodeIds: readonly string[]): void {
    for (const id of nodeIds) {
      const node = this.o.node(id);
      if (node.record.member !== null) continue;
      node.record.member = this.o.membership.freeNumber(this.o.nodes().flatMap((n) => (n.record.member === null ? [] : [n.record.member])));
      this.o.save(node);
    }
  }

  takeDown(nodeIds: readonly string[]): string {
    for (const id of nodeIds) this.o.node(id);
    return this.o.operations.start("remove", nodeIds, REMOVE_STEPS, (nodeId, task) => this.#hold(nodeId, "remove", task, (node) => this.#takeDownOne(node, task))).id;
  }

  /** Holds a node for one operation; its link is let alone meanwhile and taken up again afterwards. */
  async #hold(nodeId: string, kind: "bring_up" | "remove", task: NodeTask, work: (node: ManagedNode) => Promise<void>): Promise<void> {
    const node = this.o.node(nodeId);
    if (node.operation !== null) throw ConsoleError.of("H312", { host: node.record.host });
    node.operation = kind;
    this.o.changed(node);
    this.o.keeper.stop(node);
    try {
      await this.o.limit.run(async () => {
        await this.o.ready(node);
        await work(node);
      }, task.signal);
      node.failed = false;
      node.error = null;
    } catch (error) {
      if (toErrorView(error).code !== "H104") node.fail(error);
      throw error;
    } finally {
      node.operation = null;
      this.o.keeper.nudge(node);
      this.o.changed(node);
    }
  }

  async #bringUpOne(node: ManagedNode, bundle: Bundle, task: NodeTask): Promise<void> {
    const { record, session } = node;
    const wasUp = record.up;
    await bringUp({
      session, host: record.host, bundle, consoleId: this.o.consoleId,
      onPreflight: (found) => {
        record.sshAddress = found.sshAddress;
      },
      link: async (signal) => {
        // The daemon may have been restarted: a conversation with the old one is over.
        node.agent?.close();
        const agent = await this.o.keeper.attach(node, signal);
        const nics = node.facts?.nics.length ?? 0;
        return `stepccld ${node.agentVersion ?? ""} answers, pid ${agent.hello.pid}, ${agent.hello.rss_kib} KiB resident, ${nics} interfaces`;
      },
      join: (signal) => this.#join(node, signal),
      leave: async () => {
        if (!wasUp) await this.#leave(node);
        record.up = wasUp;
        node.agent?.close();
        this.o.save(node);
      },
    }, task);
  }

  async #takeDownOne(node: ManagedNode, task: NodeTask): Promise<void> {
    const { record, session } = node;
    await takeDown({
      session, host: record.host, consoleId: this.o.consoleId,
      leave: async () => {
        node.agent?.close();
        record.up = false;
        this.o.save(node);
        await this.#leave(node);
      },
    }, task);
    node.agentState = "absent";
    node.agentVersion = null;
    node.rssKib = null;
    node.facts = null;
    node.factsView = null;
  }

  /** Makes a node a member and tells all members; gives a line about it. */
  async #join(node: ManagedNode, signal: AbortSignal): Promise<string> {
    const { record } = node;
    const agent = await this.o.keeper.attach(node, signal);
    if (!node.facts) await this.o.keeper.refresh(node, agent, signal);
    if (!node.facts) throw ConsoleError.of("H401", { host: record.host, detail: "it gave no facts" });
    const { membership } = this.o;
    const number = record.member;
    if (number === null) throw ConsoleError.of("H105", { detail: `${record.name} has no number` });
    const known = membership.state.members.find((m) => m.node === number)?.addresses[0]?.address ?? null;
    const addresses = memberAddresses(node.facts, record.dataAddress, record.sshAddress, record.host, known);
    membership.put({ node: number, name: record.name, addresses });
    await this.o.keeper.tell(node, agent, signal);
    record.up = true;
    this.o.save(node);
    await this.#tellOthers(node);
    const first = addresses[0];
    return `node ${number} at ${first?.address ?? "?"}${first?.rdma_device ? ` on ${first.rdma_device}` : ""}, epoch ${membership.state.epoch}, ${membership.state.members.length} members`;
  }

  /** The same for a member whose addresses or GID table may have changed since. */
  async rejoin(node: ManagedNode, signal: AbortSignal = new AbortController().signal): Promise<string> {
    await this.o.keeper.refresh(node, await this.o.keeper.attach(node, signal), signal);
    return this.#join(node, signal);
  }

  async #leave(node: ManagedNode): Promise<void> {
    if (node.record.member === null || !this.o.membership.remove(node.record.member)) return;
    await this.#tellOthers(node);
  }

  /** A member that does not take the new epoch is its own trouble, not this node's: it is told again when its link is back. */
  async #tellOthers(than: ManagedNode): Promise<void> {
    const others = this.o.nodes().filter((n) => n !== than && n.record.up && n.record.member !== null && n.agent && !n.agent.closed);
    await Promise.all(others.map(async (other) => {
      try {
        if (other.agent) await this.o.keeper.tell(other, other.agent);
      } catch (error) {
        other.fail(error);
        this.o.changed(other);
      }
    }));
  }

  /**
   * A daemon that runs on a node which this console did not bring up (another console did) is taken over with the membership
   * that it knows. A node without one stays as it is.
   */
  async adoptRunning(node: ManagedNode, signal?: AbortSignal): Promise<void> {
    let cluster: Cluster | null;
    try {
      const agent = await this.o.keeper.attach(node, signal);
      if (node.record.up) return;
      cluster = await agent.call("cluster.get", {}, { timeoutMs: 10_000, ...(signal ? { signal } : {}) }).catch((error: unknown) => {
        if (error instanceof ConsoleError && error.view.code === "A301") return null;
        throw error;
      });
    } catch (error) {
      const code = error instanceof ConsoleError ? error.view.code : "";
      if (code === "H401" || code === "H210") return;
      throw error;
    }
    node.record.up = true;
    if (cluster) {
      this.o.membership.adopt(cluster);
      const taken = this.o.nodes().some((n) => n !== node && n.record.member === cluster.self);
      if (cluster.cluster_id === this.o.membership.state.clusterId && !taken) node.record.member = cluster.self;
    }
    this.o.save(node);
    this.o.keeper.start(node);
  }
}
