import { StringDecoder } from "node:string_decoder";
import type { Client, ClientChannel } from "ssh2";
import { ConsoleError } from "../contract/index.js";
import { lostError } from "./failure.js";
import { plainLine } from "./quote.js";
import type { ExecOptions, ExecResult } from "./types.js";

export const DEFAULT_TIMEOUT_MS = 30_000;
export const DEFAULT_MAX_BYTES = 1 << 20;
/** A line longer than this is given in pieces. */
export const MAX_LINE_CHARS = 64 * 1024;
/** How long a killed command may take to leave its place among the sessions. */
const CLOSE_GRACE_MS = 5_000;

/** Opens an exec channel; the raw error tells the caller whether the server is out of sessions. */
export function openExec(client: Client, command: string): Promise<ClientChannel> {
  return new Promise((resolve, reject) => {
    try {
      client.exec(command, (error, channel) => (error ? reject(error) : resolve(channel)));
    } catch (error) {
      reject(error as Error);
    }
  });
}

/** Keeps the first `max` bytes of a stream and counts the rest. */
class Kept {
  readonly #parts: Buffer[] = [];
  #room: number;
  dropped = 0;
  constructor(max: number) {
    this.#room = max;
  }
  push(chunk: Buffer): void {
    const part = chunk.length > this.#room ? chunk.subarray(0, this.#room) : chunk;
    if (part.length > 0) this.#parts.push(part);
    this.#room -= part.length;
    this.dropped += chunk.length - part.length;
  }
  toString(): string {
    return Buffer.concat(this.#parts).toString("utf8");
  }
}

/** Cuts UTF-8 bytes into lines; a multi-byte character may be split between chunks. */
export class LineCutter {
  readonly #decoder = new StringDecoder("utf8");
  #rest = "";
  constructor(private readonly onLine: (line: string) => void) {}
  push(chunk: Buffer): void {
    this.#rest += this.#decoder.write(chunk);
    const lines = this.#rest.split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.onLine(line.endsWith("\r") ? line.slice(0, -1) : line);
    while (this.#rest.length > MAX_LINE_CHARS) {
      this.onLine(this.#rest.slice(0, MAX_LINE_CHARS));
      this.#rest = this.#rest.slice(MAX_LINE_CHARS);
    }
  }
  end(): void {
    this.#rest += this.#decoder.end();
    if (this.#rest !== "") this.onLine(this.#rest);
    this.#rest = "";
  }
}

/**
 * ClientChannel.signal() does nothing once our side has sent EOF, which every command without input has from the start; the
 * protocol allows the request until the channel is closed (RFC 4254 section 6.9).
 */
function signalCommand(channel: ClientChannel, name: "TERM" | "KILL"): void {
  const inner = channel as unknown as { outgoing?: { id: number; state: string }; _client?: { _protocol?: { signal(id: number, name: string): void } } };
  if (inner.outgoing && inner.outgoing.state !== "closed" && inner.outgoing.state !== "closing") inner._client?._protocol?.signal(inner.outgoing.id, name);
}

/**
 * Runs the command of an open channel to its end. `released` is called when the server has let go of the session.
 * @throws ConsoleError H104 aborted, H207 connection lost, H209 out of time
 */
export function collect(channel: ClientChannel, host: string, what: string, options: ExecOptions, onLine: ((stream: "stdout" | "stderr", line: string) => void) | null, released: () => void): Promise<ExecResult> {
  const startedAt = performance.now();
  const maxBytes = options.maxBytes ?? DEFAULT_MAX_BYTES;
  const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const stdout = new Kept(maxBytes);
  const stderr = new Kept(maxBytes);
  return new Promise((resolve, reject) => {
    let status: number | null = null;
    let exitSignal: string | null = null;
    let exited = false;
    let over = false;
    const finish = (settle: () => void): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", onAbort);
      settle();
    };
    const kill = (error: ConsoleError): void => finish(() => {
      // The channel's end does not end the command: it is asked to stop first.
      signalCommand(channel, "TERM");
      signalCommand(channel, "KILL");
      channel.close();
      setTimeout(released, CLOSE_GRACE_MS).unref();
      reject(error);
    });
    const onAbort = (): void => kill(ConsoleError.of("H104"));
    const timer = setTimeout(() => kill(ConsoleError.of("H209", { what, host, seconds: timeoutMs / 1000 })), timeoutMs);
    options.signal?.addEventListener("abort", onAbort, { once: true });

    const safely = (deliver: () => void): void => {
      try {
        deliver();
      } catch (error) {
        finish(() => {
          channel.close();
          reject(error instanceof Error ? error : new Error(String(error)));
        });
      }
    };
    const out = onLine && new LineCutter((line) => onLine("stdout", line));
    const err = onLine && new LineCutter((line) => onLine("stderr", line));
    channel.on("data", (chunk: Buffer) => {
      if (over) return;
      stdout.push(chunk);
      if (out) safely(() => out.push(chunk));
    });
    channel.stderr.on("data", (chunk: Buffer) => {
      if (over) return;
      stderr.push(chunk);
      if (err) safely(() => err.push(chunk));
    });
    channel.on("exit", (code: number | null, name?: string) => {
      exited = true;
      status = code;
      exitSignal = name ? plainLine(name, 32) : null;
    });
    channel.on("error", (error: Error) => finish(() => reject(lostError(error, host))));
    channel.on("close", () => {
      released();
      finish(() => {
        if (!exited) return reject(lostError(undefined, host));
        out?.end();
        err?.end();
        resolve({
          status, signal: exitSignal, stdout: stdout.toString(), stderr: stderr.toString(),
          droppedBytes: stdout.dropped + stderr.dropped, durationMs: performance.now() - startedAt,
        });
      });
    });
    if (options.signal?.aborted) onAbort();
    else if (options.stdin === undefined) channel.end();
    else channel.end(options.stdin);
  });
}

export function execFailed(command: string, host: string, result: ExecResult): ConsoleError {
  const detail = plainLine(result.stderr.trim() || result.stdout.trim() || "no output", 400);
  return ConsoleError.of("H310", { command: plainLine(command, 120), host, status: result.status ?? `signal ${result.signal ?? "unknown"}`, detail });
}

