import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { create, list, type ReadEntry } from "tar";
import { ConsoleError } from "../../contract/index.js";
import { plainLine } from "../../ssh/quote.js";

/** What an archive that somebody sends may hold. */
const MAX_FILES = 20_000;
const MAX_FILE_BYTES = 64 * 1024 ** 2;
const MAX_TOTAL_BYTES = 512 * 1024 ** 2;
const NAME = /^(?:[A-Za-z0-9_][\w.@+-]{0,120}\/){0,3}[A-Za-z0-9_][\w.@+-]{0,120}$/;

export interface Packed {
  folder: string;
  archive: string;
  sizeBytes: number;
}

/** Writes the files below a folder of their own and packs them: a gzipped tar. */
export async function pack(parent: string, files: ReadonlyMap<string, string>): Promise<Packed> {
  await mkdir(parent, { recursive: true, mode: 0o700 });
  const folder = await mkdtemp(join(parent, "bundle-"));
  const content = join(folder, "files");
  try {
    for (const [name, text] of files) {
      if (!NAME.test(name)) throw new Error(`${name} is no name of a file in a bundle`);
      const path = join(content, ...name.split("/"));
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await writeFile(path, text, { mode: 0o600 });
    }
    const archive = join(folder, "bundle.tar.gz");
    await create({ gzip: true, portable: true, cwd: content, file: archive }, await readdir(content));
    return { folder, archive, sizeBytes: (await stat(archive)).size };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** One file of a packed bundle, from where it was packed. @throws ConsoleError H609 */
export async function packedFile(packed: Packed, name: string): Promise<string> {
  const root = join(packed.folder, "files");
  const path = join(root, ...name.split("/"));
  if (!NAME.test(name) || relative(root, path).startsWith(`..${sep}`)) throw ConsoleError.of("H609", { what: "file", id: plainLine(name, 60) });
  return readFile(path, "utf8").catch((error: unknown) => { throw ConsoleError.of("H609", { what: "file", id: plainLine(name, 60) }, error); });
}

/** The files of an archive, in memory: plain files with plain names only, within the limits. Nothing is written. @throws ConsoleError H608 */
export async function unpack(path: string, shown: string): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  const bad = (detail: string, cause?: unknown): ConsoleError => ConsoleError.of("H608", { name: plainLine(shown, 80), detail }, cause);
  let total = 0;
  let problem: string | null = null;
  const reading: Promise<void>[] = [];
  const onReadEntry = (entry: ReadEntry): void => {
    const name = entry.path.replace(/^\.\//, "").replace(/\/$/, "");
    const usable = (entry.type === "File" || entry.type === "OldFile") && NAME.test(name);
    if (!usable || problem !== null) {
      if (!usable && entry.type !== "Directory" && entry.type !== "GNUDumpDir") problem ??= `it holds ${plainLine(name, 60)}, which is no plain file of a bundle`;
      entry.resume();
      return;
    }
    if (files.size >= MAX_FILES || entry.size > MAX_FILE_BYTES || total + entry.size > MAX_TOTAL_BYTES) { problem ??= "it holds more than a bundle may"; entry.resume(); return; }
    total += entry.size;
    files.set(name, "");
    const chunks: Buffer[] = [];
    let bytes = 0;
    reading.push(new Promise((done) => {
      entry.on("data", (chunk: Buffer) => { bytes += chunk.length; if (bytes <= MAX_FILE_BYTES) chunks.push(chunk); });
      entry.on("end", () => { files.set(name, Buffer.concat(chunks).toString("utf8")); done(); });
      entry.on("error", () => { problem ??= "a file in it is damaged"; done(); });
    }));
  };
  try {
    // Packed a thousandfold is no log: more than that is a bomb.
    await list({ file: path, strict: true, maxDecompressionRatio: 1000, onReadEntry });
    await Promise.all(reading);
  } catch (error) {
    throw bad(`it is no whole archive (${plainLine((error as Error).message, 120)})`, error);
  }
  if (problem !== null) throw bad(problem);
  return files;
}
