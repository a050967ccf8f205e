import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Image } from './image/build.js';
import { packCpio } from './image/cpio.js';
import { runCommand } from './processes.js';
import { snapshotKey } from './qemu.js';
import { fingerprintOfPublicKey } from './ssh.js';

/** Memory of a node, MiB. Pages that were never touched cost the host nothing. */
export const nodeMemoryMiB = 512;

/**
 * A node's place in the cache. Its identity (host key, machine id) and the snapshot that was taken with it
 * belong together: a restored node is the same node.
 */
export interface Slot {
  readonly index: number;
  readonly dir: string;
  readonly hostKeySha256: string;
  /** Type and base64 of the public host key, as in a known_hosts line. */
  readonly hostKey: string;
  /** Initial RAM disk with the identity. */
  readonly initrd: string;
  /** qcow2 disk over the image that holds the snapshot; may not exist yet. */
  readonly disk: string;
}

/** The cache of identities and snapshots that fit an image and this machine's QEMU. */
export interface SlotStore {
  readonly dir: string;
  /** Private key that the snapshots let in; a lab replaces it by its own key at once. */
  readonly key: string;
}

export async function openSlotStore(image: Image): Promise<SlotStore> {
  const dir = join(image.dir, `nodes-${await snapshotKey(nodeMemoryMiB)}`);
  await makeWhole(dir, async (temporary) => generateKey(join(temporary, 'key')));
  return { dir, key: join(dir, 'key') };
}

/** The slot of a node; makes its identity when it is new. */
export async function openSlot(image: Image, store: SlotStore, index: number): Promise<Slot> {
  const dir = join(store.dir, `node${index}`);
  await makeWhole(dir, async (temporary) => {
    await generateKey(join(temporary, 'ssh_host_ed25519_key'), `root@node${index}`);
    await writeFile(join(temporary, 'machine-id'), `${randomBytes(16).toString('hex')}\n`);
    await writeNodeInitrd(image, index, temporary, `${store.key}.pub`);
  });
  const publicKey = await readFile(join(dir, 'ssh_host_ed25519_key.pub'), 'utf8');
  return { index, dir, hostKeySha256: fingerprintOfPublicKey(publicKey), hostKey: publicKey.split(' ').slice(0, 2).join(' '), initrd: join(dir, 'initrd'), disk: join(dir, 'disk.qcow2') };
}

/** A new ed25519 key pair without a passphrase at `path` and `path`.pub, mode 0600. */
export async function generateKey(path: string, comment = 'stepccl-lab'): Promise<void> {
  await runCommand('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', comment, '-f', path]);
  await chmod(path, 0o600);
}

/** Address of a node on the data network. */
export function dataAddress(index: number): string {
  return `10.77.0.${index}`;
}

/**
 * Writes the initial RAM disk of one node: the image's, followed by an archive with the node's identity and
 * the key that may log in (the kernel unpacks archives that stand one behind the other).
 */
async function writeNodeInitrd(image: Image, index: number, slotDir: string, authorizedKeyFile: string): Promise<void> {
  const into = join(slotDir, 'initrd');
  const tree = join(slotDir, 'tree');
  const seed = async (path: string, content: string | Buffer, mode: number): Promise<void> => {
    const file = join(tree, 'seed', path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, content);
    await chmod(file, mode);
  };
  await seed('etc/hostname', `node${index}\n`, 0o644);
  await seed('etc/lab-node', `LAB_NODE=${index}\nLAB_DATA_ADDRESS=${dataAddress(index)}\n`, 0o644);
  await seed('etc/machine-id', await readFile(join(slotDir, 'machine-id')), 0o444);
  await seed('etc/ssh/ssh_host_ed25519_key', await readFile(join(slotDir, 'ssh_host_ed25519_key')), 0o600);
  await seed('etc/ssh/ssh_host_ed25519_key.pub', await readFile(join(slotDir, 'ssh_host_ed25519_key.pub')), 0o644);
  await seed('home/ops/.ssh/authorized_keys', await readFile(authorizedKeyFile), 0o600);
  const first = await readFile(image.initrd);
  const padding = Buffer.alloc((4 - (first.length % 4)) % 4); // an uncompressed archive has to begin at a multiple of 4
  await writeFile(into, Buffer.concat([first, padding, await packCpio(tree)]), { mode: 0o600 });
  await rm(tree, { recursive: true });
}

/** Makes a folder (0700) whole or not at all; does nothing when it is there. */
async function makeWhole(dir: string, fill: (temporary: string) => Promise<void>): Promise<void> {
  if (existsSync(dir)) return;
  const temporary = `${dir}.new-${randomBytes(6).toString('hex')}`;
  await mkdir(temporary, { recursive: true, mode: 0o700 });
  try {
    await fill(temporary);
    await rename(temporary, dir);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    if (!existsSync(dir)) throw error; // else another process made it first
  }
}
