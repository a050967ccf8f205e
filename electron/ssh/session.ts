import { EventEmitter } from "node:events";
import type { Duplex } from "node:stream";
import type { Client, ClientChannel, SFTPWrapper } from "ssh2";
import { ConsoleError } from "../contract/index.js";
import { AGENT_EXECUTABLE, AGENT_SOCKET, awaitProxy, forwardToSocket, proxyCommand } from "./agent_stream.js";
import { dial, type Dialled, type HopPool, type SshEnvironment, type SshTarget } from "./dial.js";
import { collect, DEFAULT_TIMEOUT_MS, openExec } from "./exec.js";
import { detailOf, lostError, OPEN_CONNECT_FAILED, type SshFailure } from "./failure.js";
import { Limit } from "./limit.js";
import { plainLine, shellQuote } from "./quote.js";
import type { ExecOptions, ExecResult, NodeSession } from "./types.js";
import { uploadFile } from "./upload.js";

/** OpenSSH allows ten sessions on a connection; two stay free for the operator's own use of a shared limit. */
const MAX_SESSIONS = 8;

export type ConnectionState = "disconnected" | "connecting" | "connected";

export interface SessionEvents {
  state: [ConnectionState];
  /** A connection that stood is gone; not for `close()`. */
  lost: [ConsoleError];
  /** The node answered something. */
  seen: [];
}

interface Live {
  readonly dialled: Dialled;
  readonly client: Client;
  readonly sessions: Limit;
  root: Promise<"root" | "sudo"> | null;
}

/** One node over one connection (see NodeSession). It never redials by itself: the next call does, or the fleet's supervision. */
export class SshSession extends EventEmitter<SessionEvents> implements NodeSession {
  readonly nodeId: string;
  readonly #env: SshEnvironment;
  readonly #pool: HopPool;
  #target: SshTarget;
  #live: Live | null = null;
  #dialling: { promise: Promise<Live>; abort: AbortController; waiting: number } | null = null;
  #state: ConnectionState = "disconnected";
  #sinceMs = Date.now();

  constructor(nodeId: string, target: SshTarget, env: SshEnvironment, pool: HopPool) {
    super();
    this.nodeId = nodeId;
    this.#target = target;
    this.#env = env;
    this.#pool = pool;
  }

  get state(): ConnectionState {
    return this.#state;
  }
  get sinceMs(): number {
    return this.#sinceMs;
  }
  get target(): SshTarget {
    return this.#target;
  }

  /** Other credentials or another address: what stands is closed, the next call dials anew. */
  retarget(target: SshTarget): void {
    this.close();
    this.#target = target;
  }

  /** @throws ConsoleError what `dial` throws */
  async connect(signal?: AbortSignal): Promise<void> {
    await this.#connected(signal);
  }

  close(): void {
    this.#dialling?.abort.abort();
    this.#dialling = null;
    const live = this.#live;
    this.#live = null;
    live?.dialled.close();
    this.#setState("disconnected");
  }

  async exec(command: string, options: ExecOptions = {}): Promise<ExecResult> {
    return await this.#run(command, options, null);
  }

  async execLines(command: string, onLine: (stream: "stdout" | "stderr", line: string) => void, options: ExecOptions = {}): Promise<ExecResult> {
    return await this.#run(command, options, onLine);
  }

  async upload(source: { path: string; sizeBytes: number; sha256: string }, path: string, mode: number, onProgress?: (doneBytes: number) => void, signal?: AbortSignal): Promise<void> {
    const live = await this.#connected(signal);
    await this.#withSession(live, signal, async (release) => {
      const sftp = await openSftp(live.client).catch((error: unknown) => {
        throw isOpenFailure(error) ? error : ConsoleError.of("H310", { command: "the sftp subsystem", host: this.#host, status: "?", detail: detailOf(error) }, error);
      });
      sftp.on("error", () => {});
      sftp.on("close", release);
      try {
        const context = { client: live.client, host: this.#host, exec: (c: string, o?: ExecOptions) => this.#runOn(live, c, o ?? {}, null), ...(signal ? { signal } : {}) };
        await uploadFile(sftp, context, source, path, mode, onProgress);
        this.emit("seen");
      } finally {
        // An SFTP channel takes a session until it is ended.
        sftp.end();
      }
    });
  }

  async openAgentStream(signal?: AbortSignal): Promise<Duplex> {
    const live = await this.#connected(signal);
    try {
      return watched(await forwardToSocket(live.client, AGENT_SOCKET, signal));
    } catch (error) {
      if (error instanceof ConsoleError) throw error;
      if (this.#live !== live) throw lostError(undefined, this.#host);
    }
    return await this.#withSession(live, signal, async (release) => {
      const channel = await openExec(live.client, proxyCommand(AGENT_SOCKET, AGENT_EXECUTABLE));
      channel.on("close", release);
      return watched(await awaitProxy(channel, this.#host, 15_000, signal));
    });
  }

  /**
   * Whether the server lets a stream-local channel through to `path`, tried for real.
   */
  async canForwardTo(path: string, signal?: AbortSignal): Promise<boolean> {
    const live = await this.#connected(signal);
    try {
      const channel = await forwardToSocket(live.client, path, signal);
      channel.on("error", () => {});
      channel.resume();
      channel.destroy();
      return true;
    } catch (error) {
      if (error instanceof ConsoleError) throw error;
      return false;
    }
  }

  get #host(): string {
    return this.#target.host;
  }

  async #run(command: string, options: ExecOptions, onLine: ((stream: "stdout" | "stderr", line: string) => void) | null): Promise<ExecResult> {
    const live = await this.#connected(options.signal);
    const wrapped = options.root ? await this.#asRoot(live, command, options) : command;
    const result = await this.#runOn(live, wrapped, options, onLine, command);
    this.emit("seen");
    return result;
  }

  async #runOn(live: Live, command: string, options: ExecOptions, onLine: ((stream: "stdout" | "stderr", line: string) => void) | null, shown = command): Promise<ExecResult> {
    return await this.#withSession(live, options.signal, async (release) => {
      const channel = await openExec(live.client, command);
      return await collect(channel, this.#host, plainLine(shown, 80), options, onLine, release);
    });
  }

  /**
   * A signal over SSH reaches neither what runs by sudo nor anything of a root login (sshd then runs without privilege
   * separation): as root, the node itself keeps the time.
   */
  async #asRoot(live: Live, command: string, options: ExecOptions): Promise<string> {
    const timeoutS = Math.ceil((options.timeoutMs ?? DEFAULT_TIMEOUT_MS) / 1000) + 1;
    const timed = `timeout -k 5 ${timeoutS} /bin/sh -c ${shellQuote(command)}`;
    return (await this.#rootWay(live, options.signal)) === "root" ? timed : `sudo -n -- ${timed}`;
  }

  /** How this user becomes root; asked once for each connection. */
  async #rootWay(live: Live, signal?: AbortSignal): Promise<"root" | "sudo"> {
    live.root ??= (async () => {
      const options: ExecOptions = { timeoutMs: 30_000, maxBytes: 4096 };
      const asked = await this.#runOn(live, "/bin/sh -c 'if [ \"$(id -u)\" = 0 ]; then echo root; elif sudo -n true; then echo sudo; fi'", options, null);
      const way = asked.stdout.trim();
      if (way === "root" || way === "sudo") return way;
      throw ConsoleError.of("H303", { host: this.#host, user: this.#target.user, detail: plainLine(asked.stderr, 200) });
    })();
    try {
      return await live.root;
    } catch (error) {
      live.root = null;
      throw error;
    } finally {
      if (signal?.aborted) throw ConsoleError.of("H104");
    }
  }

  /**
   * Holds one of the connection's sessions for `work`, which calls `release` once the server has let go. A server with a
   * lower limit is learnt from its refusal.
   */
  async #withSession<T>(live: Live, signal: AbortSignal | undefined, work: (release: () => void) => Promise<T>): Promise<T> {
    for (;;) {
      const release = await live.sessions.acquire(signal);
      if (this.#live !== live) {
        release();
        throw lostError(undefined, this.#host);
      }
      try {
        return await work(release);
      } catch (error) {
        if (error instanceof ConsoleError) throw error;
        const others = live.sessions.inUse - 1;
        release();
        if (this.#live !== live) throw lostError(undefined, this.#host);
        if (!isOpenFailure(error)) throw ConsoleError.of("H207", { host: this.#host, detail: detailOf(error) }, error);
        if (others < 1) throw ConsoleError.of("H208", { host: this.#host }, error);
        live.sessions.shrink(others);
      }
    }
  }

  async #connected(signal?: AbortSignal): Promise<Live> {
    if (signal?.aborted) throw ConsoleError.of("H104");
    if (this.#live) return this.#live;
    let dialling = this.#dialling;
    if (!dialling) {
      const abort = new AbortController();
      dialling = { abort, waiting: 0, promise: this.#dial(abort) };
      dialling.promise.catch(() => {});
      this.#dialling = dialling;
    }
    const shared = dialling;
    shared.waiting++;
    // The dial is shared: it ends early only when nobody waits for it any more.
    return await new Promise<Live>((resolve, reject) => {
      const onAbort = (): void => {
        reject(ConsoleError.of("H104"));
        if (--shared.waiting > 0) return;
        shared.abort.abort();
        if (this.#dialling === shared) this.#dialling = null;
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      shared.promise.then(resolve, reject).finally(() => signal?.removeEventListener("abort", onAbort));
    });
  }

  async #dial(abort: AbortController): Promise<Live> {
    this.#setState("connecting");
    try {
      const dialled = await dial(this.#target, this.#env, this.#pool, abort.signal);
      if (abort.signal.aborted) {
        dialled.close();
        throw ConsoleError.of("H104");
      }
      const live: Live = { dialled, client: dialled.client, sessions: new Limit(MAX_SESSIONS), root: null };
      let cause: unknown;
      dialled.client.on("error", (error) => {
        cause ??= error;
      });
      dialled.client.on("close", () => this.#onClosed(live, cause));
      this.#live = live;
      this.#setState("connected");
      this.emit("seen");
      return live;
    } catch (error) {
      if (!this.#live && (this.#dialling === null || this.#dialling.abort === abort)) this.#setState("disconnected");
      throw error;
    } finally {
      if (this.#dialling?.abort === abort) this.#dialling = null;
    }
  }

  #onClosed(live: Live, cause: unknown): void {
    if (this.#live !== live) return;
    this.#live = null;
    this.#setState("disconnected");
    this.emit("lost", lostError(cause, this.#host));
  }

  #setState(state: ConnectionState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#sinceMs = Date.now();
    this.emit("state", state);
  }
}

function isOpenFailure(error: unknown): boolean {
  const reason = (error as SshFailure | null)?.reason;
  return reason === OPEN_CONNECT_FAILED || reason === 1 || reason === 4;
}

function openSftp(client: Client): Promise<SFTPWrapper> {
  return new Promise((resolve, reject) => {
    try {
      client.sftp((error, sftp) => (error ? reject(error) : resolve(sftp)));
    } catch (error) {
      reject(error as Error);
    }
  });
}

/** A channel whose errors always have a listener: with none, a late one would end the process. */
function watched(stream: Duplex): Duplex {
  stream.on("error", () => {});
  const stderr = (stream as Partial<ClientChannel>).stderr;
  if (stderr && stderr.listenerCount("data") === 0) stderr.resume();
  return stream;
}
