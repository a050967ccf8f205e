import { connect, isIPv6, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import ssh2 from "ssh2";
import type { Client, ConnectConfig } from "ssh2";
import { withAbort } from "../abort.js";
import { ConsoleError, type AuthMethod } from "../contract/index.js";
import { planAuth, type AuthPlan } from "./auth.js";
import { endpointText, type Endpoint } from "./endpoint.js";
import { detailOf, dialError } from "./failure.js";
import { hostKeyError, HostKeyJudge, strictVerifier, type TrustStore, type Verdict } from "./host_key.js";
import { defaultKnownHostsFiles } from "./known_hosts.js";
import { KeyedLimit, Limit } from "./limit.js";
import type { KeyBlob } from "./public_key.js";

/** How to reach one node: the hops first, each an SSH server of its own, then the node. */
export interface SshTarget extends Endpoint {
  readonly auth: AuthMethod;
  readonly jump: readonly Endpoint[];
}

/** What all connections of one console share. */
export interface SshEnvironment {
  readonly trust: TrustStore;
  /** Read before every dial, never written. */
  readonly knownHostsFiles: readonly string[];
  readonly agentSocket?: () => string | null;
  /** For a TCP connection to stand. */
  readonly connectTimeoutMs: number;
  /** For key exchange and authentication; an agent may ask its owner meanwhile. */
  readonly handshakeTimeoutMs: number;
  readonly keepaliveIntervalMs: number;
  /** Dials in flight to one server: sshd drops some at random from its tenth unauthenticated connection on (MaxStartups). */
  readonly dialsPerServer: KeyedLimit;
  readonly dials: Limit;
  readonly onWarning: (warning: string) => void;
}

export function sshEnvironment(options: Partial<SshEnvironment> & { trust: TrustStore }): SshEnvironment {
  return {
    knownHostsFiles: defaultKnownHostsFiles(), connectTimeoutMs: 10_000, handshakeTimeoutMs: 30_000, keepaliveIntervalMs: 10_000,
    dialsPerServer: new KeyedLimit(8), dials: new Limit(64), onWarning: () => {}, ...options,
  };
}

/** A connection that is ready, and the hops below it. */
export interface Dialled {
  readonly client: Client;
  /** Ends it and its hold on the hops. */
  close(): void;
}

/** Opens the byte stream to a server: straight, or through the hop before it. */
async function openStream(to: Endpoint, through: Client | null, env: SshEnvironment, signal?: AbortSignal): Promise<Duplex> {
  const failed = (detail: string, cause?: unknown): ConsoleError => ConsoleError.of("H201", { host: to.host, port: to.port, detail }, cause);
  return await new Promise<Duplex>((resolve, reject) => {
    let over = false;
    let abandon = (): void => {};
    const finish = (settle: () => void): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      settle();
    };
    const fail = (error: ConsoleError): void => finish(() => {
      abandon();
      reject(error);
    });
    const onAbort = (): void => fail(ConsoleError.of("H104"));
    const timer = setTimeout(() => fail(failed(`no connection within ${env.connectTimeoutMs / 1000} s`)), env.connectTimeoutMs);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) return onAbort();
    if (through) {
      try {
        through.forwardOut("127.0.0.1", 0, to.host, to.port, (error, channel) => {
          if (error) return fail(failed(`the jump host could not reach it: ${detailOf(error).replace(/^\(SSH\) /, "")}`, error));
          if (over) channel.destroy();
          else finish(() => resolve(channel));
        });
      } catch (error) {
        fail(failed("the connection to the jump host is gone", error));
      }
      return;
    }
    // Nagle's algorithm costs SSH's small messages tens of milliseconds each.
    const socket = connect({ host: to.host, port: to.port, noDelay: true, keepAlive: true, ...(isIPv6(to.host) ? { family: 6 } : {}) });
    abandon = () => void socket.destroy();
    socket.once("error", (error) => fail(failed(detailOf(error), error)));
    socket.once("connect", () => finish(() => {
      socket.removeAllListeners("error");
      resolve(socket);
    }));
  });
}

/**
 * Whether a new TCP connection to the target's SSH port is taken, through its hops: its kernel answers even while its programs
 * are too busy to. Nothing is sent, and the connection is closed at once.
 * @throws ConsoleError H104 when `signal` aborts
 */
export async function answersTcp(target: SshTarget, env: SshEnvironment, pool: HopPool, signal: AbortSignal): Promise<boolean> {
  let hop: Dialled | null = null;
  try {
    hop = target.jump.length > 0 ? await pool.acquire(target.jump, hopAuth(target.auth), signal) : null;
    (await openStream(target, hop?.client ?? null, env, signal)).destroy();
    return true;
  } catch (error) {
    if (error instanceof ConsoleError && error.view.code === "H104") throw error;
    return false;
  } finally {
    hop?.close();
  }
}

/** Key exchange, verdict and authentication over an open stream. With `plan` null it ends at the verdict: nothing is offered. */
function handshake(stream: Duplex, to: Endpoint, judge: HostKeyJudge, plan: AuthPlan | null, env: SshEnvironment, signal?: AbortSignal): Promise<{ client: Client; offered: KeyBlob }> {
  return new Promise((resolve, reject) => {
    const client = new ssh2.Client();
    let offered: KeyBlob | null = null;
    let verdict: Verdict | null = null;
    let over = false;
    const finish = (settle: () => void): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      settle();
    };
    const fail = (error: unknown): void => finish(() => {
      client.destroy();
      stream.destroy();
      if (offered && verdict && verdict.status !== "trusted") reject(hostKeyError(to.host, offered, verdict));
      else reject(dialError(error, to, () => plan?.report() ?? ""));
    });
    const onAbort = (): void => {
      verdict = null;
      fail(ConsoleError.of("H104"));
    };
    const timer = setTimeout(() => {
      const what = offered ? (plan ? `no end of the authentication within ${env.handshakeTimeoutMs / 1000} s (${plan.report()})` : "no end of the key exchange") : "no SSH handshake in time";
      fail(ConsoleError.of("H201", { host: to.host, port: to.port, detail: what }));
    }, env.handshakeTimeoutMs);
    signal?.addEventListener("abort", onAbort, { once: true });

    const accept = (key: KeyBlob): boolean => {
      offered = Buffer.from(key);
      verdict = judge.judge(offered);
      if (plan === null) {
        const seen = offered;
        finish(() => {
          setImmediate(() => {
            client.destroy();
            stream.destroy();
          });
          resolve({ client, offered: seen });
        });
        return false;
      }
      return verdict.status === "trusted";
    };
    client.on("error", (error: Error & { level?: string }) => {
      if (error.level === "agent" && !over) plan?.noteAgentError(error.message);
      else fail(error);
    });
    // ssh2 has the server prove each key that it announces before it tells us.
    client.on("hostkeys", (keys) => {
      if (!plan || !offered || verdict?.status !== "trusted") return;
      const rotated = judge.rotated(offered, keys.map((key) => key.getPublicSSH()), Date.now());
      if (rotated) env.trust.replace(judge.name, rotated);
    });
    client.on("close", () => fail(new Error("the server closed the connection during the handshake")));
    client.on("ready", () => finish(() => resolve({ client, offered: offered as KeyBlob })));
    const config: ConnectConfig = {
      sock: stream as Socket, username: to.user, hostVerifier: strictVerifier(accept, fail), readyTimeout: 0,
      keepaliveInterval: env.keepaliveIntervalMs, keepaliveCountMax: 3,
      algorithms: { serverHostKey: judge.algorithms() as never },
      ...(plan ? { authHandler: plan.handler as never } : {}),
    };
    try {
      if (signal?.aborted) onAbort();
      else client.connect(config);
    } catch (error) {
      fail(error);
    }
  });
}

/**
 * Credentials for a hop. The node's password is for the node alone: a hop gets the agent's or the file's key.
 */
function hopAuth(auth: AuthMethod): AuthMethod {
  return auth.kind === "password" ? { kind: "agent" } : auth;
}

async function dialOne(to: Endpoint, auth: AuthMethod, through: Client | null, env: SshEnvironment, signal?: AbortSignal): Promise<Client> {
  const plan = await planAuth(to.user, auth, { ...(env.agentSocket ? { agentSocket: env.agentSocket } : {}), ...(signal ? { signal } : {}) });
  for (const warning of plan.warnings) env.onWarning(warning);
  return await gated(to, through, env, signal, async () => {
    const judge = await HostKeyJudge.read(to, env.knownHostsFiles, env.trust);
    const stream = await openStream(to, through, env, signal);
    return (await handshake(stream, to, judge, plan, env, signal)).client;
  });
}

async function gated<T>(to: Endpoint, through: Client | null, env: SshEnvironment, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  const release = await env.dialsPerServer.acquire(`${through ? "via " : ""}${to.host.toLowerCase()}:${to.port}`, signal);
  try {
    return await env.dials.run(work, signal);
  } finally {
    release();
  }
}

/**
 * Hops that are connected, shared by all nodes behind them: a bastion carries any number of forwarded connections over one of
 * its own, while each new dial to it counts against its MaxStartups.
 */
export class HopPool {
  readonly #hops = new Map<string, { client: Promise<Client>; users: number; below: () => void }>();
  constructor(private readonly env: SshEnvironment) {}

  /**
   * The connection to the last of `hops`, dialled where it is not there yet. A dial that others wait for too is not ended by
   * one caller's `signal`.
   */
  async acquire(hops: readonly Endpoint[], auth: AuthMethod, signal?: AbortSignal): Promise<Dialled> {
    const last = hops[hops.length - 1];
    if (!last) throw new Error("no hop to dial");
    const key = JSON.stringify([hops.map(endpointText), auth.kind, auth.kind === "key" ? auth.keyPath : ""]);
    let hop = this.#hops.get(key);
    if (!hop) {
      const made = { client: Promise.resolve(null as never) as Promise<Client>, users: 0, below: () => {} };
      made.client = (async () => {
        const before = hops.length > 1 ? await this.acquire(hops.slice(0, -1), auth) : null;
        try {
          const client = await dialOne(last, auth, before?.client ?? null, this.env);
          made.below = () => before?.close();
          const gone = (): void => {
            if (this.#hops.get(key) === made) this.#hops.delete(key);
            made.below();
          };
          client.on("close", gone);
          client.on("error", () => client.destroy());
          return client;
        } catch (error) {
          before?.close();
          if (this.#hops.get(key) === made) this.#hops.delete(key);
          throw error;
        }
      })();
      made.client.catch(() => {});
      this.#hops.set(key, (hop = made));
    }
    hop.users++;
    const held = hop;
    let open = true;
    const close = (): void => {
      if (!open) return;
      open = false;
      if (--held.users > 0) return;
      if (this.#hops.get(key) === held) this.#hops.delete(key);
      held.client.then((client) => client.end(), () => {});
    };
    try {
      return { client: await withAbort(held.client, signal), close };
    } catch (error) {
      close();
      throw error;
    }
  }
}

/**
 * Dials a node through its hops; each server's key is verified under that server's own name.
 * @throws ConsoleError H104, H201 to H206, H211 to H213; `params.host` names the server that is meant
 */
export async function dial(target: SshTarget, env: SshEnvironment, pool: HopPool, signal?: AbortSignal): Promise<Dialled> {
  const hop = target.jump.length > 0 ? await pool.acquire(target.jump, hopAuth(target.auth), signal) : null;
  try {
    const client = await dialOne(target, target.auth, hop?.client ?? null, env, signal);
    client.on("close", () => hop?.close());
    return { client, close: () => client.end() };
  } catch (error) {
    hop?.close();
    throw error;
  }
}

/** A server on the way to a node, the key that it offers, and what is known about it. */
export interface ProbedKey {
  readonly endpoint: Endpoint;
  readonly key: KeyBlob;
  readonly judge: HostKeyJudge;
}

/**
 * Learns which key a node offers, without credentials: the connection ends at the key exchange, so that no timeout races the
 * person who compares fingerprints. Hops before it must be trusted; the first that is not is reported in the node's place.
 * @throws ConsoleError H104, H201, H206, H212, and for a hop everything that `dial` throws but H202 and H203
 */
export async function probeHostKey(target: SshTarget, env: SshEnvironment, pool: HopPool, signal?: AbortSignal): Promise<ProbedKey> {
  for (let i = 0; i < target.jump.length; i++) {
    const hop = target.jump[i] as Endpoint;
    const probed = await probeOne(hop, target.jump.slice(0, i), target.auth, env, pool, signal);
    if (probed.judge.judge(probed.key).status !== "trusted") return probed;
  }
  return await probeOne(target, target.jump, target.auth, env, pool, signal);
}

async function probeOne(to: Endpoint, hops: readonly Endpoint[], auth: AuthMethod, env: SshEnvironment, pool: HopPool, signal?: AbortSignal): Promise<ProbedKey> {
  const below = hops.length > 0 ? await pool.acquire(hops, hopAuth(auth), signal) : null;
  try {
    return await gated(to, below?.client ?? null, env, signal, async () => {
      const judge = await HostKeyJudge.read(to, env.knownHostsFiles, env.trust);
      const stream = await openStream(to, below?.client ?? null, env, signal);
      const { offered } = await handshake(stream, to, judge, null, env, signal);
      return { endpoint: to, key: offered, judge };
    });
  } finally {
    below?.close();
  }
}
