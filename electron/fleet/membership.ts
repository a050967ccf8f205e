import { randomBytes } from "node:crypto";
import { ConsoleError } from "../contract/index.js";
import type { Cluster } from "../link/schemas.js";
import type { AgentClient } from "../link/types.js";
import type { ClusterState } from "./store.js";

type Member = ClusterState["members"][number];

export interface MemberNode {
  readonly number: number;
  readonly agent: AgentClient | null;
}

const CALL_TIMEOUT_MS = 10_000;

/**
 * Who belongs to the cluster. Each change makes a new epoch, which goes to every member that can be reached; one that cannot
 * gets it when it is back. Other consoles may change the cluster too: the higher epoch wins, and members that only they know stay.
 */
export class Membership {
  #state: ClusterState;

  constructor(stored: ClusterState | null, private readonly save: (state: ClusterState) => void) {
    this.#state = stored ?? { clusterId: `stepccl-${randomBytes(6).toString("hex")}`, epoch: 0, members: [] };
  }

  get state(): ClusterState {
    return this.#state;
  }

  /** The lowest number that nobody has. */
  freeNumber(taken: Iterable<number>): number {
    const used = new Set([...taken, ...this.#state.members.map((m) => m.node)]);
    let number = 0;
    while (used.has(number)) number++;
    return number;
  }

  /** Puts a member in, or in the place of what stood under its number. False when nothing changed. */
  put(member: Member): boolean {
    const old = this.#state.members.find((m) => m.node === member.node);
    if (old && JSON.stringify(old) === JSON.stringify(member)) return false;
    this.#change([...this.#state.members.filter((m) => m.node !== member.node), member]);
    return true;
  }

  /** False when it was no member. */
  remove(number: number): boolean {
    if (!this.#state.members.some((m) => m.node === number)) return false;
    this.#change(this.#state.members.filter((m) => m.node !== number));
    return true;
  }

  /** Takes over what a daemon knows, where it is newer than ours or we know nothing yet. */
  adopt(cluster: Cluster): void {
    const foreign = cluster.cluster_id !== this.#state.clusterId;
    if (foreign && this.#state.members.length > 0) return;
    if (!foreign && cluster.epoch <= this.#state.epoch) return;
    this.#set({ clusterId: cluster.cluster_id, epoch: cluster.epoch, members: cluster.members });
  }

  /**
   * Tells one daemon the cluster as it is. A daemon that knows a later epoch (another console's) is caught up with first.
   * @throws ConsoleError what the daemon answers
   */
  async tell(node: MemberNode, signal?: AbortSignal): Promise<void> {
    const agent = node.agent;
    if (!agent) throw ConsoleError.of("H105", { detail: "the node has no daemon to tell" });
    const options = { timeoutMs: CALL_TIMEOUT_MS, ...(signal ? { signal } : {}) };
    for (let attempt = 0; ; attempt++) {
      const { clusterId, epoch, members } = this.#state;
      try {
        await agent.call("cluster.set", { cluster_id: clusterId, epoch, self: node.number, members }, options);
        return;
      } catch (error) {
        if (attempt >= 3 || !(error instanceof ConsoleError) || error.view.code !== "A302") throw error;
        const known = await agent.call("cluster.get", {}, options);
        const ours = this.#state;
        const merged = known.cluster_id === clusterId ? [...known.members.filter((m) => !ours.members.some((o) => o.node === m.node)), ...ours.members] : ours.members;
        this.#set({ clusterId: ours.clusterId, epoch: Math.max(known.epoch, ours.epoch) + 1, members: sorted(merged) });
      }
    }
  }

  #change(members: Member[]): void {
    this.#set({ clusterId: this.#state.clusterId, epoch: this.#state.epoch + 1, members: sorted(members) });
  }
  #set(state: ClusterState): void {
    this.#state = state;
    this.save(state);
  }
}

const sorted = (members: Member[]): Member[] => [...members].sort((a, b) => a.node - b.node);
