import { readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { LabError } from '../errors.js';

/** A cpio archive (newc, as the kernel's initramfs wants it) of everything below `dir`, owned by root. */
export async function packCpio(dir: string): Promise<Buffer> {
  const names = readdirSync(dir, { withFileTypes: true, recursive: true })
    .map((entry) => relative(dir, join(entry.parentPath, entry.name)))
    .sort(); // a folder comes before what it holds
  const child = spawn('cpio', ['--quiet', '--null', '--create', '--format=newc', '--owner=0:0'], { cwd: dir, stdio: ['pipe', 'pipe', 'pipe'] });
  const chunks: Buffer[] = [];
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  child.stdin.on('error', () => undefined); // the exit status tells
  child.stdin.end(names.map((name) => `${name}\0`).join(''));
  let code: number | null;
  try {
    [code] = (await once(child, 'close')) as [number | null];
  } catch (error) {
    throw new LabError('LAB_MISSING_PROGRAM', 'the program cpio is not installed', 'Run build/setup.sh, which installs what the lab needs.', { cause: error });
  }
  if (code !== 0) throw new LabError('LAB_COMMAND_FAILED', `cpio ended with status ${code}: ${stderr.trim()}`, 'See that the disk is not full.');
  return Buffer.concat(chunks);
}
