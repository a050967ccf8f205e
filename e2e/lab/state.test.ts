import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readState, writeState, type RunState } from './state.js';

const state: RunState = {
  version: 1,
  phase: 'up',
  imageHash: 'abc',
  imageDir: '/cache/abc',
  kernelRelease: '6.1.0-57-amd64',
  hub: { pid: 12, startTicks: 345 },
  nodes: [{ index: 1, name: 'node1', sshPort: 40001, hostKeySha256: 'SHA256:x', machine: null, faults: [{ name: 'cut', peer: 2 }] }],
};

describe('state', () => {
  let dir: string;
  beforeEach(async () => void (dir = await mkdtemp(join(tmpdir(), 'lab-state-'))));
  afterEach(() => rm(dir, { recursive: true }));

  it('gives back what was written, in a file that only its owner reads', async () => {
    writeState(dir, state);
    expect(await readState(dir)).toEqual(state);
    expect((await stat(join(dir, 'state.json'))).mode & 0o777).toBe(0o600);
    expect(await readdir(dir)).toEqual(['state.json']);
  });

  it('is undefined where there is none', async () => {
    expect(await readState(join(dir, 'nowhere'))).toBeUndefined();
  });

  it.each(['', '{', '{"version":2}', JSON.stringify({ ...state, nodes: [{}] }), JSON.stringify({ ...state, hub: { pid: -1, startTicks: 1 } })])('takes an unusable file for none: %s', async (text) => {
    await writeFile(join(dir, 'state.json'), text);
    expect(await readState(dir)).toBeUndefined();
  });

  it('replaces the state whole', async () => {
    writeState(dir, state);
    writeState(dir, { ...state, phase: 'starting' });
    expect((await readState(dir))?.phase).toBe('starting');
  });
});
