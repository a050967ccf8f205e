import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { choosePeer, faults, faultScript, findFault, runOnNode } from './faults.js';
import { hubRequest } from './hub/protocol.js';

describe('faults', () => {
  it('have different names and a description', () => {
    expect(new Set(faults.map(({ name }) => name)).size).toBe(faults.length);
    for (const fault of faults) expect(fault.description).toMatch(/\w/);
  });

  it.each(faults.filter((fault) => fault.kind === 'node').flatMap((fault) => [[fault.name, true] as const, [fault.name, false] as const]))('%s (on: %s) is a shell script without a syntax error', (name, on) => {
    const fault = findFault(name);
    if (fault.kind !== 'node') throw new Error('not a node fault');
    const result = spawnSync('sh', ['-n'], { input: faultScript(fault, on, '10.77.0.2'), encoding: 'utf8' });
    expect(result.stderr).toBe('');
    expect(result.status).toBe(0);
  });

  it.each(faults.filter((fault) => fault.kind === 'link'))('$name makes requests that the hub takes', (fault) => {
    for (const on of [true, false]) {
      for (const peer of [undefined, 2]) expect(hubRequest.safeParse(fault.request(1, on, peer)).success).toBe(true);
    }
  });

  it('names the unknown', () => {
    expect(() => findFault('earthquake')).toThrow('"earthquake"');
  });

  it('chooses the next node as peer, the first after the last, and refuses a peer that is not there', () => {
    expect(choosePeer(1, [1, 2, 3])).toBe(2);
    expect(choosePeer(3, [1, 2, 3])).toBe(1);
    expect(choosePeer(2, [1, 2, 3], 1)).toBe(1);
    expect(() => choosePeer(2, [1, 2, 3], 2)).toThrow();
    expect(() => choosePeer(2, [1, 2, 3], 7)).toThrow('no peer 7');
    expect(() => choosePeer(1, [1])).toThrow();
  });

  it('reports the node\'s last word when a script fails', async () => {
    const fault = findFault('module-missing');
    if (fault.kind !== 'node') throw new Error('not a node fault');
    const run = async () => ({ code: 1, stdout: '', stderr: 'noise\nthere is no module\n' });
    await expect(runOnNode(fault, true, {}, run)).rejects.toMatchObject({ code: 'LAB_FAULT_FAILED', message: expect.stringContaining('there is no module') });
  });
});
