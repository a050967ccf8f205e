import { ConsoleError, toErrorView, type AuthMethod, type ErrorView, type HostKeyView, type NodeFacts, type NodePhase, type NodeView } from "../contract/index.js";
import type { ConnectedAgent } from "../link/index.js";
import type { AgentFacts } from "../link/schemas.js";
import { Backoff, parseJump, type SshTarget } from "../ssh/index.js";
import { factsView } from "./facts.js";
import type { SecretKeeper } from "./secrets.js";
import type { NodeRecord } from "./store.js";
import type { NodeTransport } from "./transport.js";

export const UNKNOWN_KEY: HostKeyView = { status: "unknown", algorithm: null, offered: null, trusted: null, source: null };

/** The state of one node as the console knows it; what changes it lives in fleet.ts and link_keeper.ts. */
export class ManagedNode {
  readonly record: NodeRecord;
  readonly session: NodeTransport;
  readonly backoff = new Backoff();
  agent: ConnectedAgent | null = null;
  /** A dial to the daemon that is under way, shared by all that wait for it. */
  attaching: Promise<ConnectedAgent> | null = null;
  facts: AgentFacts | null = null;
  factsView: NodeFacts | null = null;
  hostKey: HostKeyView = UNKNOWN_KEY;
  agentState: NodeView["agent"]["state"] = "unknown";
  agentVersion: string | null = null;
  rssKib: number | null = null;
  /** The operation that holds the node now. */
  operation: "bring_up" | "remove" | null = null;
  /** The last thing tried by hand failed. */
  failed = false;
  error: ErrorView | null = null;
  lastSeenMs: number | null;
  savedSeenMs: number | null;
  removed = false;
  /** The epoch of the cluster that its daemon was told last. */
  toldEpoch: number | null = null;

  constructor(record: NodeRecord, session: NodeTransport) {
    this.record = record;
    this.session = session;
    this.lastSeenMs = record.lastSeenMs;
    this.savedSeenMs = record.lastSeenMs;
  }

  get id(): string {
    return this.record.id;
  }

  get phase(): NodePhase {
    if (this.operation === "bring_up") return "bringing_up";
    if (this.agent && !this.agent.closed) return this.error === null ? "up" : "degraded";
    if (this.hostKey.offered !== null && this.hostKey.status !== "trusted") return "needs_host_key";
    if (this.record.up) return this.session.state === "connected" && this.error !== null ? "degraded" : "unreachable";
    if (this.session.state === "connected") return this.failed ? "failed" : "reachable";
    if (this.failed) return this.lastSeenMs !== null && LINK_CODES.has(this.error?.code ?? "") ? "unreachable" : "failed";
    return this.lastSeenMs === null ? "new" : "reachable";
  }

  /** Takes an error as the node's own; an untrusted host key becomes the state of the key. */
  fail(error: unknown): void {
    this.failed = true;
    this.error = toErrorView(error);
    const { code, params = {} } = this.error;
    const status = ({ H202: "unconfirmed", H203: "changed", H213: "revoked" } as const)[code];
    if (!status) return;
    const text = (name: string): string | null => (typeof params[name] === "string" ? params[name] : null);
    this.hostKey = { status, algorithm: text("algorithm"), offered: text("fingerprint"), trusted: text("expected"), source: text("source") };
  }

  view(): NodeView {
    const r = this.record;
    return {
      id: r.id, name: r.name, host: r.host, port: r.port, user: r.user, authKind: r.authKind, keyPath: r.keyPath, jump: [...r.jump], dataAddress: r.dataAddress,
      phase: this.phase, hostKey: this.hostKey, connection: { state: this.session.state, sinceMs: this.session.sinceMs },
      agent: { state: this.agentState, version: this.agentVersion, rssKib: this.rssKib }, member: r.up ? r.member : null, facts: this.factsView, error: this.error,
      lastSeenMs: this.lastSeenMs, addedAtMs: r.addedAtMs,
    };
  }

  takeFacts(facts: AgentFacts): void {
    this.facts = facts;
    this.factsView = factsView(facts, this.agent?.hello.hostname ?? "");
  }
}

const LINK_CODES: ReadonlySet<string> = new Set(["H201", "H207"]);

/**
 * Where and how to log in, with the secret from its keeper.
 * @throws ConsoleError H204 when the password was not kept, H101 for a malformed hop
 */
export async function targetOf(record: NodeRecord, secrets: SecretKeeper): Promise<SshTarget> {
  const secret = record.authKind === "agent" ? null : await secrets.get(record.id);
  let auth: AuthMethod;
  if (record.authKind === "agent") auth = { kind: "agent" };
  else if (record.authKind === "key") auth = { kind: "key", keyPath: record.keyPath ?? "", ...(secret === null ? {} : { passphrase: secret }) };
  else if (secret !== null) auth = { kind: "password", password: secret };
  else throw ConsoleError.of("H204", { host: record.host, user: record.user, detail: "the password is not kept over a restart; enter it again" });
  return { host: record.host, port: record.port, user: record.user, auth, jump: record.jump.map((hop) => parseJump(hop, record.user)) };
}
