import { randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { createGunzip } from "node:zlib";
import { ConsoleError, type InputFile } from "../contract/index.js";
import { plainLine } from "../ssh/quote.js";

/** What all files that were sent may hold together, and what one may become when it is unpacked. */
const MAX_TOTAL_BYTES = 8 * 1024 ** 3;
const MAX_UNPACKED_BYTES = 16 * 1024 ** 3;
const KEPT_MS = 3_600_000;
const MAX_UPLOADS = 4000;

interface Upload {
  name: string;
  path: string;
  sizeBytes: number;
  receivedBytes: number;
  expires: NodeJS.Timeout;
  /** Pieces are written one after the other, whatever order their requests run in. */
  writing: Promise<unknown>;
}

export interface OpenFile {
  name: string;
  sizeBytes: number;
  stream(): AsyncIterable<Uint8Array>;
}

/** Files that the page sent, on disk for an hour at most. */
export class Uploads {
  readonly #uploads = new Map<string, Upload>();
  #ready: Promise<unknown> | null = null;
  constructor(private readonly folder: string) {}

  /** @throws ConsoleError H608 no room */
  async begin(name: string, sizeBytes: number): Promise<{ uploadId: string }> {
    // What an earlier start of the console left is nobody's any more.
    this.#ready ??= rm(this.folder, { recursive: true, force: true }).then(() => mkdir(this.folder, { recursive: true, mode: 0o700 }));
    await this.#ready;
    const held = [...this.#uploads.values()].reduce((sum, u) => sum + u.sizeBytes, 0);
    if (held + sizeBytes > MAX_TOTAL_BYTES || this.#uploads.size >= MAX_UPLOADS) throw ConsoleError.of("H608", { name: plainLine(name, 80), detail: "the console holds too many bytes of files already" });
    const uploadId = randomUUID();
    const path = join(this.folder, uploadId);
    await (await open(path, "wx", 0o600)).close();
    this.#uploads.set(uploadId, { name, path, sizeBytes, receivedBytes: 0, writing: Promise.resolve(), expires: setTimeout(() => void this.discard(uploadId).catch(() => undefined), KEPT_MS).unref() });
    return { uploadId };
  }

  /** @throws ConsoleError H609 unknown, H608 a piece that does not belong there */
  async append(uploadId: string, offset: number, base64: string): Promise<{ receivedBytes: number }> {
    const upload = this.#get(uploadId);
    const bytes = Buffer.from(base64, "base64");
    const work = upload.writing.then(async () => {
      if (offset !== upload.receivedBytes || offset + bytes.length > upload.sizeBytes) throw ConsoleError.of("H608", { name: plainLine(upload.name, 80), detail: `a piece at ${offset} does not follow ${upload.receivedBytes} of ${upload.sizeBytes} bytes` });
      const file = await open(upload.path, "a");
      try {
        await file.writeFile(bytes);
      } finally {
        await file.close();
      }
      upload.receivedBytes += bytes.length;
    });
    upload.writing = work.catch(() => undefined);
    await work;
    return { receivedBytes: upload.receivedBytes };
  }

  async discard(uploadId: string): Promise<void> {
    const upload = this.#uploads.get(uploadId);
    if (!upload) return;
    this.#uploads.delete(uploadId);
    clearTimeout(upload.expires);
    await rm(upload.path, { force: true });
  }

  /** The files of a request, pasted or sent; gzip is unpacked on the way. @throws ConsoleError H609, H608 not whole */
  open(files: readonly InputFile[]): OpenFile[] {
    return files.map((file) => {
      if (file.kind === "text") return { name: file.name, sizeBytes: Buffer.byteLength(file.text), stream: () => once(Buffer.from(file.text)) };
      const upload = this.#whole(file.uploadId);
      return { name: upload.name, sizeBytes: upload.sizeBytes, stream: () => unpacked(upload) };
    });
  }

  /** Where a file that came whole lies, for who reads it as it is. @throws ConsoleError H609, H608 not whole */
  path(uploadId: string): { name: string; path: string } {
    const { name, path } = this.#whole(uploadId);
    return { name, path };
  }

  async close(): Promise<void> {
    for (const id of [...this.#uploads.keys()]) await this.discard(id);
    if (this.#ready) await rm(this.folder, { recursive: true, force: true });
  }

  #whole(uploadId: string): Upload {
    const upload = this.#get(uploadId);
    if (upload.receivedBytes !== upload.sizeBytes) throw ConsoleError.of("H608", { name: plainLine(upload.name, 80), detail: `${upload.receivedBytes} of ${upload.sizeBytes} bytes came` });
    return upload;
  }
  #get(uploadId: string): Upload {
    const upload = this.#uploads.get(uploadId);
    if (!upload) throw ConsoleError.of("H609", { what: "file", id: uploadId });
    return upload;
  }
}

async function* once(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  yield bytes;
}

async function* unpacked(upload: Upload): AsyncIterable<Uint8Array> {
  const raw = createReadStream(upload.path, { highWaterMark: 1 << 20 });
  const head = await firstBytes(upload.path);
  if (head[0] !== 0x1f || head[1] !== 0x8b) {
    yield* raw as AsyncIterable<Buffer>;
    return;
  }
  const gunzip = createGunzip();
  raw.on("error", (error) => gunzip.destroy(error));
  let total = 0;
  try {
    for await (const chunk of raw.pipe(gunzip) as AsyncIterable<Buffer>) {
      total += chunk.length;
      if (total > MAX_UNPACKED_BYTES) throw ConsoleError.of("H608", { name: plainLine(upload.name, 80), detail: "it unpacks to more than 16 GiB" });
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ConsoleError) throw error;
    throw ConsoleError.of("H608", { name: plainLine(upload.name, 80), detail: `it is no whole gzip file (${(error as Error).message})` }, error);
  } finally {
    raw.destroy();
    gunzip.destroy();
  }
}

async function firstBytes(path: string): Promise<Buffer> {
  const file = await open(path, "r");
  try {
    const { buffer } = await file.read(Buffer.alloc(2), 0, 2, 0);
    return buffer;
  } finally {
    await file.close();
  }
}
