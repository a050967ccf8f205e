import { existsSync } from 'node:fs';
import { readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { LabError } from './errors.js';
import type { Image } from './image/build.js';
import type { LabPlace } from './paths.js';
import { isAlive, killProcess, runCommand, type ProcessRef } from './processes.js';
import { hotplugSlot, lastLines, snapshotName, startMachine } from './qemu.js';
import { Qmp } from './qmp.js';
import { nodeMemoryMiB, type Slot, type SlotStore } from './slots.js';
import { sshExec, waitForSshBanner, type ExecOptions, type ExecResult, type SshTarget } from './ssh.js';

/** How long a node may take from power-on to its SSH server, on a busy machine. */
const bootTimeoutMs = 300_000;

/** Everything that the functions below need to know about one node. */
export interface NodeContext {
  readonly place: LabPlace;
  readonly image: Image;
  readonly store: SlotStore;
  readonly slot: Slot;
}

export interface NodeFiles {
  readonly dir: string;
  readonly disk: string;
  readonly console: string;
  readonly qemuLog: string;
  readonly qmp: string;
  readonly hubPort: string;
}

export function nodeFiles(place: LabPlace, index: number): NodeFiles {
  const dir = join(place.dir, `node${index}`);
  return {
    dir,
    disk: join(dir, 'disk.qcow2'),
    console: join(dir, 'console.log'),
    qemuLog: join(dir, 'qemu.log'),
    qmp: join(place.socketDir, `qmp-${index}.sock`),
    hubPort: join(place.socketDir, `port-${index}.sock`),
  };
}

/** Path of the lab's own private key. */
export function labKey(place: LabPlace): string {
  return join(place.dir, 'id_ed25519');
}

/** An empty disk over the image, or a copy of the slot's disk with its snapshot. */
export async function prepareDisk({ place, image, slot }: NodeContext, fromSnapshot: boolean): Promise<void> {
  const { disk } = nodeFiles(place, slot.index);
  if (fromSnapshot) await runCommand('cp', ['--reflink=auto', '--sparse=always', slot.disk, disk]);
  else await runCommand('qemu-img', ['create', '-q', '-f', 'qcow2', '-F', 'raw', '-b', image.root, disk]);
}

/** Switches a node on. @throws LabError LAB_QEMU_FAILED when QEMU ends at once. */
export async function powerOnMachine({ place, image, slot }: NodeContext, sshPort: number, fromSnapshot: boolean): Promise<ProcessRef> {
  const files = nodeFiles(place, slot.index);
  return startMachine(
    {
      name: `${place.token}-node${slot.index}`,
      memoryMiB: nodeMemoryMiB,
      vmlinux: image.vmlinux,
      initrd: slot.initrd,
      append: '',
      disk: { file: files.disk, format: 'qcow2' },
      serialFiles: [files.console],
      iommu: true,
      network: { index: slot.index, sshPort, hubSocket: files.hubPort },
      qmpSocket: files.qmp,
      fromSnapshot,
    },
    files.qemuLog,
  );
}

/** True when QEMU ended because another program took the port meanwhile. */
export function portWasTaken(place: LabPlace, index: number): boolean {
  return lastLines(nodeFiles(place, index).qemuLog, 3).includes('Could not set up host forwarding rule');
}

/** Waits until the node's SSH server greets. @throws LabError when QEMU ends or the time is over. */
export async function waitForBoot(context: NodeContext, machine: ProcessRef, sshPort: number): Promise<void> {
  const { qemuLog } = nodeFiles(context.place, context.slot.index);
  await waitForSshBanner(sshPort, Date.now() + bootTimeoutMs, () =>
    isAlive(machine) ? undefined : `QEMU of node${context.slot.index} ended: ${lastLines(qemuLog)}`,
  );
}

async function target(context: NodeContext, sshPort: number, keyFile: string): Promise<SshTarget> {
  return { port: sshPort, user: 'ops', privateKey: await readFile(keyFile, 'utf8'), hostKeySha256: context.slot.hostKeySha256 };
}

/** Runs a command on a node with the lab's key. */
export async function onNode(context: NodeContext, sshPort: number, command: string, options?: ExecOptions): Promise<ExecResult> {
  return sshExec(await target(context, sshPort, labKey(context.place)), command, options);
}

/**
 * Makes a node that just booted or came back from its snapshot ours: lets in the lab's key only, and sets the
 * clock, which is the snapshot's, by the host's (hwclock would wait up to a second for the hardware clock's tick).
 */
export async function adopt(context: NodeContext, sshPort: number): Promise<void> {
  const publicKey = await readFile(`${labKey(context.place)}.pub`, 'utf8');
  const command = [
    'set -e',
    'read -r now',
    'sudo date --utc --set="@$now" >/dev/null',
    'umask 077',
    'cat >~/.ssh/authorized_keys.new',
    'mv ~/.ssh/authorized_keys.new ~/.ssh/authorized_keys',
  ].join('; ');
  const result = await sshExec(await target(context, sshPort, context.store.key), command, { input: () => `${(Date.now() / 1000).toFixed(3)}\n${publicKey}`, timeoutMs: 60_000 });
  if (result.code !== 0) throw new LabError('LAB_NOT_READY', `node${context.slot.index} could not be taken over: ${result.stderr.trim()}`, 'Run `npm run lab -- reset` for the node, or `down` and `up`.');
}

/** Waits until systemd has started everything and the RDMA device is there; needs the store's key. */
export async function waitUntilSettled(context: NodeContext, sshPort: number): Promise<void> {
  const command = String.raw`
    if [ "$(systemctl is-system-running --wait)" = running ] && rdma link show rxe0/1 >/dev/null; then exit 0; fi
    for unit in $(systemctl --failed --no-legend --plain | cut -d ' ' -f 1); do sudo systemctl status --no-pager --lines 8 "$unit"; done
    exit 1`;
  const result = await sshExec(await target(context, sshPort, context.store.key), command, { timeoutMs: bootTimeoutMs });
  if (result.code !== 0) {
    throw new LabError('LAB_NOT_READY', `node${context.slot.index} did not come up whole: ${(result.stdout + result.stderr).trim()}`, 'Look at console.log in the node\'s folder; `npm run lab -- down` and `up --cold` boots it anew.');
  }
}

async function withQmp<T>(place: LabPlace, index: number, action: (qmp: Qmp) => Promise<T>): Promise<T> {
  const qmp = await Qmp.open(nodeFiles(place, index).qmp);
  try {
    return await action(qmp);
  } finally {
    qmp.close();
  }
}

function expectSilence(index: number, what: string, text: string): void {
  if (text !== '') throw new LabError('LAB_SNAPSHOT_FAILED', `${what} of node${index} failed: ${text}`, 'See that the disk is not full, then `npm run lab -- down` and `up --cold`.');
}

/** Takes the snapshot `ready` into the node's disk; the node goes on running. */
export async function takeSnapshot(place: LabPlace, index: number): Promise<void> {
  await withQmp(place, index, async (qmp) => expectSilence(index, 'the snapshot', await qmp.monitor(`savevm ${snapshotName}`)));
}

/** Puts a running node back to its snapshot. */
export async function loadSnapshot(place: LabPlace, index: number): Promise<void> {
  await withQmp(place, index, async (qmp) => {
    expectSilence(index, 'the return to the snapshot', await qmp.monitor(`loadvm ${snapshotName}`));
    await qmp.execute('cont');
  });
}

const plugged = async (qmp: Qmp, driver: string): Promise<boolean> =>
  ((await qmp.execute('qom-list', { path: '/machine/peripheral' })) as { name: string }[]).some(({ name }) => name === `lab-${driver}`);

/** Plugs a device into the free slot of a running node; does nothing when it is there. */
export async function plugDevice(place: LabPlace, index: number, driver: string): Promise<void> {
  await withQmp(place, index, async (qmp) => {
    if (!(await plugged(qmp, driver))) await qmp.execute('device_add', { driver, id: `lab-${driver}`, bus: hotplugSlot });
  });
}

/** Takes a plugged device out again and waits until the node has let it go. @throws LabError LAB_QEMU_FAILED. */
export async function unplugDevice(place: LabPlace, index: number, driver: string): Promise<void> {
  await withQmp(place, index, async (qmp) => {
    if (!(await plugged(qmp, driver))) return;
    await qmp.execute('device_del', { id: `lab-${driver}` });
    const deadline = Date.now() + 30_000;
    while (await plugged(qmp, driver)) {
      if (Date.now() > deadline) throw new LabError('LAB_QEMU_FAILED', `node${index} does not let go of ${driver}`, 'Run `npm run lab -- reset` for the node.');
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  });
}

/** Ends a node's QEMU in good order, with its disk file complete, and keeps the disk as the slot's. */
export async function storeSnapshot(context: NodeContext, machine: ProcessRef): Promise<void> {
  const { place, slot } = context;
  await withQmp(place, slot.index, (qmp) => qmp.execute('quit'));
  const deadline = Date.now() + 30_000;
  while (isAlive(machine) && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
  if (isAlive(machine)) await killProcess(machine).then(() => Promise.reject(new LabError('LAB_QEMU_FAILED', `QEMU of node${slot.index} did not quit`, 'Run `npm run lab -- up` again.')));
  if (existsSync(slot.disk)) return;
  const temporary = `${slot.disk}.${process.pid}`;
  await runCommand('cp', ['--reflink=auto', '--sparse=always', nodeFiles(place, slot.index).disk, temporary]);
  await runCommand('qemu-img', ['check', '-q', temporary]);
  await rename(temporary, slot.disk);
}
