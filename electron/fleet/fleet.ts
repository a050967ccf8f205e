import { EventEmitter } from "node:events";
import type { Duplex } from "node:stream";
import { ConsoleError, toErrorView, type AuthMethod, type HostKeyView, type LockHolder, type NodeInput, type NodeView, type OperationView } from "../contract/index.js";
import type { NodeDirectory } from "../link/directory.js";
import { connectAgent, type ConnectedAgent, type ConnectOptions } from "../link/index.js";
import type { AgentClient } from "../link/types.js";
import { answersTcp, fingerprintOf, HopPool, HostKeyJudge, hostKeyName, importSshConfig, keyTypeOf, Limit, parseJump, probeHostKey, readKnownHosts, sshEnvironment, SshSession, type ImportedHost, type KnownHost, type SshEnvironment, type SshTarget } from "../ssh/index.js";
import type { NodeSession } from "../ssh/types.js";
import { KeyedTopic } from "../streams.js";
import { describeBundle } from "./bundle.js";
import { Deployer } from "./deployer.js";
import { FACTS_INTERVAL_MS, LinkKeeper } from "./link_keeper.js";
import { breakLock, lockHolder } from "./lock.js";
import { ManagedNode, targetOf, UNKNOWN_KEY } from "./managed_node.js";
import { Membership } from "./membership.js";
import { Operations } from "./operations.js";
import type { SecretKeeper } from "./secrets.js";
import type { NodeRecord, Store } from "./store.js";
import type { NodeTransport } from "./transport.js";

export interface FleetOptions {
  readonly store: Store;
  readonly secrets: SecretKeeper;
  /** Where `npm run bundle` puts its output. */
  readonly bundleDir: string;
  readonly ssh?: Partial<Omit<SshEnvironment, "trust">>;
  /** ~/.ssh/config, or another file. */
  readonly sshConfig?: string;
  readonly factsIntervalMs?: number;
  /** False: nodes that are not up are connected to only when asked for, as a command of the CLI does. */
  readonly dialQuietly?: boolean;
  /** For tests: other ends than real ones. */
  readonly openSession?: (nodeId: string, target: SshTarget) => NodeTransport;
  readonly connectAgent?: (stream: Duplex, options: ConnectOptions) => Promise<ConnectedAgent>;
  readonly onError?: (error: unknown) => void;
}

export interface FleetEvents {
  "agent-up": [nodeId: string, agent: AgentClient];
  "agent-down": [nodeId: string, reason: ConsoleError];
}

/** lastSeenMs goes to the store at most this often. */
const SEEN_SAVE_MS = 60_000;

/** The nodes of this console: inventory, trust, connections, bring-up and removal. Every method rejects with a ConsoleError. */
export class Fleet extends EventEmitter<FleetEvents> implements NodeDirectory {
  readonly topic: KeyedTopic<NodeView>;
  readonly operations: Operations;
  readonly membership: Membership;
  readonly #options: FleetOptions;
  readonly #env: SshEnvironment;
  readonly #pool: HopPool;
  readonly #nodes = new Map<string, ManagedNode>();
  readonly #listeners = new Set<(nodeIds: readonly string[]) => void>();
  readonly #keeper: LinkKeeper;
  readonly #deployer: Deployer;
  #closed = false;

  constructor(options: FleetOptions) {
    super();
    this.#options = options;
    this.#env = sshEnvironment({ ...options.ssh, trust: options.store.trust });
    this.#pool = new HopPool(this.#env);
    this.operations = new Operations(options.store.operations);
    this.membership = new Membership(options.store.loadCluster(), (state) => options.store.saveCluster(state));
    this.topic = new KeyedTopic<NodeView>({ list: () => this.list(), get: (id) => this.get(id) });
    this.#keeper = new LinkKeeper({
      connectAgent: options.connectAgent ?? connectAgent, membership: this.membership, factsIntervalMs: options.factsIntervalMs ?? FACTS_INTERVAL_MS,
      visit: options.dialQuietly === false ? null : (node, signal) => this.#visit(node, signal),
      changed: (node) => this.#changed(node.id), save: (node) => this.#saveSeen(node),
      agentUp: (node, agent) => this.emit("agent-up", node.id, agent), agentDown: (node, reason) => this.emit("agent-down", node.id, reason),
    });
    this.#deployer = new Deployer({
      bundleDir: options.bundleDir, consoleId: options.store.consoleId, limit: new Limit(16), operations: this.operations, membership: this.membership, keeper: this.#keeper,
      node: (id) => this.#node(id), nodes: () => [...this.#nodes.values()], ready: (node) => this.#withSecret(node), save: (node) => this.#save(node), changed: (node) => this.#changed(node.id),
    });
  }

  /** Takes up the links to the nodes that were up, and dials the others whose key is trusted. Waits for none of them. */
  async start(): Promise<void> {
    const known = await readKnownHosts(this.#env.knownHostsFiles).catch((error: unknown) => toErrorView(error));
    for (const record of this.#options.store.nodes.list()) {
      const node = this.#adopt(record);
      if (Array.isArray(known)) await this.#readHostKey(node, known);
      else node.fail(new ConsoleError(known));
      if (record.authKind !== "agent") await this.#withSecret(node).catch((error: unknown) => node.fail(error));
      this.#keeper.start(node);
    }
    this.#changed(...this.#nodes.keys());
  }

  /** Cancels what goes on, waits for its roll-back, and closes every connection. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.operations.close();
    for (const node of this.#nodes.values()) this.#letGo(node);
  }

  // Directory ---------------------------------------------------------------------------------------------------------

  list(): NodeView[] {
    return [...this.#nodes.values()].map((node) => node.view());
  }
  get(nodeId: string): NodeView | undefined {
    return this.#nodes.get(nodeId)?.view();
  }
  agentOf(nodeId: string): AgentClient | null {
    const agent = this.#nodes.get(nodeId)?.agent;
    return agent && !agent.closed ? agent : null;
  }
  /** @throws ConsoleError H301 */
  sessionOf(nodeId: string): NodeSession {
    return this.#node(nodeId).session;
  }
  async session(nodeId: string, signal?: AbortSignal): Promise<NodeSession> {
    const node = this.#node(nodeId);
    await this.#withSecret(node);
    await node.session.connect(signal);
    return node.session;
  }
  async agent(nodeId: string, signal?: AbortSignal): Promise<AgentClient> {
    const node = this.#node(nodeId);
    await this.#withSecret(node);
    return await this.#keeper.attach(node, signal);
  }
  async reachable(nodeId: string, signal: AbortSignal): Promise<boolean> {
    const node = this.#node(nodeId);
    return await answersTcp(await this.#probeTarget(node), this.#env, this.#pool, signal);
  }
  onChange(listener: (nodeIds: readonly string[]) => void): () => void {
    const own = (ids: readonly string[]): void => listener(ids);
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  // Requests of the contract -------------------------------------------------------------------------------------------

  /** @throws ConsoleError H101, H302 */
  async add(input: NodeInput): Promise<NodeView> {
    for (const hop of input.jump) parseJump(hop, input.user);
    const host = input.host.toLowerCase();
    for (const { record } of this.#nodes.values()) {
      if (record.host.toLowerCase() === host && record.port === input.port && record.user === input.user) throw ConsoleError.of("H302", { host: input.host, port: input.port, user: input.user, nodeId: record.id });
    }
    const name = input.name ?? input.host;
    const record: NodeRecord = {
      id: this.#freeId(name), name, host: input.host, port: input.port, user: input.user, authKind: "agent", keyPath: null, jump: [...input.jump],
      dataAddress: input.dataAddress ?? null, up: false, member: null, sshAddress: null, lastSeenMs: null, addedAtMs: Date.now(),
    };
    const node = this.#adopt(record);
    try {
      await this.#setAuth(node, input.auth);
      await this.#readHostKey(node);
    } catch (error) {
      this.#nodes.delete(record.id);
      this.#options.store.nodes.remove(record.id);
      throw error;
    }
    this.#keeper.start(node);
    this.#changed(record.id);
    return node.view();
  }

  async importable(signal?: AbortSignal): Promise<ImportedHost[]> {
    const known = new Set([...this.#nodes.values()].map((n) => `${n.record.user}@${n.record.host.toLowerCase()}:${n.record.port}`));
    const hosts = await importSshConfig({ ...(this.#options.sshConfig === undefined ? {} : { path: this.#options.sshConfig }), ...(signal ? { signal } : {}) });
    return hosts.filter(({ input }) => !known.has(`${input.user}@${input.host.toLowerCase()}:${input.port}`));
  }

  async setAuth(nodeId: string, auth: AuthMethod): Promise<NodeView> {
    const node = this.#node(nodeId);
    await this.#setAuth(node, auth);
    node.failed = false;
    node.error = null;
    if (node.operation === null) this.#keeper.nudge(node);
    this.#changed(nodeId);
    return node.view();
  }

  /** The key that the node offers now, or that of the first jump host before it which is not trusted yet. */
  async checkHostKey(nodeId: string, signal?: AbortSignal): Promise<HostKeyView> {
    const node = this.#node(nodeId);
    try {
      const probed = await probeHostKey(await this.#probeTarget(node), this.#env, this.#pool, signal);
      node.hostKey = probed.judge.view(probed.key);
      if (node.hostKey.status === "trusted" && KEY_CODES.has(node.error?.code ?? "")) {
        node.error = null;
        node.failed = false;
      }
    } catch (error) {
      if (!(error instanceof ConsoleError && error.view.code === "H104")) node.fail(error);
      throw error;
    } finally {
      this.#changed(nodeId);
    }
    return node.hostKey;
  }

  /**
   * Confirms exactly `fingerprint`: the node (or the first untrusted hop before it) is asked again, and must offer it still.
   * The nodes whose key it is are connected to then; that is not waited for.
   * @throws ConsoleError H203 it offers another one now, H213 the key is revoked
   */
  async trustHostKey(nodeId: string, fingerprint: string, signal?: AbortSignal): Promise<NodeView> {
    const node = this.#node(nodeId);
    const { endpoint, key, judge } = await probeHostKey(await this.#probeTarget(node), this.#env, this.#pool, signal);
    const verdict = judge.judge(key);
    const offered = fingerprintOf(key);
    if (verdict.status === "revoked") throw ConsoleError.of("H213", { host: endpoint.host, fingerprint: offered, source: verdict.source });
    if (offered !== fingerprint) {
      node.hostKey = judge.view(key);
      this.#changed(nodeId);
      throw ConsoleError.of("H203", { host: endpoint.host, expected: fingerprint, fingerprint: offered });
    }
    const name = hostKeyName(endpoint);
    this.#env.trust.trust({ name, type: keyTypeOf(key) ?? "unknown", key, addedAtMs: Date.now(), source: "operator" });
    node.error = null;
    node.failed = false;
    // Other nodes behind the same hop, or entered twice under two users, share this key.
    for (const other of this.#nodes.values()) {
      if (![other.record, ...other.record.jump.map((hop) => parseJump(hop, other.record.user))].some((e) => hostKeyName(e) === name)) continue;
      if (other.hostKey.offered === fingerprint) other.hostKey = UNKNOWN_KEY;
      if (KEY_CODES.has(other.error?.code ?? "")) {
        other.error = null;
        other.failed = false;
      }
      await this.#readHostKey(other);
      if (other !== node && other.operation === null) this.#keeper.start(other);
      this.#changed(other.id);
    }
    if (name === hostKeyName(node.record)) node.hostKey = (await HostKeyJudge.read(node.record, this.#env.knownHostsFiles, this.#env.trust)).view(key);
    if (node.operation === null) this.#keeper.nudge(node);
    this.#changed(nodeId);
    return node.view();
  }

  /** Logs in; a daemon that runs there already is taken over with its membership. */
  async connect(nodeId: string, signal?: AbortSignal): Promise<NodeView> {
    const node = this.#node(nodeId);
    try {
      await this.#visit(node, signal);
      node.failed = false;
      node.error = null;
      if (node.operation === null) this.#keeper.nudge(node);
    } catch (error) {
      if (!(error instanceof ConsoleError && error.view.code === "H104")) node.fail(error);
      throw error;
    } finally {
      this.#changed(nodeId);
    }
    return node.view();
  }

  async #visit(node: ManagedNode, signal?: AbortSignal): Promise<void> {
    await this.#withSecret(node);
    await node.session.connect(signal);
    await this.#readHostKey(node);
    // What failed on the node itself stays to be read; that it could not be reached is over.
    if (node.error?.code.startsWith("H2")) {
      node.failed = false;
      node.error = null;
    }
    if (node.operation === null) await this.#deployer.adoptRunning(node, signal);
  }

  /** Reads a member's addresses and GIDs anew and tells every daemon where they differ from what the cluster knew. @throws ConsoleError H301, H502 */
  async rejoin(nodeId: string, signal?: AbortSignal): Promise<string> {
    const node = this.#node(nodeId);
    if (node.record.member === null) throw ConsoleError.of("H502", { name: node.record.name });
    return this.#deployer.rejoin(node, signal);
  }

  /** Takes nodes out of this console; on the nodes nothing changes. Trust in their keys stays. @throws ConsoleError H301, H312 */
  async forget(nodeIds: readonly string[]): Promise<void> {
    const nodes = nodeIds.map((id) => this.#node(id));
    for (const node of nodes) if (node.operation !== null) throw ConsoleError.of("H312", { host: node.record.host });
    for (const node of nodes) {
      this.#letGo(node);
      this.#nodes.delete(node.id);
      this.#options.store.nodes.remove(node.id);
      await this.#options.secrets.set(node.id, null);
    }
    this.#changed(...nodeIds);
  }

  /** @throws ConsoleError H301, H313; everything else is in the operation */
  async bringUp(nodeIds: readonly string[]): Promise<{ operationId: string }> {
    return { operationId: await this.#deployer.bringUp(nodeIds) };
  }
  /** @throws ConsoleError H301; everything else is in the operation */
  async takeDown(nodeIds: readonly string[]): Promise<{ operationId: string }> {
    return { operationId: this.#deployer.takeDown(nodeIds) };
  }
  /** @throws ConsoleError H301, and what a connection or sudo ends with */
  async lockHolder(nodeId: string, signal?: AbortSignal): Promise<LockHolder | null> {
    return await lockHolder(await this.session(nodeId, signal), this.#node(nodeId).record.host, signal);
  }
  /** Ends the hold of another console on a node; the operator has seen who it is. @throws ConsoleError as lockHolder */
  async breakLock(nodeId: string, token: string, signal?: AbortSignal): Promise<boolean> {
    const node = this.#node(nodeId);
    const broken = await breakLock(await this.session(nodeId, signal), node.record.host, token, signal);
    if (broken && node.error?.code === "H314") {
      node.error = null;
      node.failed = false;
      this.#changed(nodeId);
    }
    return broken;
  }
  listOperations(): OperationView[] {
    return this.operations.list();
  }
  cancelOperation(operationId: string): void {
    this.operations.cancel(operationId);
  }
  async bundle(): Promise<{ version: string; kernels: string[] } | null> {
    return await describeBundle(this.#options.bundleDir);
  }
  /** Reads a node's facts now. */
  async refresh(nodeId: string, signal?: AbortSignal): Promise<NodeView> {
    const node = this.#node(nodeId);
    await this.#keeper.refresh(node, await this.#keeper.attach(node, signal), signal);
    return node.view();
  }

  // ---------------------------------------------------------------------------------------------------------------------

  #node(nodeId: string): ManagedNode {
    const node = this.#nodes.get(nodeId);
    if (!node || this.#closed) throw ConsoleError.of("H301", { nodeId });
    return node;
  }

  #adopt(record: NodeRecord): ManagedNode {
    const target: SshTarget = { host: record.host, port: record.port, user: record.user, auth: { kind: "agent" }, jump: record.jump.map((hop) => parseJump(hop, record.user)) };
    const session: NodeTransport = this.#options.openSession?.(record.id, target) ?? new SshSession(record.id, target, this.#env, this.#pool);
    const node = new ManagedNode(record, session);
    session.on("state", (state) => {
      // A connection that stands means a key that is trusted.
      if (state === "connected" && node.hostKey.status !== "trusted") void this.#readHostKey(node).catch((error: unknown) => node.fail(error));
      this.#changed(record.id);
    });
    session.on("seen", () => {
      node.lastSeenMs = Date.now();
      this.#saveSeen(node);
    });
    session.on("lost", (error) => {
      if (node.operation === null && !node.removed) node.fail(error);
      this.#keeper.lost(node);
      this.#changed(record.id);
    });
    if (record.authKind === "agent") session.retarget(target);
    this.#nodes.set(record.id, node);
    return node;
  }

  /** Sets the session's credentials where they are not there yet. */
  async #withSecret(node: ManagedNode): Promise<void> {
    if (node.record.authKind === "agent" || node.session.state !== "disconnected") return;
    node.session.retarget(await targetOf(node.record, this.#options.secrets));
  }

  async #setAuth(node: ManagedNode, auth: AuthMethod): Promise<void> {
    const secret = auth.kind === "password" ? auth.password : auth.kind === "key" ? (auth.passphrase ?? null) : null;
    await this.#options.secrets.set(node.id, secret);
    node.record.authKind = auth.kind;
    node.record.keyPath = auth.kind === "key" ? auth.keyPath : null;
    node.session.retarget(await targetOf(node.record, this.#options.secrets));
    this.#save(node);
  }

  /** For a probe: hops need credentials, the node itself gets none. */
  async #probeTarget(node: ManagedNode): Promise<SshTarget> {
    return node.record.jump.length > 0 ? await targetOf(node.record, this.#options.secrets) : { ...node.record, auth: { kind: "agent" }, jump: [] };
  }

  /** What is known of the node's key without a dial. */
  async #readHostKey(node: ManagedNode, listed?: readonly KnownHost[]): Promise<void> {
    const known = listed ?? (await readKnownHosts(this.#env.knownHostsFiles));
    const trusted = new HostKeyJudge(node.record, known, this.#env.trust).trustedKey;
    if (trusted) node.hostKey = { status: "trusted", algorithm: trusted.type, offered: null, trusted: trusted.fingerprint, source: trusted.source };
    this.#changed(node.id);
  }

  #letGo(node: ManagedNode): void {
    node.removed = true;
    this.#keeper.stop(node);
    node.agent?.close();
    node.session.close();
  }

  #freeId(name: string): string {
    const base = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 32) || "node";
    for (let n = 1; ; n++) {
      const id = n === 1 ? base : `${base}-${n}`;
      if (!this.#nodes.has(id)) return id;
    }
  }

  #save(node: ManagedNode): void {
    node.record.lastSeenMs = node.lastSeenMs;
    node.savedSeenMs = node.lastSeenMs;
    if (!node.removed) this.#options.store.nodes.save(node.record);
  }
  #saveSeen(node: ManagedNode): void {
    if ((node.lastSeenMs ?? 0) - (node.savedSeenMs ?? 0) >= SEEN_SAVE_MS) this.#save(node);
  }

  #changed(...ids: string[]): void {
    this.topic.changed(...ids);
    for (const listener of [...this.#listeners]) {
      try {
        listener(ids);
      } catch (error) {
        this.#options.onError?.(error);
      }
    }
  }
}

const KEY_CODES: ReadonlySet<string> = new Set(["H202", "H203", "H213"]);
