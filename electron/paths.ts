import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** Where things lie, whether the host runs from its sources or from build/out/host. */

/** The folder with package.json. */
export function productRoot(from: string = import.meta.url): string {
  let folder = dirname(fileURLToPath(from));
  while (!existsSync(join(folder, "package.json"))) {
    const parent = dirname(folder);
    if (parent === folder) throw new Error("the product's folder cannot be found: package.json is missing");
    folder = parent;
  }
  return folder;
}

/** STEPCCL_DATA_DIR, else the place that the XDG specification names. */
export function defaultDataDir(env: NodeJS.ProcessEnv = process.env): string {
  if (env["STEPCCL_DATA_DIR"]) return resolve(env["STEPCCL_DATA_DIR"]);
  const base = env["XDG_DATA_HOME"] && env["XDG_DATA_HOME"].startsWith("/") ? env["XDG_DATA_HOME"] : join(homedir(), ".local", "share");
  return join(base, "stepccl-console");
}

export const pageDirOf = (root: string): string => join(root, "build", "out", "page");
export const bundleDirOf = (root: string): string => join(root, "build", "out", "bundle");

/** Electron's binary, or null where the package was installed without it. Never fetches it. */
export function electronBinary(root: string): string | null {
  // The package's own index.js downloads when it is asked; the path file is written by a finished installation.
  const folder = join(root, "node_modules", "electron");
  const named = join(folder, "path.txt");
  if (!existsSync(named)) return null;
  const binary = join(folder, "dist", "electron");
  return existsSync(binary) ? binary : null;
}
