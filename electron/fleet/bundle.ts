import { createReadStream } from "node:fs";
import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { z } from "zod";
import { ConsoleError } from "../contract/index.js";

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/);
/** A path inside the archive that needs no quoting anywhere and stays inside. */
const InnerPath = z.string().max(255).regex(/^[A-Za-z0-9._+-]+(\/[A-Za-z0-9._+-]+)*$/).refine((p) => !p.split("/").some((part) => part === ".." || part === "."), "leaves the archive");
const Release = z.string().max(80).regex(/^[A-Za-z0-9][A-Za-z0-9._+-]*$/).refine((r) => !/\.(part|old)$/.test(r), "ends like a temporary name");
const KernelRelease = z.string().max(128).regex(/^[A-Za-z0-9._+~-]+$/);

const Manifest = z.object({
  version: z.string().max(64), release: Release, archive: z.string(), sha256: Sha256, sizeBytes: z.number().int().positive(), unpackedBytes: z.number().int().nonnegative(),
  kernels: z.record(KernelRelease, InnerPath),
  files: z.array(z.object({ path: InnerPath, mode: z.number().int().min(0).max(0o777), sizeBytes: z.number().int().nonnegative(), sha256: Sha256 })).min(1).max(4096),
});

/** What a node gets: one archive with a manifest, made by `npm run bundle`. */
export interface Bundle extends z.infer<typeof Manifest> {
  readonly archivePath: string;
  has(path: string): boolean;
}

const REQUIRED = ["bin/stepccld", "etc/stepccld.service", "etc/stepccl.sysusers", "etc/70-stepccl.rules"] as const;

/**
 * Reads the manifest and checks the archive against it.
 * @throws ConsoleError H313 missing or damaged
 */
export async function loadBundle(bundleDir: string): Promise<Bundle> {
  const damaged = (detail: string, cause?: unknown): ConsoleError => ConsoleError.of("H313", { path: bundleDir, detail }, cause);
  let text: string;
  try {
    text = await readFile(join(bundleDir, "manifest.json"), "utf8");
  } catch (error) {
    throw damaged((error as NodeJS.ErrnoException).code === "ENOENT" ? "there is no manifest.json" : String(error), error);
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw damaged("manifest.json is no JSON", error);
  }
  const parsed = Manifest.safeParse(json);
  if (!parsed.success) throw damaged(`manifest.json: ${parsed.error.issues.slice(0, 2).map((i) => `${i.path.join(".")}: ${i.message}`).join("; ")}`);
  const manifest = parsed.data;
  const paths = new Set(manifest.files.map((f) => f.path));
  for (const path of [...REQUIRED, ...Object.values(manifest.kernels)]) if (!paths.has(path)) throw damaged(`it lacks ${path}`);
  if (basename(manifest.archive) !== manifest.archive) throw damaged("the archive's name is a path");
  const archivePath = join(bundleDir, manifest.archive);
  const info = await stat(archivePath).catch((error: unknown) => {
    throw damaged(`${manifest.archive} is missing`, error);
  });
  if (info.size !== manifest.sizeBytes) throw damaged(`${manifest.archive} has ${info.size} bytes, not ${manifest.sizeBytes}`);
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(archivePath)) hash.update(chunk as Buffer);
  if (hash.digest("hex") !== manifest.sha256) throw damaged(`${manifest.archive} has another sha256 than the manifest says`);
  return { ...manifest, archivePath, has: (path) => paths.has(path) };
}

/** The two facts that the greeting shows, without reading the whole archive; null when there is no usable manifest. */
export async function describeBundle(bundleDir: string): Promise<{ version: string; kernels: string[] } | null> {
  try {
    const parsed = Manifest.safeParse(JSON.parse(await readFile(join(bundleDir, "manifest.json"), "utf8")));
    return parsed.success ? { version: parsed.data.release, kernels: Object.keys(parsed.data.kernels).sort() } : null;
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code !== undefined) return null;
    throw error;
  }
}
