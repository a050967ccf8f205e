import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { LabError } from './errors.js';
import { processRef, runCommand, type ProcessRef } from './processes.js';

export const qemuProgram = 'qemu-system-x86_64';
/** Name of the snapshot that every node's disk carries. */
export const snapshotName = 'ready';

/** The free PCIe slot of each node: a device can be plugged into it while the node runs. */
export const hotplugSlot = 'hotplug1';

/** What a virtual machine of the lab is started with. */
export interface MachineSpec {
  /** Seen in the list of processes; begins with the lab's token. */
  readonly name: string;
  readonly memoryMiB: number;
  readonly vmlinux: string;
  readonly initrd: string;
  /** Added to the kernel's command line. */
  readonly append: string;
  readonly disk: { readonly file: string; readonly format: 'qcow2' | 'raw'; readonly discardWrites?: boolean };
  /** One file for each serial port, ttyS0 first. */
  readonly serialFiles: readonly string[];
  readonly iommu: boolean;
  /** Management and data network; absent in a smoke run. */
  readonly network?: { readonly index: number; readonly sshPort: number; readonly hubSocket: string };
  readonly qmpSocket?: string;
  /** Host folders that the guest mounts read-only by 9p, by mount tag. Such a machine can't be snapshotted. */
  readonly shares?: Readonly<Record<string, string>>;
  /** Further `-device` arguments. */
  readonly devices?: readonly string[];
  /** Starts from the disk's snapshot in place of booting. */
  readonly fromSnapshot?: boolean;
}

/**
 * QEMU's argument list. Nehalem (x86-64-v2) and one virtual CPU are the fastest under TCG; the q35 machine with
 * an Intel IOMMU gives real DMAR faults; `mitigations=off` and `no_timer_check` only save boot time.
 */
export function machineArguments(spec: MachineSpec): string[] {
  const option = (text: string): string => text.replaceAll(',', ',,'); // a comma separates in QEMU's options
  const kernel = ['console=ttyS0', 'quiet', 'loglevel=4', 'panic=-1', 'mitigations=off', 'net.ifnames=0', 'no_timer_check'];
  if (spec.iommu) kernel.push('intel_iommu=on', 'iommu.strict=1');
  const args = [
    '-name', spec.name,
    '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot',
    '-machine', 'q35,kernel-irqchip=split',
    '-accel', 'tcg,thread=multi,tb-size=128',
    '-cpu', 'Nehalem', '-smp', '1', '-m', `${spec.memoryMiB}M`,
    ...(spec.iommu ? ['-device', 'intel-iommu,intremap=on'] : []),
    '-kernel', spec.vmlinux, '-initrd', spec.initrd,
    '-append', [...kernel, spec.append].filter((word) => word !== '').join(' '),
    '-drive', `file=${option(spec.disk.file)},format=${spec.disk.format},if=none,id=disk0,discard=unmap${spec.disk.discardWrites === true ? ',snapshot=on' : ''}`,
    '-device', 'virtio-blk-pci,drive=disk0',
    '-device', 'virtio-rng-pci',
  ];
  if (spec.network !== undefined) {
    const { index, sshPort, hubSocket } = spec.network;
    const tail = index.toString(16).padStart(2, '0');
    args.push(
      '-netdev', `user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:${sshPort}-:22`,
      '-device', `virtio-net-pci,netdev=management,mac=52:54:00:76:00:${tail},romfile=`,
      '-netdev', `stream,id=data,server=off,addr.type=unix,addr.path=${option(hubSocket)}`,
      '-device', `virtio-net-pci,netdev=data,mac=52:54:00:77:00:${tail},romfile=`,
      '-device', `pcie-root-port,id=${hotplugSlot},chassis=1,slot=1`,
    );
  }
  for (const [tag, path] of Object.entries(spec.shares ?? {})) {
    args.push('-virtfs', `local,path=${option(path)},mount_tag=${tag},security_model=none,readonly=on`);
  }
  for (const device of spec.devices ?? []) args.push('-device', device);
  for (const file of spec.serialFiles) args.push('-serial', `file:${file}`);
  if (spec.qmpSocket !== undefined) args.push('-qmp', `unix:${option(spec.qmpSocket)},server=on,wait=off`);
  if (spec.fromSnapshot === true) args.push('-loadvm', snapshotName);
  return args;
}

/** A key that changes when a snapshot made before would not fit: QEMU's version, the devices, the memory. */
export async function snapshotKey(memoryMiB: number): Promise<string> {
  const { stdout } = await runCommand(qemuProgram, ['--version']);
  const args = machineArguments({
    name: '', memoryMiB, vmlinux: '', initrd: '', append: '', disk: { file: '', format: 'qcow2' }, serialFiles: [''],
    iommu: true, network: { index: 0, sshPort: 0, hubSocket: '' }, qmpSocket: '',
  });
  return createHash('sha256').update(stdout.split('\n')[0] ?? '').update(args.join('\0')).digest('hex').slice(0, 12);
}

/** Starts QEMU in the background; it outlives this process. What it says goes to `logFile`. */
export async function startMachine(spec: MachineSpec, logFile: string): Promise<ProcessRef> {
  const log = openSync(logFile, 'a', 0o600);
  try {
    const child = spawn(qemuProgram, machineArguments(spec), { detached: true, stdio: ['ignore', log, log] });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', (error) => reject(new LabError('LAB_MISSING_PROGRAM', `${qemuProgram} could not be started: ${error.message}`, 'Run build/setup.sh, which installs what the lab needs.', { cause: error })));
    });
    child.unref();
    const ref = child.pid === undefined ? undefined : processRef(child.pid);
    if (ref === undefined) throw new LabError('LAB_QEMU_FAILED', `${spec.name} ended at once: ${lastLines(logFile)}`, 'The message is QEMU\'s own; mend its cause and repeat.');
    return ref;
  } finally {
    closeSync(log);
  }
}

/** The end of a log, for a message. */
export function lastLines(file: string, count = 5): string {
  try {
    return readFileSync(file, 'utf8').trimEnd().split('\n').slice(-count).join('\n').trim();
  } catch {
    return '(no log)';
  }
}
