import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LabError } from './errors.js';

/** A process that cannot be mistaken for a later one with the same number. */
export interface ProcessRef {
  readonly pid: number;
  /** Start time in clock ticks since boot: field 22 of /proc/PID/stat (proc(5)). */
  readonly startTicks: number;
}

/** The running process `pid`, or undefined when there is none (a zombie counts as none). */
export function processRef(pid: number): ProcessRef | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  return parseStat(pid, stat);
}

/** Reads the start time out of a line of /proc/PID/stat; the command name may hold spaces and brackets. */
export function parseStat(pid: number, stat: string): ProcessRef | undefined {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const startTicks = Number(fields[19]);
  if (fields[0] === 'Z' || fields[0] === 'X' || !Number.isSafeInteger(startTicks) || startTicks <= 0) return undefined;
  return { pid, startTicks };
}

export function isAlive(ref: ProcessRef): boolean {
  return processRef(ref.pid)?.startTicks === ref.startTicks;
}

/** Processes of this user that run one of `programs` and have `token` or `token-...` as an argument. */
export function findByToken(token: string, programs: readonly string[]): ProcessRef[] {
  const found: ProcessRef[] = [];
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    let argv: string[];
    try {
      argv = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    } catch {
      continue; // ended while we looked
    }
    if (!programs.includes(basename(argv[0] ?? ''))) continue;
    if (!argv.some((argument) => argument === token || argument.startsWith(`${token}-`))) continue;
    const ref = processRef(pid);
    if (ref !== undefined) found.push(ref);
  }
  return found;
}

/** Ends a process for certain and waits until it is gone; does nothing when it has already ended. */
export async function killProcess(ref: ProcessRef, timeoutMs = 5000): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (isAlive(ref)) {
    try {
      process.kill(ref.pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
    if (Date.now() > deadline) {
      throw new LabError('LAB_COMMAND_FAILED', `process ${ref.pid} does not end`, 'Look at it with ps, then run `npm run lab -- down` again.');
    }
    await sleep(10);
  }
}

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly input?: string | Uint8Array;
  /** Called with each line of stdout and stderr as it comes. */
  readonly onLine?: (line: string) => void;
}

/**
 * Runs a program to its end and returns what it wrote.
 * @throws LabError LAB_MISSING_PROGRAM when it is not installed, LAB_COMMAND_FAILED when it ends with a
 *   status other than 0 (the message carries the end of what it wrote).
 */
export async function runCommand(program: string, args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: options.env ?? process.env,
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  let partial = '';
  const lines = (text: string): void => {
    if (options.onLine === undefined) return;
    const pieces = (partial + text).split('\n');
    partial = pieces.pop() ?? '';
    pieces.forEach(options.onLine);
  };
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    lines(text);
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    lines(text);
  });
  child.stdin?.on('error', () => undefined); // a program may end without reading its input; its status tells
  child.stdin?.end(options.input);
  const code = await new Promise<number>((resolve, reject) => {
    child.on('error', (error: NodeJS.ErrnoException) => {
      reject(
        error.code === 'ENOENT'
          ? new LabError('LAB_MISSING_PROGRAM', `the program ${program} is not installed`, 'Run build/setup.sh, which installs what the lab needs.', { cause: error })
          : error,
      );
    });
    child.on('close', (status, signal) => resolve(status ?? (signal === null ? 1 : 128)));
  });
  if (code !== 0) {
    const tail = (stderr.trim() || stdout.trim()).split('\n').slice(-12).join('\n');
    throw new LabError('LAB_COMMAND_FAILED', `${program} ${args.slice(0, 3).join(' ')} ended with status ${code}: ${tail}`, 'The message above is the program\'s own; mend its cause and repeat.');
  }
  return { code, stdout, stderr };
}
