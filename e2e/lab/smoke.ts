import { copyFile, mkdir, open, readFile, readdir, rm, stat } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LabError } from './errors.js';
import { ensureImage } from './image/build.js';
import { findByToken, isAlive, killProcess, processRef } from './processes.js';
import { lastLines, qemuProgram, startMachine } from './qemu.js';

/** Begins the name of every run: of its folder and of its machine. */
const token = 'stepccl-smoke';

export interface SmokeOptions {
  /** Mounted read-only at /mnt/host, which is also the script's working folder. */
  readonly shareDir: string;
  /** A bash script, run as root. */
  readonly script: string;
  /** Added to the kernel's command line. */
  readonly append?: string;
  readonly iommu?: boolean;
  readonly devices?: readonly string[];
  readonly memoryMiB?: number;
  readonly timeoutMs?: number;
  /** Gets the script's output as it comes, and the kernel's log when the script failed. */
  readonly onOutput: (text: string) => void;
  readonly onProgress?: (message: string) => void;
}

/**
 * Boots the lab's Debian image without systemd and network, runs a script in it and returns its exit status.
 * Nothing of the machine stays.
 * @throws LabError LAB_NOT_READY when the machine ended or the time was over before the script did: the message
 *   has the end of the console.
 */
export async function runSmoke(options: SmokeOptions): Promise<number> {
  const { onOutput, timeoutMs = 300_000 } = options;
  for (const [what, path, fits] of [
    ['share', options.shareDir, await stat(options.shareDir).then((info) => info.isDirectory(), () => false)],
    ['script', options.script, await stat(options.script).then((info) => info.isFile(), () => false)],
  ] as const) {
    if (!fits) throw new LabError('LAB_BAD_ARGUMENT', `the ${what} ${path} is not there`, `Name ${what === 'share' ? 'a folder' : 'a file'} that exists.`);
  }
  const image = await ensureImage(options.onProgress);
  await removeDeadRuns();
  const name = `${token}-${process.pid}-${processRef(process.pid)?.startTicks}-${randomBytes(4).toString('hex')}`;
  const dir = join(tmpdir(), name);
  await mkdir(dir, { mode: 0o700 });
  const files = { console: join(dir, 'console'), output: join(dir, 'output'), result: join(dir, 'result'), log: join(dir, 'qemu.log') };
  try {
    await mkdir(join(dir, 'script'));
    await copyFile(options.script, join(dir, 'script/script'));
    const machine = await startMachine(
      {
        name,
        memoryMiB: options.memoryMiB ?? 512,
        vmlinux: image.vmlinux,
        initrd: image.initrd,
        append: ['lab.init=/usr/local/sbin/lab-smoke-init', options.append ?? ''].join(' ').trim(),
        disk: { file: image.root, format: 'raw', discardWrites: true },
        serialFiles: [files.console, files.output, files.result],
        iommu: options.iommu ?? false,
        shares: { host: resolve(options.shareDir), 'host-script': join(dir, 'script') },
        devices: options.devices ?? [],
      },
      files.log,
    );
    let interrupted = false;
    const stop = (): void => void (interrupted = true);
    process.once('SIGINT', stop).once('SIGTERM', stop);
    try {
      const decoder = new TextDecoder();
      const show = (bytes: Buffer): void => onOutput(decoder.decode(bytes, { stream: true }));
      const deadline = Date.now() + timeoutMs;
      let shown = 0;
      while (isAlive(machine) && Date.now() < deadline && !interrupted) {
        shown = await showFrom(files.output, shown, show);
        await sleep(100);
      }
      const timedOut = isAlive(machine);
      await killProcess(machine);
      await showFrom(files.output, shown, show);
      if (interrupted) throw new LabError('LAB_NOT_READY', 'the run was interrupted', 'Nothing of it is left; run it again when you like.');
      const result = existsSync(files.result) ? await readFile(files.result, 'utf8') : '';
      const status = /^status (\d+)\r?\n([\s\S]*)end\r?\n$/.exec(result);
      if (status === null) {
        const why = timedOut ? `did not end within ${timeoutMs / 1000} s` : 'stopped before the script ended';
        throw new LabError('LAB_NOT_READY', `the machine ${why}\n${lastLines(files.log)}\nend of its console:\n${lastLines(files.console, 60)}`, 'The console above says what the kernel met.');
      }
      if (status[1] !== '0') onOutput(`\nkernel log:\n${status[2]}`);
      return Number(status[1]);
    } finally {
      process.off('SIGINT', stop).off('SIGTERM', stop);
      await killProcess(machine);
    }
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Ends the machines, and removes the folders, of runs whose process was killed. */
async function removeDeadRuns(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    const owner = new RegExp(`^${token}-(\\d+)-(\\d+)-[0-9a-f]{8}$`).exec(name);
    if (owner === null || isAlive({ pid: Number(owner[1]), startTicks: Number(owner[2]) })) continue;
    if ((await stat(join(tmpdir(), name))).uid !== process.getuid?.()) continue;
    await Promise.all(findByToken(name, [qemuProgram]).map((ref) => killProcess(ref)));
    await rm(join(tmpdir(), name), { recursive: true, force: true });
  }
}

/** Hands over what a growing file holds from `offset` on; returns the new offset. */
async function showFrom(path: string, offset: number, show: (bytes: Buffer) => void): Promise<number> {
  if (!existsSync(path)) return offset;
  const file = await open(path, 'r');
  try {
    const buffer = Buffer.alloc(64 * 1024);
    for (;;) {
      const { bytesRead } = await file.read(buffer, 0, buffer.length, offset);
      if (bytesRead === 0) return offset;
      show(buffer.subarray(0, bytesRead));
      offset += bytesRead;
    }
  } finally {
    await file.close();
  }
}
