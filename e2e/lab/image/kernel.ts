import { mkdir, mkdtemp, readFile, readdir, rm, writeFile, copyFile } from 'node:fs/promises';
import { readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { LabError } from '../errors.js';
import { runCommand } from '../processes.js';

/**
 * Release of the kernel that the lab boots: that of the newest installed linux-headers-*-amd64, because the
 * driver is built against those headers.
 * @throws LabError LAB_NO_KERNEL when no headers are installed.
 */
export function installedHeadersRelease(sourceDir = '/usr/src'): string {
  const releases = readdirSync(sourceDir)
    .map((name) => /^linux-headers-(\d+\.\d+\.\d+-\d+-amd64)$/.exec(name)?.[1])
    .filter((release): release is string => release !== undefined)
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  const newest = releases.at(-1);
  if (newest === undefined) {
    throw new LabError('LAB_NO_KERNEL', 'no kernel headers are installed, so there is no release to boot', 'Install linux-headers-amd64, or run build/setup.sh.');
  }
  return newest;
}

/**
 * Takes the uncompressed ELF kernel out of a bzImage whose payload is xz. QEMU starts it through its PVH entry,
 * which saves the guest the decompression (slow without KVM).
 * Offsets: Documentation/x86/boot.rst, setup header of protocol 2.08 and later.
 */
export function bzImagePayload(image: Buffer): Buffer {
  const bad = (what: string): LabError => new LabError('LAB_NO_KERNEL', `the kernel image is not usable: ${what}`, 'The lab needs an amd64 kernel of Debian 12.');
  if (image.length < 0x250 || image.toString('latin1', 0x202, 0x206) !== 'HdrS') throw bad('no boot header');
  if (image.readUInt16LE(0x206) < 0x0208) throw bad('boot protocol older than 2.08');
  const setupSectors = image[0x1f1] === 0 ? 4 : (image[0x1f1] as number);
  const start = (setupSectors + 1) * 512 + image.readUInt32LE(0x248);
  const end = start + image.readUInt32LE(0x24c);
  // The kernel's build appends the uncompressed size (4 bytes) to the compressed data.
  if (end > image.length || end - start < 16) throw bad('the payload lies outside the image');
  const payload = image.subarray(start, end - 4);
  if (!payload.subarray(0, 6).equals(Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]))) throw bad('the payload is not xz');
  return payload;
}

/**
 * Paths (relative to the release's folder) of `names` and of everything that they depend on, each module
 * after its dependencies. `modulesDep` is the text of modules.dep, `builtin` that of modules.builtin.
 * @throws LabError LAB_NO_KERNEL for a name that is neither a module nor built in.
 */
export function moduleClosure(names: readonly string[], modulesDep: string, builtin: string): string[] {
  const moduleName = (path: string): string => basename(path).replace(/\.ko(\.\w+)?$/, '').replaceAll('-', '_');
  const dependencies = new Map<string, string[]>();
  const pathOf = new Map<string, string>();
  for (const line of modulesDep.split('\n')) {
    const colon = line.indexOf(':');
    if (colon < 0) continue;
    const path = line.slice(0, colon);
    dependencies.set(path, line.slice(colon + 1).split(' ').filter((word) => word !== ''));
    pathOf.set(moduleName(path), path);
  }
  const builtIn = new Set(builtin.split('\n').map(moduleName));
  const ordered = new Set<string>();
  for (const name of names) {
    const path = pathOf.get(name.replaceAll('-', '_'));
    if (path === undefined) {
      if (builtIn.has(name.replaceAll('-', '_'))) continue;
      throw new LabError('LAB_NO_KERNEL', `the kernel has no module ${name}`, 'Take it out of e2e/lab/image/modules.txt.');
    }
    // modules.dep lists the whole closure, the deepest dependency last.
    for (const dependency of [...(dependencies.get(path) ?? [])].reverse()) ordered.add(dependency);
    ordered.add(path);
  }
  return [...ordered];
}

/** Downloads Debian packages with the machine's own apt configuration and unpacks them into `into`. */
export async function unpackPackages(packages: readonly string[], into: string, onLine: (line: string) => void): Promise<void> {
  await mkdir(into, { recursive: true });
  const downloads = await mkdtemp(`${into}.deb-`);
  try {
    const asRoot = process.getuid?.() === 0 ? ['-o', 'APT::Sandbox::User=root'] : [];
    try {
      await runCommand('apt-get', [...asRoot, '-q', 'download', ...packages], { cwd: downloads, onLine });
    } catch (error) {
      if (!(error instanceof LabError) || error.code !== 'LAB_COMMAND_FAILED') throw error;
      throw new LabError('LAB_NO_KERNEL', `apt-get could not download ${packages.join(', ')}`, 'Run `apt-get update` as root, then repeat; the package list may be older than the archive.', { cause: error });
    }
    for (const file of await readdir(downloads)) await runCommand('dpkg-deb', ['-x', join(downloads, file), into]);
  } finally {
    await rm(downloads, { recursive: true, force: true });
  }
}

/** Makes a lib/modules tree at `into` that holds only `names` and their dependencies, with depmod's indexes. */
export async function copyModules(names: readonly string[], kernelTree: string, release: string, into: string): Promise<void> {
  const from = join(kernelTree, 'lib/modules', release);
  const to = join(into, 'lib/modules', release);
  const [modulesDep, builtin] = await Promise.all(['modules.dep', 'modules.builtin'].map((file) => readFile(join(from, file), 'utf8')));
  for (const path of moduleClosure(names, modulesDep ?? '', builtin ?? '')) {
    await mkdir(dirname(join(to, path)), { recursive: true });
    await copyFile(join(from, path), join(to, path));
  }
  for (const index of ['modules.order', 'modules.builtin', 'modules.builtin.modinfo']) await copyFile(join(from, index), join(to, index));
  await runCommand('depmod', ['-b', into, release]);
}

/** Writes the uncompressed kernel of the unpacked package to `into`. */
export async function extractVmlinux(kernelTree: string, release: string, into: string): Promise<void> {
  const payload = bzImagePayload(await readFile(join(kernelTree, 'boot', `vmlinuz-${release}`)));
  const compressed = `${into}.xz`;
  await writeFile(compressed, payload);
  await runCommand('xz', ['--decompress', '--force', compressed]);
}
