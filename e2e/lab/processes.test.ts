import { spawn } from 'node:child_process';
import { describe, expect, it, vi } from 'vitest';
import { LabError } from './errors.js';
import { findByToken, isAlive, killProcess, parseStat, processRef, runCommand } from './processes.js';

const token = `lab-test-${process.pid}`;
function idle(...args: string[]): number {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)', ...args], { stdio: 'ignore' });
  return child.pid as number;
}

describe('processes', () => {
  it('reads the start time behind a command name with spaces and brackets', () => {
    const fields = ['S', ...Array.from({ length: 49 }, (_, i) => String(i + 4))];
    expect(parseStat(7, `7 (a) b (c)) ${fields.join(' ')}`)).toEqual({ pid: 7, startTicks: 22 });
    expect(parseStat(7, `7 (x) ${['Z', ...fields.slice(1)].join(' ')}`)).toBeUndefined();
    expect(parseStat(7, 'nonsense')).toBeUndefined();
  });

  it('knows itself, and not a number that no process has', () => {
    expect(processRef(process.pid)).toMatchObject({ pid: process.pid });
    expect(processRef(4_194_305)).toBeUndefined();
  });

  it('never ends a process that only has the same number', async () => {
    const pid = idle();
    const real = processRef(pid);
    expect(real).toBeDefined();
    await killProcess({ pid, startTicks: (real?.startTicks ?? 0) - 1 });
    expect(isAlive(real as { pid: number; startTicks: number })).toBe(true);
    await killProcess(real as { pid: number; startTicks: number });
    expect(processRef(pid)).toBeUndefined();
  });

  it('finds by token only whole arguments, and only the named programs', async () => {
    const mine = [idle(token), idle(`${token}-node1`)];
    const others = [idle(`x${token}`), idle(`${token}x`), idle(`file=${token}`)];
    await vi.waitFor(() => expect(findByToken(token, ['node']).map(({ pid }) => pid).sort()).toEqual([...mine].sort()));
    expect(findByToken(token, ['qemu-system-x86_64'])).toEqual([]);
    for (const pid of [...mine, ...others]) {
      const ref = processRef(pid);
      if (ref !== undefined) await killProcess(ref);
    }
  });

  it('names a program that is not there, and gives the end of what a failing one wrote', async () => {
    await expect(runCommand('no-such-program-here', [])).rejects.toMatchObject({ code: 'LAB_MISSING_PROGRAM' });
    const failure = runCommand('sh', ['-c', 'echo why >&2; exit 3']);
    await expect(failure).rejects.toBeInstanceOf(LabError);
    await expect(failure).rejects.toThrow(/status 3: why/);
  });

  it('hands over input and output by lines', async () => {
    const lines: string[] = [];
    const { stdout } = await runCommand('cat', [], { input: 'one\ntwo\nrest', onLine: (line) => lines.push(line) });
    expect(stdout).toBe('one\ntwo\nrest');
    expect(lines).toEqual(['one', 'two']);
  });
});
