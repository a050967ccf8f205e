import { rmSync } from "node:fs";
import { ConsoleError, type AuthMethod } from "../../contract/index.js";
import { HopPool, sshEnvironment, type SshEnvironment, type SshTarget } from "../dial.js";
import { hostKeyName, type Endpoint } from "../endpoint.js";
import { MemoryTrustStore } from "../host_key.js";
import { SshSession } from "../session.js";
import { makeKey, startSshd, tempDir, type KeyPair, type Sshd, type SshdOptions } from "./sshd.js";

/** Servers, keys and sessions of one test file; everything goes with `close`. */
export class Fixture {
  readonly dir = tempDir();
  readonly userKey: KeyPair = makeKey(this.dir, "user");
  readonly hostKey: KeyPair = makeKey(this.dir, "host");
  readonly trust = new MemoryTrustStore();
  readonly warnings: string[] = [];
  readonly env: SshEnvironment;
  readonly pool: HopPool;
  readonly #servers: Sshd[] = [];
  readonly #sessions: SshSession[] = [];

  constructor(env: Partial<SshEnvironment> = {}) {
    this.env = sshEnvironment({ trust: this.trust, knownHostsFiles: [], onWarning: (w) => this.warnings.push(w), ...env });
    this.pool = new HopPool(this.env);
  }

  async sshd(options: Partial<SshdOptions> = {}): Promise<Sshd> {
    const server = await startSshd(this.dir, { hostKeys: [this.hostKey], authorized: [this.userKey], ...options });
    this.#servers.push(server);
    return server;
  }

  trustKey(endpoint: { host: string; port: number }, key: KeyPair): void {
    this.trust.trust({ name: hostKeyName(endpoint), type: "ssh-ed25519", key: key.blob, addedAtMs: Date.now(), source: "operator" });
  }

  target(server: Sshd, overrides: { user?: string; auth?: AuthMethod; jump?: Endpoint[] } = {}): SshTarget {
    return { host: "127.0.0.1", port: server.port, user: server.user, auth: { kind: "key", keyPath: this.userKey.path }, jump: [], ...overrides };
  }

  session(target: SshTarget): SshSession {
    const session = new SshSession("n1", target, this.env, this.pool);
    this.#sessions.push(session);
    return session;
  }

  /** A server whose key is trusted, and a session to it. */
  async pair(options: Partial<SshdOptions> = {}): Promise<{ server: Sshd; session: SshSession }> {
    const server = await this.sshd(options);
    this.trustKey({ host: "127.0.0.1", port: server.port }, options.hostKeys?.[0] ?? this.hostKey);
    return { server, session: this.session(this.target(server)) };
  }

  async close(): Promise<void> {
    for (const session of this.#sessions) session.close();
    await Promise.all(this.#servers.map((s) => s.stop()));
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** The ConsoleError that `work` ends with; anything else fails the test. */
export async function errorOf(work: Promise<unknown>): Promise<ConsoleError["view"]> {
  try {
    await work;
  } catch (error) {
    if (error instanceof ConsoleError) return error.view;
    throw error;
  }
  throw new Error("it should have failed");
}
