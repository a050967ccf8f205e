import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readFile, readdir, rename, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { LabError } from '../errors.js';
import { cacheRoot, recipeDir } from '../paths.js';
import { isAlive, processRef, runCommand } from '../processes.js';
import { packCpio } from './cpio.js';
import { copyModules, extractVmlinux, unpackPackages } from './kernel.js';
import { codename, loadRecipe, type Recipe } from './recipe.js';
import { aptTransportOptions, debianSources } from './sources.js';

/** The finished image of one recipe; every path is in the cache and is never written again. */
export interface Image {
  readonly hash: string;
  readonly kernelRelease: string;
  readonly dir: string;
  /** Uncompressed ELF kernel. */
  readonly vmlinux: string;
  /** gzip'ed cpio archive without a node's identity. */
  readonly initrd: string;
  /** Raw ext4 file system, sparse. */
  readonly root: string;
}

/** Size of a node's root file system. The file is sparse: about 260 MB are used. */
const rootBytes = 2 * 1024 ** 3;
/** An image that was not used for this long is removed when a new one is built: 14 days. */
const keepUnusedMs = 14 * 24 * 3600 * 1000;
/** What the initial RAM disk has to load before the root file system is there. */
const initrdModules = ['virtio_pci', 'virtio_blk', 'virtio_net', 'crc32c_generic', 'ext4'];

function imageAt(dir: string, recipe: Recipe): Image {
  return {
    hash: recipe.hash,
    kernelRelease: recipe.kernelRelease,
    dir,
    vmlinux: join(dir, 'vmlinux'),
    initrd: join(dir, 'initrd.gz'),
    root: join(dir, 'root.img'),
  };
}

/** The cached image of the present recipe, or undefined when it has to be built. */
export async function cachedImage(): Promise<Image | undefined> {
  const recipe = await loadRecipe();
  const image = imageAt(join(cacheRoot(), recipe.hash), recipe);
  return existsSync(join(image.dir, 'complete')) ? image : undefined;
}

/**
 * Returns the image of the present recipe and builds it first when the cache has none (about two minutes).
 * The build works in a folder of its own and is renamed into place whole; what killed builds left is removed.
 * @throws LabError LAB_IMAGE_BUILD, LAB_NO_KERNEL, LAB_MISSING_PROGRAM.
 */
export async function ensureImage(onProgress: (message: string) => void = () => undefined): Promise<Image> {
  const recipe = await loadRecipe();
  const finished = join(cacheRoot(), recipe.hash);
  if (existsSync(join(finished, 'complete'))) {
    const now = new Date();
    await utimes(join(finished, 'complete'), now, now);
    return imageAt(finished, recipe);
  }

  await mkdir(cacheRoot(), { recursive: true });
  await removeDeadBuilds(cacheRoot());
  const self = processRef(process.pid);
  if (self === undefined) throw new Error('/proc does not know this process');
  const work = join(cacheRoot(), `.build-${self.pid}-${self.startTicks}`);
  await mkdir(work);
  try {
    await build(recipe, work, onProgress);
    await writeFile(join(work, 'image/recipe.json'), JSON.stringify(recipe, null, 1));
    await writeFile(join(work, 'image/complete'), '');
    try {
      await rename(join(work, 'image'), finished);
    } catch (error) {
      // Another clone may have finished the same image meanwhile: its files are as good as ours.
      if (!existsSync(join(finished, 'complete'))) throw error;
    }
  } catch (error) {
    // What can't be removed now is removed by the next build; the first failure is the one to tell.
    await removeTree(work).catch((left: unknown) => onProgress(`image: ${work} could not be removed: ${String(left)}`));
    throw error;
  }
  await removeTree(work);
  await removeUnusedImages(cacheRoot(), Date.now() - keepUnusedMs);
  return imageAt(finished, recipe);
}

/** Removes images, with their snapshots, that no start has used since the given time. */
export async function removeUnusedImages(root: string, usedBeforeMs: number): Promise<void> {
  for (const name of await readdir(root)) {
    if (!/^[0-9a-f]{20}$/.test(name)) continue;
    const used = await stat(join(root, name, 'complete')).catch(() => undefined);
    if (used !== undefined && used.mtimeMs < usedBeforeMs) await removeTree(join(root, name));
  }
}

async function build(recipe: Recipe, work: string, onProgress: (message: string) => void): Promise<void> {
  const started = Date.now();
  const step = (what: string): void => onProgress(`image: ${what} (${Math.round((Date.now() - started) / 1000)} s)`);
  const out = join(work, 'image');
  const kernelTree = join(work, 'kernel');
  await mkdir(out);

  step(`downloading the kernel ${recipe.kernelRelease}`);
  const kernelPackage = `linux-image-${recipe.kernelRelease}`;
  const pinned = (name: string): string => (recipe.versions[name] === undefined ? name : `${name}=${recipe.versions[name]}`);
  await unpackPackages([pinned(kernelPackage), pinned('busybox-static')], kernelTree, () => undefined);
  await runCommand('depmod', ['-b', kernelTree, recipe.kernelRelease]);
  await extractVmlinux(kernelTree, recipe.kernelRelease, join(out, 'vmlinux'));
  await copyModules(recipe.modules, kernelTree, recipe.kernelRelease, join(work, 'modules'));

  step('making the initial RAM disk');
  const initrdTree = join(work, 'initrd');
  for (const dir of ['bin', 'dev', 'proc', 'sys', 'root']) await mkdir(join(initrdTree, dir), { recursive: true });
  await copyFile(join(recipeDir, 'initrd-init'), join(initrdTree, 'init'));
  await chmod(join(initrdTree, 'init'), 0o755);
  await copyFile(join(kernelTree, 'bin/busybox'), join(initrdTree, 'bin/busybox'));
  await copyModules(initrdModules, kernelTree, recipe.kernelRelease, initrdTree);
  await writeFile(join(out, 'initrd.gz'), gzipSync(await packCpio(initrdTree), { level: 9 }));

  step(`installing Debian ${codename} with ${recipe.packages.length} packages`);
  await bootstrap(recipe, work, join(work, 'rootfs'), step);

  step('making the disk image');
  // Made inside the tree, whose owner in the user namespace may write nowhere else, then copied out.
  const rootfs = join(work, 'rootfs');
  const script = 'cd "$1" && mkdir .tree && find . -mindepth 1 -maxdepth 1 ! -name .tree -exec mv -t .tree {} + && truncate -s "$2" .root.img && /sbin/mke2fs -q -F -t ext4 -m 1 -J size=16 -E lazy_itable_init=1,lazy_journal_init=1 -d .tree .root.img';
  await inNamespace(['sh', '-c', script, 'sh', rootfs, String(rootBytes)]);
  await runCommand('cp', ['--reflink=auto', '--sparse=always', join(rootfs, '.root.img'), join(out, 'root.img')]);
  await chmod(join(out, 'root.img'), 0o444);
  step('image complete');
}

async function bootstrap(recipe: Recipe, work: string, target: string, step: (what: string) => void): Promise<void> {
  const tmp = join(work, 'tmp');
  await mkdir(tmp, { mode: 0o1777 });
  const noDocs = ['path-exclude=/usr/share/doc/*', 'path-exclude=/usr/share/man/*', 'path-exclude=/usr/share/info/*', 'path-exclude=/usr/share/locale/*', 'path-include=/usr/share/doc/*/copyright', 'force-unsafe-io'];
  const args = [
    `--mode=${asRoot() ? 'root' : 'unshare'}`,
    '--variant=minbase',
    '--format=directory',
    `--include=${recipe.packages.join(',')}`,
    ...noDocs.map((option) => `--dpkgopt=${option}`),
    ...(await aptTransportOptions()).map((option) => `--aptopt=${option}`),
    `--customize-hook=${join(recipeDir, 'customize.sh')} "$1"`,
    codename,
    target,
    '-',
  ];
  const env = { ...process.env, TMPDIR: tmp, LAB_ROOTFS: join(recipeDir, 'rootfs'), LAB_MODULES: join(work, 'modules/lib/modules') };
  let last = '';
  try {
    await runCommand('mmdebstrap', args, {
      env,
      input: await debianSources(codename),
      onLine: (line) => {
        const message = /^I: (.*?)(\.\.\.)?$/.exec(line)?.[1];
        if (message !== undefined && message !== last) step((last = message));
      },
    });
  } catch (error) {
    if (!(error instanceof LabError) || error.code !== 'LAB_COMMAND_FAILED') throw error;
    const next = asRoot()
      ? 'Run `apt-get update`, see that the Debian archive can be reached, and repeat.'
      : 'Without root mmdebstrap needs user namespaces: the package uidmap, lines for your user in /etc/subuid and /etc/subgid, and a cache folder that others may enter (set XDG_CACHE_HOME where your home is closed). Or run `build/setup.sh --only lab` as root once.';
    throw new LabError('LAB_IMAGE_BUILD', `Debian could not be installed into the image: ${error.message}`, next, { cause: error });
  }
}

const asRoot = (): boolean => process.getuid?.() === 0;

/** Runs a command where the files of the root tree belong to whom they say: as root, or in a user namespace. */
async function inNamespace(command: readonly string[]): Promise<void> {
  if (asRoot()) await runCommand(command[0] as string, command.slice(1));
  else await runCommand('mmdebstrap', ['--unshare-helper', ...command]);
}

/** Removes a build folder and never crosses into a file system that may still be mounted below it. */
async function removeTree(dir: string): Promise<void> {
  const rootfs = join(dir, 'rootfs');
  // The folder itself can be removed by the owner of its parent only, what it holds by the namespace's root only.
  if (existsSync(rootfs)) await inNamespace(['find', rootfs, '-xdev', '-mindepth', '1', '-delete']);
  await runCommand('rm', ['-rf', '--one-file-system', dir]);
}

/** Removes the folders of builds whose process has ended. */
export async function removeDeadBuilds(root: string): Promise<void> {
  for (const name of await readdir(root)) {
    const match = /^\.build-(\d+)-(\d+)$/.exec(name);
    if (match === null || isAlive({ pid: Number(match[1]), startTicks: Number(match[2]) })) continue;
    const mounts = await readFile('/proc/self/mounts', 'utf8');
    if (mounts.includes(` ${join(root, name)}/`)) {
      throw new LabError('LAB_IMAGE_BUILD', `a killed build left something mounted below ${join(root, name)}`, 'Unmount it, then repeat.');
    }
    await removeTree(join(root, name));
  }
}
