import { randomUUID } from "node:crypto";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { ConsoleError, DiagnosisView, PIECE_BYTES, type MendRunView, type NodeView, type OpenedBundle, type OperationView, type SupportBundleView } from "../../contract/index.js";
import { plainLine } from "../../ssh/quote.js";
import type { CollectedSources } from "../collect.js";
import { diagnoseFilesView } from "../files.js";
import type { Uploads } from "../uploads.js";
import { pack, packedFile, unpack, type Packed } from "./archive.js";
import { Redactor } from "./redact.js";

type BundleView = z.infer<typeof SupportBundleView>;
type Opened = z.infer<typeof OpenedBundle>;

export interface SupportOptions {
  folder: string;
  version: string;
  uploads: Uploads;
  nodes: { list(): readonly NodeView[]; get(nodeId: string): NodeView | undefined };
  diagnosis: { view(nodeId: string): DiagnosisView | undefined; collected(nodeId: string): CollectedSources | undefined };
  operations(): readonly OperationView[];
  mends(): readonly MendRunView[];
}

const KEPT_MS = 3_600_000;
const MAX_BUNDLES = 8;
/** One answer has to fit into one message. */
const PREVIEW_CHARS = 400_000;
const OPENED_TEXT_CHARS = 250_000;
const OPENED_FILE_CHARS = 8000;
const OPENED_DIAGNOSES_CHARS = 350_000;

const Manifest = z.object({ format: z.literal("stepccl-support-bundle"), version: z.number().int().min(1).max(1), product: z.string().max(64), madeAtMs: z.number(), nodes: z.array(z.object({ name: z.string().max(255), phase: z.string().max(32) })).max(100_000) });

/** Support bundles: everything read, with stand-ins for who and where, in one archive that any console opens. */
export class Support {
  readonly #bundles = new Map<string, { view: BundleView; packed: Packed; expires: NodeJS.Timeout }>();
  constructor(private readonly options: SupportOptions) {}

  /** @throws ConsoleError H301 */
  async prepare(nodeIds: readonly string[]): Promise<BundleView> {
    const all = this.options.nodes.list();
    const chosen = nodeIds.length === 0 ? all : nodeIds.map((nodeId) => this.options.nodes.get(nodeId) ?? missing(nodeId));
    const redactor = new Redactor(all.flatMap((n) => [n.name, n.host, n.facts?.hostname ?? "", ...(n.facts?.hostname ? [n.facts.hostname.split(".")[0]!] : []), ...n.jump.map((j) => j.replace(/^.*@|:\d+$/g, ""))]), all.flatMap((n) => [n.user, ...n.jump.flatMap((j) => (j.includes("@") ? [j.split("@")[0]!] : []))]));
    const files = new Map<string, string>();
    const replaced = new Map<string, number>();
    const put = (name: string, make: () => string): void => {
      const before = redactor.places;
      files.set(name, make());
      replaced.set(name, redactor.places - before);
    };
    const json = (value: unknown): string => `${JSON.stringify(redactor.value(value), null, 1)}\n`;
    const madeAtMs = Date.now();
    put("manifest.json", () => json({ format: "stepccl-support-bundle", version: 1, product: this.options.version, madeAtMs, nodes: chosen.map(({ name, phase }) => ({ name, phase })) }));
    put("nodes.json", () => json(chosen.map(({ keyPath: _keyPath, hostKey: _hostKey, ...node }) => node)));
    const ids = new Set(chosen.map((n) => n.id));
    put("operations.json", () => json(this.options.operations().filter((op) => op.nodes.some((n) => ids.has(n.nodeId))).slice(0, 100)));
    put("mends.json", () => json(this.options.mends().filter((m) => ids.has(m.nodeId)).slice(0, 100)));
    put("diagnoses.json", () => json(chosen.flatMap((n) => { const view = this.options.diagnosis.view(n.id); return view ? [{ ...view, sources: view.sources.map((s) => ({ ...s, text: "" })) }] : []; })));
    chosen.forEach((node, index) => {
      const collected = this.options.diagnosis.collected(node.id);
      const whole = new Map([...(collected ?? [])].map(([, c]) => [c.view.id, c.text]));
      for (const source of this.options.diagnosis.view(node.id)?.sources ?? []) {
        const text = whole.get(source.id) ?? source.text;
        if (text !== "") put(`sources/node-${index + 1}/${source.id}.txt`, () => redactor.text(text));
      }
    });
    const packed = await pack(this.options.folder, files);
    const bundleId = randomUUID();
    const view: BundleView = {
      bundleId, fileName: `stepccl-support-${new Date(madeAtMs).toISOString().replace(/[:.]/g, "-").slice(0, 19)}.tar.gz`, sizeBytes: packed.sizeBytes, madeAtMs, expiresAtMs: madeAtMs + KEPT_MS,
      files: [...files].map(([name, text]) => ({ name, sizeBytes: Buffer.byteLength(text), replaced: replaced.get(name)! })), replaced: redactor.counts(),
    };
    this.#bundles.set(bundleId, { view, packed, expires: setTimeout(() => void this.#discard(bundleId).catch(() => undefined), KEPT_MS).unref() });
    for (const [oldest] of this.#bundles) if (this.#bundles.size > MAX_BUNDLES) await this.#discard(oldest);
    return view;
  }

  /** One file as it would be handed on. @throws ConsoleError H609 */
  async preview(bundleId: string, name: string): Promise<{ text: string; truncatedBytes: number }> {
    return cut(await packedFile(this.#get(bundleId).packed, name), PREVIEW_CHARS);
  }

  /** A piece of the archive. @throws ConsoleError H609 */
  async read(bundleId: string, offset: number): Promise<{ base64: string; nextOffset: number; sizeBytes: number }> {
    const { packed } = this.#get(bundleId);
    const file = await open(packed.archive, "r");
    try {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(PIECE_BYTES), 0, PIECE_BYTES, Math.min(offset, packed.sizeBytes));
      return { base64: buffer.subarray(0, bytesRead).toString("base64"), nextOffset: Math.min(offset, packed.sizeBytes) + bytesRead, sizeBytes: packed.sizeBytes };
    } finally {
      await file.close();
    }
  }

  /** Reads a bundle that was sent; `support.openFile` gives its files whole. @throws ConsoleError H608, H609 */
  async open(uploadId: string, signal: AbortSignal): Promise<Opened> {
    const { name, files, manifest } = await this.#files(uploadId);
    const sources = [...files].filter(([path]) => path.startsWith("sources/"));
    const judged = await diagnoseFilesView(sources.map(([path, text]) => ({ name: path.slice("sources/".length), sizeBytes: text.length, stream: () => one(text) })), signal);
    let room = OPENED_TEXT_CHARS;
    const shown = [...files].map(([path, text]) => {
      const { text: part, truncatedBytes } = cut(text, Math.min(room, OPENED_FILE_CHARS));
      room -= part.length;
      return { name: path, sizeBytes: Buffer.byteLength(text), text: part, truncatedBytes };
    });
    let space = OPENED_DIAGNOSES_CHARS;
    const kept = z.array(z.unknown()).safeParse(parse(files.get("diagnoses.json") ?? "[]"));
    const diagnoses = (kept.success ? kept.data : []).flatMap((d) => {
      const view = DiagnosisView.safeParse(d);
      if (!view.success || (space -= JSON.stringify(view.data).length) < 0) return [];
      return [view.data];
    });
    return { fileName: plainLine(name, 255), madeAtMs: manifest.madeAtMs, version: plainLine(manifest.product, 64), nodes: manifest.nodes.slice(0, 1000), diagnoses, judged, files: shown };
  }

  /** @throws ConsoleError H608, H609 */
  async openFile(uploadId: string, path: string): Promise<{ text: string; truncatedBytes: number }> {
    const text = (await this.#files(uploadId)).files.get(path);
    if (text === undefined) throw ConsoleError.of("H609", { what: "file", id: plainLine(path, 60) });
    return cut(text, PREVIEW_CHARS);
  }

  async close(): Promise<void> {
    for (const id of [...this.#bundles.keys()]) await this.#discard(id);
  }

  async #files(uploadId: string): Promise<{ name: string; files: Map<string, string>; manifest: z.infer<typeof Manifest> }> {
    const { name, path } = this.options.uploads.path(uploadId);
    const files = await unpack(path, name);
    const manifest = Manifest.safeParse(parse(files.get("manifest.json") ?? ""));
    if (!manifest.success) throw ConsoleError.of("H608", { name: plainLine(name, 80), detail: "it is no support bundle, or of a newer console" });
    return { name, files, manifest: manifest.data };
  }
  #get(bundleId: string): { view: BundleView; packed: Packed } {
    const bundle = this.#bundles.get(bundleId);
    if (!bundle) throw ConsoleError.of("H609", { what: "support bundle", id: bundleId });
    return bundle;
  }
  async #discard(bundleId: string): Promise<void> {
    const bundle = this.#bundles.get(bundleId);
    this.#bundles.delete(bundleId);
    clearTimeout(bundle?.expires);
    if (bundle) await rm(bundle.packed.folder, { recursive: true, force: true });
  }
}

/** Where bundles lie while they are looked at. */
export const supportFolder = (dataDir: string): string => join(dataDir, "support");

async function* one(text: string): AsyncIterable<Uint8Array> {
  yield Buffer.from(text);
}
function cut(text: string, chars: number): { text: string; truncatedBytes: number } {
  const part = text.slice(0, Math.max(0, chars));
  return { text: part, truncatedBytes: Buffer.byteLength(text) - Buffer.byteLength(part) };
}
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
function missing(nodeId: string): never {
  throw ConsoleError.of("H301", { nodeId });
}
