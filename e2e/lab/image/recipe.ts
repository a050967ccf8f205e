import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { cacheRoot, recipeDir } from '../paths.js';
import { runCommand } from '../processes.js';
import { installedHeadersRelease } from './kernel.js';

/** The Debian release of the nodes. */
export const codename = 'bookworm';

/** What an image is made from. The same recipe gives the same hash on every machine. */
export interface Recipe {
  readonly kernelRelease: string;
  readonly packages: readonly string[];
  readonly modules: readonly string[];
  /** Candidate version of each package, and of the kernel's, by name. */
  readonly versions: Readonly<Record<string, string>>;
  readonly hash: string;
}

/** Entries of a list file: one a line, `#` begins a comment. */
export function listEntries(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.replace(/#.*/, '').trim())
    .filter((line) => line !== '');
}

function filesBelow(dir: string): string[] {
  return readdirSync(dir, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

/** Hash over name, mode and content of every file of the recipe, the kernel's release and the versions. */
export function recipeHash(dir: string, kernelRelease: string, versions: Readonly<Record<string, string>>): string {
  const hash = createHash('sha256');
  for (const file of filesBelow(dir)) {
    if (/\.(test\.ts|md)$/.test(file)) continue;
    const content = readFileSync(file);
    hash.update(`${relative(dir, file)}\0${statSync(file).mode & 0o111 ? 'x' : '-'}\0${content.length}\0`).update(content);
  }
  hash.update(`kernel ${kernelRelease}\0`);
  for (const name of Object.keys(versions).sort()) hash.update(`${name} ${versions[name]}\0`);
  return hash.digest('hex').slice(0, 20);
}

/** Versions that apt would install, by package name. */
async function candidateVersions(packages: readonly string[]): Promise<Record<string, string>> {
  const { stdout } = await runCommand('apt-cache', ['policy', ...packages], { env: { ...process.env, LC_ALL: 'C' } });
  const versions: Record<string, string> = {};
  let current = '';
  for (const line of stdout.split('\n')) {
    const name = /^(\S+):$/.exec(line)?.[1];
    if (name !== undefined) current = name;
    const version = /^ {2}Candidate: (\S+)$/.exec(line)?.[1];
    if (version !== undefined && version !== '(none)') versions[current] = version;
  }
  return versions;
}

/** Changes whenever apt's view of the archives or of the installed packages does. */
function aptStamp(): string {
  return ['/var/lib/apt/lists', '/var/lib/dpkg/status']
    .map((path) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0)
    .join('-');
}

/** Reads the recipe and asks apt for the versions; the answer is kept until apt's lists change. */
export async function loadRecipe(): Promise<Recipe> {
  const kernelRelease = installedHeadersRelease();
  const packages = listEntries(await readFile(join(recipeDir, 'packages.txt'), 'utf8'));
  const modules = listEntries(await readFile(join(recipeDir, 'modules.txt'), 'utf8'));
  const asked = [...packages, 'busybox-static', `linux-image-${kernelRelease}`];
  const memoFile = join(cacheRoot(), 'versions.json');
  const key = `${aptStamp()} ${asked.join(' ')}`;
  let versions = await readMemo(memoFile, key);
  if (versions === undefined) {
    versions = await candidateVersions(asked);
    await mkdir(cacheRoot(), { recursive: true });
    await writeFile(`${memoFile}.${process.pid}`, JSON.stringify({ key, versions }));
    await rename(`${memoFile}.${process.pid}`, memoFile);
  }
  return { kernelRelease, packages, modules, versions, hash: recipeHash(recipeDir, kernelRelease, versions) };
}

async function readMemo(file: string, key: string): Promise<Record<string, string> | undefined> {
  try {
    const memo = JSON.parse(await readFile(file, 'utf8')) as { key?: unknown; versions?: Record<string, string> };
    return memo.key === key ? memo.versions : undefined;
  } catch {
    return undefined; // absent or unreadable: apt is asked again
  }
}
