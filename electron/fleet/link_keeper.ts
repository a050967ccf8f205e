import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ConsoleError } from "../contract/index.js";
import type { ConnectedAgent, ConnectOptions } from "../link/index.js";
import { Limit, plainLine } from "../ssh/index.js";
import { memberAddresses } from "./facts.js";
import type { ManagedNode } from "./managed_node.js";
import type { Membership } from "./membership.js";
import { runScript } from "./remote.js";
import { SSH_ADDRESS } from "./scripts/preflight.js";

export const FACTS_INTERVAL_MS = 10_000;

export interface LinkKeeperOptions {
  readonly connectAgent: (stream: Duplex, options: ConnectOptions) => Promise<ConnectedAgent>;
  readonly membership: Membership;
  readonly factsIntervalMs: number;
  /** Logs in to a node that is not up, and takes over a daemon that runs there. null: such nodes are dialled by hand alone. */
  readonly visit: ((node: ManagedNode, signal: AbortSignal) => Promise<void>) | null;
  readonly changed: (node: ManagedNode) => void;
  readonly agentUp: (node: ManagedNode, agent: ConnectedAgent) => void;
  readonly agentDown: (node: ManagedNode, reason: ConsoleError) => void;
  readonly save: (node: ManagedNode) => void;
}

/** Nodes that are not up and are dialled at the same time: a fleet that is switched off leaves room for what is asked for by hand. */
const VISITS = 32;
/**
 * What only a person can mend is tried again this seldom: a wrong password that is repeated locks accounts. A node that was up let
 * the console in before: one that boots refuses everybody for a while (pam_nologin), so it is dialled as usual.
 */
const NEEDS_A_PERSON: ReadonlySet<string> = new Set(["H202", "H203", "H204", "H205", "H206", "H211", "H212", "H213"]);
const SELDOM_MS = 300_000;

/**
 * Keeps a conversation with the daemon of each node that is up: dials again with back-off, reads facts every 10 s, tells a
 * daemon that came back what the cluster is now. A node that is not up, but whose key is trusted, is logged in to quietly.
 * Each node has a loop of its own, so that none waits for another.
 */
export class LinkKeeper {
  readonly #loops = new Map<string, { abort: AbortController; wake: () => void }>();
  readonly #visits = new Limit(VISITS);
  constructor(private readonly options: LinkKeeperOptions) {}

  start(node: ManagedNode): void {
    if (this.#loops.has(node.id) || node.removed || !(node.record.up || this.#mayVisit(node))) return;
    const loop = { abort: new AbortController(), wake: () => {} };
    this.#loops.set(node.id, loop);
    void this.#loop(node, loop.abort.signal, loop);
  }

  /** Ends the loop; the conversation itself stays as it is. */
  stop(node: ManagedNode): void {
    this.#loops.get(node.id)?.abort.abort();
    this.#loops.delete(node.id);
  }

  /** The connection to a node is gone: a loop that rests on it goes on. */
  lost(node: ManagedNode): void {
    this.#loops.get(node.id)?.wake();
  }

  /** Makes a loop that waits try now. */
  nudge(node: ManagedNode): void {
    this.stop(node);
    node.backoff.reset();
    this.start(node);
  }

  #mayVisit(node: ManagedNode): boolean {
    return this.options.visit !== null && node.hostKey.status === "trusted";
  }

  async #loop(node: ManagedNode, signal: AbortSignal, loop: { wake: () => void }): Promise<void> {
    while (!signal.aborted) {
      try {
        if (!node.record.up) {
          if (!this.#mayVisit(node)) return this.stop(node);
          await this.#visit(node, signal, loop);
          continue;
        }
        const fresh = node.agent === null || node.agent.closed;
        const agent = await this.attach(node, signal);
        if (!fresh) await this.refresh(node, agent, signal);
        await this.#catchUp(node, agent, signal);
        node.backoff.reset();
        await pause(this.options.factsIntervalMs, signal, (wake) => agent.onClose(wake));
      } catch (error) {
        if (signal.aborted) return;
        node.fail(error);
        this.options.changed(node);
        await pause(!node.record.up && NEEDS_A_PERSON.has(node.error?.code ?? "") ? SELDOM_MS : node.backoff.nextMs(), signal);
      }
    }
  }

  /** Logs in, then rests until the connection is lost or the node is up. */
  async #visit(node: ManagedNode, signal: AbortSignal, loop: { wake: () => void }): Promise<void> {
    const { visit } = this.options;
    if (visit && node.session.state !== "connected") await this.#visits.run(() => visit(node, signal), signal);
    if (node.record.up) return;
    node.backoff.reset();
    await new Promise<void>((resolve) => {
      const done = (): void => {
        signal.removeEventListener("abort", done);
        loop.wake = () => {};
        resolve();
      };
      signal.addEventListener("abort", done);
      loop.wake = done;
      if (signal.aborted || node.session.state !== "connected") done();
    });
    // A server that takes connections and drops them at once is not dialled without a pause.
    await pause(node.backoff.nextMs(), signal);
  }

  /**
   * The conversation that stands, or a new one: stream, greeting, facts, and the cluster where the node is a member.
   * @throws ConsoleError the link's or the daemon's
   */
  async attach(node: ManagedNode, signal?: AbortSignal): Promise<ConnectedAgent> {
    if (node.agent && !node.agent.closed) return node.agent;
    if (!node.attaching) {
      const dial = this.#attach(node).finally(() => {
        node.attaching = null;
      });
      dial.catch(() => {});
      node.attaching = dial;
    }
    return await untilAborted(node.attaching, signal);
  }

  async #attach(node: ManagedNode): Promise<ConnectedAgent> {
    const { session, record } = node;
    await session.connect();
    let agent: ConnectedAgent;
    try {
      const stream = await session.openAgentStream();
      agent = await this.options.connectAgent(stream, { host: record.host });
    } catch (error) {
      const code = error instanceof ConsoleError ? error.view.code : "";
      if (code === "H401" || code === "H210") node.agentState = /not installed/.test(String((error as ConsoleError).view.params?.["detail"])) ? "absent" : "stopped";
      throw error;
    }
    node.agent = agent;
    node.toldEpoch = null;
    node.agentState = "running";
    node.agentVersion = plainLine(agent.hello.version, 64);
    node.rssKib = agent.hello.rss_kib;
    agent.onClose((reason) => {
      if (node.agent !== agent) return;
      node.agent = null;
      node.agentState = "unknown";
      // When the link itself is gone, that is the cause, and it is known already.
      if (node.operation === null && !node.removed && reason.view.code !== "H104" && node.session.state === "connected") node.fail(reason);
      this.options.agentDown(node, reason);
      this.options.changed(node);
    });
    try {
      if (record.sshAddress === null) await this.#learnSshAddress(node);
      await this.refresh(node, agent);
      if (record.up && record.member !== null) await this.#rejoin(node, agent);
    } catch (error) {
      agent.close();
      throw error;
    }
    node.failed = false;
    node.error = null;
    this.options.agentUp(node, agent);
    this.options.changed(node);
    return agent;
  }

  /** Facts and the daemon's own size. @throws ConsoleError */
  async refresh(node: ManagedNode, agent: ConnectedAgent, signal?: AbortSignal): Promise<void> {
    const call = { timeoutMs: 15_000, ...(signal ? { signal } : {}) };
    const [facts, hello] = await Promise.all([agent.call("facts.get", {}, call), agent.call("hello", { protocol: 1, client: "StepCCL Console" }, call)]);
    node.takeFacts(facts);
    node.rssKib = hello.rss_kib;
    node.lastSeenMs = Date.now();
    if (node.error && node.agent === agent) {
      node.error = null;
      node.failed = false;
    }
    this.options.save(node);
    this.options.changed(node);
  }

  /** A daemon that came back may have missed epochs, or know later ones of another console. */
  async #rejoin(node: ManagedNode, agent: ConnectedAgent): Promise<void> {
    const number = node.record.member;
    if (number === null) return;
    const known = await agent.call("cluster.get", {}, { timeoutMs: 10_000 }).catch((error: unknown) => {
      if (error instanceof ConsoleError && error.view.code === "A301") return null;
      throw error;
    });
    const { membership } = this.options;
    if (known) membership.adopt(known);
    const listed = membership.state.members.some((m) => m.node === number);
    if (!listed && node.facts) membership.put({ node: number, name: node.record.name, addresses: memberAddresses(node.facts, node.record.dataAddress, node.record.sshAddress, node.record.host) });
    const { clusterId, epoch } = membership.state;
    if (known && known.cluster_id === clusterId && known.epoch === epoch && known.self === number) node.toldEpoch = epoch;
    else await this.tell(node, agent);
  }

  /** A member that did not take an epoch, or was away, gets it now. */
  async #catchUp(node: ManagedNode, agent: ConnectedAgent, signal: AbortSignal): Promise<void> {
    if (node.record.member !== null && node.toldEpoch !== this.options.membership.state.epoch) await this.tell(node, agent, signal);
  }

  /** Tells a member's daemon the cluster as it is now. @throws ConsoleError */
  async tell(node: ManagedNode, agent: ConnectedAgent, signal?: AbortSignal): Promise<void> {
    const number = node.record.member;
    if (number === null) throw ConsoleError.of("H105", { detail: `${node.record.name} is no member of the cluster` });
    await this.options.membership.tell({ number, agent }, signal);
    node.toldEpoch = this.options.membership.state.epoch;
  }

  async #learnSshAddress(node: ManagedNode): Promise<void> {
    const address = (await runScript(node.session, node.record.host, "reading the node's address", SSH_ADDRESS, [])).one("ssh_address");
    if (address === null || !/^[0-9a-fA-F.:%a-z]{2,64}$/.test(address)) return;
    node.record.sshAddress = address;
    this.options.save(node);
  }
}

/** Waits; ends early by the signal, or by what `also` calls. */
async function pause(ms: number, signal: AbortSignal, also?: (wake: () => void) => () => void): Promise<void> {
  const early = new AbortController();
  const off = also?.(() => early.abort());
  try {
    await sleep(ms, undefined, { signal: AbortSignal.any([signal, early.signal]) });
  } catch (error) {
    if (!(error instanceof Error && error.name === "AbortError")) throw error;
  } finally {
    off?.();
  }
}

function untilAborted<T>(work: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(ConsoleError.of("H104"));
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
