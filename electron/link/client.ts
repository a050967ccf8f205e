import type { Duplex } from "node:stream";
import type { TelemetryFrame } from "../../native/addon/index.js";
import { ConsoleError, type ErrorView } from "../contract/index.js";
import { loadAddon, type Addon } from "./addon.js";
import { FramingError, MessageSplitter } from "./framing.js";
import { AGENT_METHODS, PROTOCOL_VERSION, RpcError, RunEvent, type AgentMethod, type AgentParams, type AgentResult, type Hello } from "./schemas.js";
import type { AgentClient } from "./types.js";

export interface ConnectOptions {
  /** How the node is called in errors. */
  host?: string;
  /** What the daemon's log calls us. */
  clientName?: string;
  signal?: AbortSignal;
  /** For the first answer. Default 10 000. */
  helloTimeoutMs?: number;
  /** For each call that names none. Default 30 000. */
  callTimeoutMs?: number;
}

export interface ConnectedAgent extends AgentClient {
  readonly hello: Hello;
}

interface Pending {
  method: AgentMethod;
  settle(outcome: { result: unknown } | { error: ConsoleError }): void;
}

/** Unsent bytes after which the daemon counts as dead. */
const MAX_QUEUED_BYTES = 4 << 20;
const MAX_REQUEST_BYTES = 1 << 20;
/** Answers that nobody waits for any more, remembered so that a late one is no protocol error. */
const MAX_ABANDONED = 4096;

/**
 * Opens the conversation over `stream` (agent/PROTOCOL.md): says hello, checks the protocol's version.
 * The stream belongs to the client from then on and is destroyed with it.
 * @throws ConsoleError H401 no answer or connection lost, H403 other protocol, H404 not the protocol at all, H104 aborted
 */
export async function connectAgent(stream: Duplex, options: ConnectOptions = {}): Promise<ConnectedAgent> {
  const addon = await loadAddon().catch((error: unknown) => {
    stream.destroy();
    throw error;
  });
  const client = new StreamAgentClient(stream, addon, options);
  try {
    await client.greet(options);
    return client as ConnectedAgent;
  } catch (error) {
    client.close();
    throw error;
  }
}

class StreamAgentClient implements AgentClient {
  hello: Hello | undefined;
  readonly #host: string;
  readonly #callTimeoutMs: number;
  readonly #stream: Duplex;
  readonly #addon: Addon;
  readonly #splitter: MessageSplitter;
  readonly #pending = new Map<number, Pending>();
  readonly #abandoned = new Set<number>();
  readonly #runListeners = new Set<(event: RunEvent) => void>();
  readonly #frameListeners = new Set<(frame: TelemetryFrame) => void>();
  readonly #closeListeners = new Set<(reason: ConsoleError) => void>();
  #nextId = 1;
  #reason: ConsoleError | undefined;

  constructor(stream: Duplex, addon: Addon, options: ConnectOptions) {
    this.#stream = stream;
    this.#addon = addon;
    this.#host = options.host ?? "the node";
    this.#callTimeoutMs = options.callTimeoutMs ?? 30_000;
    this.#splitter = new MessageSplitter({ line: (text) => this.#onLine(text), frame: (bytes) => this.#onFrame(bytes) });
    stream.on("data", (chunk: Buffer) => this.#onData(chunk));
    stream.on("error", (error: Error) => this.#end(ConsoleError.of("H401", { host: this.#host, detail: error.message.slice(0, 300) }, error)));
    const gone = (): void => this.#end(ConsoleError.of("H401", { host: this.#host, detail: "the connection to it was closed" }));
    stream.on("end", gone);
    stream.on("close", gone);
  }

  get closed(): boolean {
    return this.#reason !== undefined;
  }

  async greet(options: ConnectOptions): Promise<void> {
    const ours = String(PROTOCOL_VERSION);
    try {
      const params = { protocol: PROTOCOL_VERSION, client: options.clientName ?? "StepCCL Console" };
      const timeoutMs = options.helloTimeoutMs ?? 10_000;
      this.hello = await this.call("hello", params, options.signal ? { signal: options.signal, timeoutMs } : { timeoutMs });
    } catch (error) {
      if (!(error instanceof ConsoleError)) throw error;
      if (error.view.code === "A104") throw ConsoleError.of("H403", { host: this.#host, found: String(error.view.params?.["protocol"] ?? "another version"), expected: ours }, error);
      if (error.view.code === "H209") throw ConsoleError.of("H401", { host: this.#host, detail: "no answer to the greeting" }, error);
      throw error;
    }
    if (this.hello.protocol !== PROTOCOL_VERSION) throw ConsoleError.of("H403", { host: this.#host, found: String(this.hello.protocol), expected: ours });
  }

  call<M extends AgentMethod>(method: M, params: AgentParams<M>, options: { signal?: AbortSignal; timeoutMs?: number } = {}): Promise<AgentResult<M>> {
    return new Promise((resolve, reject) => {
      if (this.#reason) return reject(this.#reason);
      if (options.signal?.aborted) return reject(ConsoleError.of("H104"));
      const checked = AGENT_METHODS[method].params.safeParse(params);
      if (!checked.success) return reject(ConsoleError.of("H101", { detail: `${method}: ${issueText(checked.error)}` }));

      const id = this.#nextId++;
      const timeoutMs = options.timeoutMs ?? this.#callTimeoutMs;
      const abandon = (error: ConsoleError): void => {
        this.#abandon(id);
        finish({ error });
      };
      const timer = setTimeout(() => abandon(ConsoleError.of("H209", { what: method, host: this.#host, seconds: timeoutMs / 1000 })), timeoutMs);
      const onAbort = (): void => abandon(ConsoleError.of("H104"));
      options.signal?.addEventListener("abort", onAbort, { once: true });
      const finish: Pending["settle"] = (outcome) => {
        clearTimeout(timer);
        options.signal?.removeEventListener("abort", onAbort);
        this.#pending.delete(id);
        if ("error" in outcome) return reject(outcome.error);
        const result = AGENT_METHODS[method].result.safeParse(outcome.result);
        if (result.success) resolve(result.data as AgentResult<M>);
        else reject(ConsoleError.of("H404", { host: this.#host, detail: `the answer to ${method}: ${issueText(result.error)}` }));
      };
      this.#pending.set(id, { method, settle: finish });
      const refused = this.#send({ jsonrpc: "2.0", id, method, params: checked.data });
      if (refused) finish({ error: refused });
    });
  }

  onRunEvent(listener: (event: RunEvent) => void): () => void {
    return subscribe(this.#runListeners, listener);
  }
  onFrame(listener: (frame: TelemetryFrame) => void): () => void {
    return subscribe(this.#frameListeners, listener);
  }
  onClose(listener: (reason: ConsoleError) => void): () => void {
    if (this.#reason) {
      const reason = this.#reason;
      queueMicrotask(() => listener(reason));
      return () => {};
    }
    return subscribe(this.#closeListeners, listener);
  }

  close(): void {
    this.#end(ConsoleError.of("H104"));
  }

  #send(message: unknown): ConsoleError | null {
    const line = `${JSON.stringify(message)}\n`;
    if (Buffer.byteLength(line) > MAX_REQUEST_BYTES) return ConsoleError.of("H101", { detail: `the request is larger than ${MAX_REQUEST_BYTES} bytes` });
    this.#stream.write(line);
    if (this.#stream.writableLength > MAX_QUEUED_BYTES) {
      this.#end(ConsoleError.of("H401", { host: this.#host, detail: `it does not read; ${this.#stream.writableLength} bytes wait` }));
    }
    return null;
  }

  #onData(chunk: Buffer): void {
    if (this.#reason) return;
    try {
      this.#splitter.push(chunk);
    } catch (error) {
      if (error instanceof FramingError) this.#refuse(error.message);
      else throw error;
    }
  }

  #onLine(text: string): void {
    if (this.#reason) return;
    let message: unknown;
    try {
      message = JSON.parse(text);
    } catch {
      return this.#refuse("a line that is no JSON");
    }
    if (typeof message !== "object" || message === null || Array.isArray(message)) return this.#refuse("a message that is no object");
    if ("method" in message) this.#onNotification(message as { method: unknown; params?: unknown });
    else this.#onAnswer(message as { id?: unknown; result?: unknown; error?: unknown });
  }

  #onNotification(message: { method: unknown; params?: unknown }): void {
    if (message.method !== "run.event") return;
    const event = RunEvent.safeParse(message.params);
    if (!event.success) return this.#refuse(`a run event: ${issueText(event.error)}`);
    for (const listener of [...this.#runListeners]) listener(event.data);
  }

  #onAnswer(message: { id?: unknown; result?: unknown; error?: unknown }): void {
    if (typeof message.id !== "number") {
      const error = RpcError.safeParse(message.error);
      return this.#refuse(error.success ? `an error that belongs to no request: ${error.data.message.slice(0, 200)}` : "an answer without id");
    }
    if (this.#abandoned.delete(message.id)) return;
    const pending = this.#pending.get(message.id);
    if (!pending) return this.#refuse(`an answer to request ${message.id}, which was never made`);
    if (message.error === undefined) return pending.settle({ result: message.result });
    const error = RpcError.safeParse(message.error);
    if (!error.success) return pending.settle({ error: ConsoleError.of("H404", { host: this.#host, detail: `the error of ${pending.method}: ${issueText(error.error)}` }) });
    pending.settle({ error: new ConsoleError(errorViewOf(error.data, pending.method, this.#host)) });
  }

  #onFrame(bytes: Buffer): void {
    if (this.#reason) return;
    let frame: TelemetryFrame;
    try {
      frame = this.#addon.decodeTelemetryFrame(bytes);
    } catch (error) {
      return this.#refuse(`a telemetry frame: ${error instanceof Error ? error.message : String(error)}`);
    }
    for (const listener of [...this.#frameListeners]) listener(frame);
  }

  #abandon(id: number): void {
    this.#abandoned.add(id);
    if (this.#abandoned.size > MAX_ABANDONED) this.#refuse(`no answer to ${MAX_ABANDONED} requests`);
  }

  #refuse(detail: string): void {
    this.#end(ConsoleError.of("H404", { host: this.#host, detail }));
  }

  #end(reason: ConsoleError): void {
    if (this.#reason) return;
    this.#reason = reason;
    this.#stream.destroy();
    for (const pending of [...this.#pending.values()]) pending.settle({ error: reason });
    this.#abandoned.clear();
    this.#runListeners.clear();
    this.#frameListeners.clear();
    const listeners = [...this.#closeListeners];
    this.#closeListeners.clear();
    for (const listener of listeners) listener(reason);
  }
}

function subscribe<T>(set: Set<(value: T) => void>, listener: (value: T) => void): () => void {
  const own = (value: T): void => listener(value);
  set.add(own);
  return () => void set.delete(own);
}

const CODE = /^(A|R|DE)\d{3}$/;
const STANDARD: Record<number, string> = { [-32601]: "A102", [-32700]: "A101", [-32600]: "A101", [-32602]: "A101" };

/** The daemon's error as the console shows it: its own code, bounded texts, plain values. */
export function errorViewOf(error: RpcError, method: string, host: string): ErrorView {
  const code = error.data && CODE.test(error.data.code) ? error.data.code : STANDARD[error.code];
  if (!code) return ConsoleError.of("H404", { host, detail: `an error of ${method} without a code: ${error.message.slice(0, 300)}` }).view;
  const params: Record<string, string | number | boolean> = { host, method };
  for (const [name, value] of Object.entries(error.data?.detail ?? {}).slice(0, 32)) {
    if (typeof value === "number" || typeof value === "boolean") params[name] = value;
    else if (typeof value === "string") params[name] = value.slice(0, 1024);
  }
  return { code, message: error.message.slice(0, 2048), next: (error.data?.next ?? "Look at the journal of stepccld on the node.").slice(0, 2048), params };
}

/** The first broken rules of a schema, in one line. */
export function issueText(error: { issues: readonly { path: readonly PropertyKey[]; message: string }[] }): string {
  return error.issues.slice(0, 3).map((i) => `${i.path.map(String).join(".") || "value"}: ${i.message}`).join("; ").slice(0, 400);
}
