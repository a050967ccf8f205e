import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { dirname } from "node:path/posix";
import type { Client, SFTPWrapper } from "ssh2";
import { ConsoleError } from "../contract/index.js";
import { detailOf, lostError, type SshFailure } from "./failure.js";
import { shellQuote } from "./quote.js";
import type { ExecOptions, ExecResult } from "./types.js";

/** Writes in flight and their size: the best of the shapes measured against OpenSSH 9.2. */
const IN_FLIGHT = 16;
const CHUNK_BYTES = 128 * 1024;
/** For the server to answer one request. */
const REQUEST_TIMEOUT_MS = 60_000;
const SHA256_TIMEOUT_MS = 300_000;

export interface UploadContext {
  readonly client: Client;
  readonly host: string;
  readonly exec: (command: string, options?: ExecOptions) => Promise<ExecResult>;
  readonly signal?: AbortSignal;
}

export interface UploadSource {
  readonly path: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

/** Requests of one SFTP session: every one ends, with its answer, with the session, with the caller's signal, or out of time. */
class Calls {
  readonly #pending = new Set<(error: ConsoleError) => void>();
  #over: ConsoleError | null = null;
  readonly #end: () => void;

  constructor(sftp: SFTPWrapper, client: Client, private readonly host: string, signal?: AbortSignal) {
    const onClose = (): void => this.#fail(lostError(undefined, host));
    const onAbort = (): void => this.#fail(ConsoleError.of("H104"));
    sftp.on("close", onClose);
    client.on("close", onClose);
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#end = () => {
      sftp.off("close", onClose);
      client.off("close", onClose);
      signal?.removeEventListener("abort", onAbort);
    };
    if (signal?.aborted) onAbort();
  }

  run<T = void>(start: (callback: (error?: Error | null, value?: T) => void) => void): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#over) return reject(this.#over);
      const finish = (settle: () => void): void => {
        if (!this.#pending.delete(fail)) return;
        clearTimeout(timer);
        settle();
      };
      const fail = (error: ConsoleError): void => finish(() => reject(error));
      const timer = setTimeout(() => fail(ConsoleError.of("H209", { what: "a file transfer request", host: this.host, seconds: REQUEST_TIMEOUT_MS / 1000 })), REQUEST_TIMEOUT_MS);
      this.#pending.add(fail);
      try {
        start((error, value) => finish(() => (error ? reject(error) : resolve(value as T))));
      } catch (error) {
        finish(() => reject(error as Error));
      }
    });
  }

  end(): void {
    this.#end();
  }

  #fail(error: ConsoleError): void {
    this.#over ??= error;
    for (const fail of [...this.#pending]) fail(error);
  }
}

/**
 * Sends one file: to `path`.part, synced, its sha256 taken by the node itself, then renamed over `path`. On a failure the part
 * is removed and `path` is what it was.
 * @throws ConsoleError H104, H207, H209, H305 disk full, H308 the node has other bytes, H310 anything else the server refuses
 */
export async function uploadFile(sftp: SFTPWrapper, context: UploadContext, source: UploadSource, path: string, mode: number, onProgress?: (doneBytes: number) => void): Promise<void> {
  const { host, client, signal } = context;
  const part = `${path}.part`;
  const calls = new Calls(sftp, client, host, signal);
  const call = calls.run.bind(calls) as typeof calls.run;
  const refused = (what: string, error: unknown): ConsoleError =>
    error instanceof ConsoleError ? error : ConsoleError.of("H310", { command: what, host, status: String((error as SshFailure).code ?? "?"), detail: detailOf(error) }, error);

  const handle = await call<Buffer>((cb) => sftp.open(part, "w", { mode: 0o600 }, cb)).catch((error: unknown) => {
    calls.end();
    throw refused(`sftp open ${part}`, error);
  });
  let complete = false;
  try {
    const sent = await sendBytes(source, (buffer, length, at) => call((cb) => sftp.write(handle, buffer, 0, length, at, cb)), onProgress, signal)
      .catch(async (error: unknown) => {
        throw error instanceof ConsoleError ? error : ((await diskFull(context, path, source.sizeBytes)) ?? refused(`sftp write ${part}`, error));
      });
    if (sent !== source.sha256) throw ConsoleError.of("H313", { path: source.path, detail: `its sha256 is ${sent}, not ${source.sha256}` });
    await call((cb) => sftp.fchmod(handle, mode & 0o7777, cb)).catch((error: unknown) => {
      throw refused(`sftp chmod ${part}`, error);
    });
    // Servers without the extension say so by throwing; the checksum is then read from the page cache, as everywhere else.
    await call((cb) => sftp.ext_openssh_fsync(handle, cb)).catch(async (error: unknown) => {
      if (error instanceof ConsoleError) throw error;
      if (!/does not support/.test((error as Error).message)) throw (await diskFull(context, path, source.sizeBytes)) ?? refused(`sftp fsync ${part}`, error);
    });
    await call((cb) => sftp.close(handle, cb)).catch((error: unknown) => {
      throw refused(`sftp close ${part}`, error);
    });
    const found = await sha256OnNode(context, part);
    if (found !== source.sha256) throw ConsoleError.of("H308", { path: part, host, found, expected: source.sha256 });
    await call((cb) => sftp.ext_openssh_rename(part, path, cb)).catch(async (error: unknown) => {
      if (error instanceof ConsoleError) throw error;
      const moved = await context.exec(`mv -f -- ${shellQuote(part)} ${shellQuote(path)}`, signal ? { signal } : {});
      if (moved.status !== 0) throw refused(`sftp rename ${part}`, error);
    });
    complete = true;
  } finally {
    // Not under the caller's signal: an aborted upload leaves nothing behind either.
    calls.end();
    if (!complete) {
      const clean = new Calls(sftp, client, host);
      await clean.run((cb) => sftp.unlink(part, cb)).catch(() => undefined);
      clean.end();
    }
  }
}

/** Reads the source once, hashing what is sent, with IN_FLIGHT writes under way. Gives the sha256 of the bytes that were sent. */
async function sendBytes(source: UploadSource, write: (buffer: Buffer, length: number, at: number) => Promise<void>, onProgress?: (doneBytes: number) => void, signal?: AbortSignal): Promise<string> {
  const file = await open(source.path, "r").catch((error: unknown) => {
    throw ConsoleError.of("H313", { path: source.path, detail: detailOf(error) }, error);
  });
  const hash = createHash("sha256");
  const flight = new Set<Promise<void>>();
  let failure: unknown;
  let confirmed = 0;
  try {
    for (let at = 0; at < source.sizeBytes && failure === undefined; ) {
      if (signal?.aborted) throw ConsoleError.of("H104");
      const buffer = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, source.sizeBytes - at));
      const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
      if (bytesRead === 0) throw ConsoleError.of("H313", { path: source.path, detail: `it ends after ${at} of ${source.sizeBytes} bytes` });
      hash.update(buffer.subarray(0, bytesRead));
      const sent = write(buffer, bytesRead, at).then(() => {
        confirmed += bytesRead;
        onProgress?.(confirmed);
      }).catch((error: unknown) => {
        failure ??= error;
      }).finally(() => flight.delete(sent));
      flight.add(sent);
      at += bytesRead;
      if (flight.size >= IN_FLIGHT) await Promise.race(flight);
    }
    await Promise.all(flight);
    if (failure !== undefined) throw failure;
    return hash.digest("hex");
  } finally {
    await Promise.allSettled(flight);
    await file.close();
  }
}

async function sha256OnNode(context: UploadContext, path: string): Promise<string> {
  const result = await context.exec(`LC_ALL=C sha256sum -- ${shellQuote(path)}`, { timeoutMs: SHA256_TIMEOUT_MS, maxBytes: 4096, ...(context.signal ? { signal: context.signal } : {}) });
  const found = /^\\?([0-9a-f]{64}) /.exec(result.stdout)?.[1];
  if (result.status === 0 && found) return found;
  throw ConsoleError.of("H310", { command: `sha256sum ${path}`, host: context.host, status: result.status ?? "signal", detail: result.stderr.slice(0, 200) });
}

/** SFTP says "Failure" for a full disk; df tells it apart. Null when the disk is not the cause. */
async function diskFull(context: UploadContext, path: string, needed: number): Promise<ConsoleError | null> {
  const dir = dirname(path);
  const result = await context.exec(`LC_ALL=C df -Pk -- ${shellQuote(dir)}`, { maxBytes: 4096 }).catch(() => null);
  const fields = result?.stdout.trim().split("\n").at(-1)?.split(/\s+/);
  const availableKib = Number(fields?.[3]);
  if (!result || result.status !== 0 || !Number.isFinite(availableKib)) return null;
  const available = availableKib * 1024;
  return available < needed ? ConsoleError.of("H305", { host: context.host, path: dir, available, needed }) : null;
}
