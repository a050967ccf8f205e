import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { askHub } from './client.js';
import { encodeFrame, FrameDecoder } from './framing.js';
import { startHub, type Hub } from './server.js';

const mac = (n: number): Buffer => Buffer.from([0x52, 0x54, 0, 0x77, 0, n]);
const ether = (to: number, from: number, payload: string): Buffer => Buffer.concat([mac(to), mac(from), Buffer.from([8, 0]), Buffer.from(payload)]);

describe('hub', () => {
  let dir: string;
  let hub: Hub;
  const logged: string[] = [];
  const sockets: Socket[] = [];
  const control = (): string => join(dir, 'hub.sock');

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'lab-hub-'));
    logged.length = 0;
    hub = await startHub({ portSockets: new Map([1, 2, 3].map((n) => [n, join(dir, `port-${n}.sock`)])), controlSocket: control(), log: (message) => logged.push(message) });
  });
  afterEach(async () => {
    sockets.splice(0).forEach((socket) => socket.destroy());
    await hub.close();
    await rm(dir, { recursive: true });
  });

  async function node(port: number): Promise<{ socket: Socket; got: string[] }> {
    const socket = connect(join(dir, `port-${port}.sock`));
    sockets.push(socket);
    const decoder = new FrameDecoder();
    const got: string[] = [];
    socket.on('data', (chunk) => decoder.push(chunk).forEach((frame) => got.push(frame.toString('latin1', 14))));
    await vi.waitFor(() => expect(logged).toContain(`node ${port} attached`));
    return { socket, got };
  }

  it('carries frames between nodes, also when they arrive torn', async () => {
    const one = await node(1);
    const two = await node(2);
    const bytes = encodeFrame(ether(2, 1, 'torn'));
    one.socket.write(bytes.subarray(0, 7));
    await new Promise((resolve) => setTimeout(resolve, 20));
    one.socket.write(bytes.subarray(7));
    await vi.waitFor(() => expect(two.got).toEqual(['torn']));
  });

  it('closes the connection of a node that breaks the framing, and no other', async () => {
    const one = await node(1);
    const two = await node(2);
    const three = await node(3);
    const closed = new Promise((resolve) => one.socket.on('close', resolve));
    one.socket.on('error', () => undefined);
    one.socket.write(Buffer.from([0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
    await closed;
    three.socket.write(encodeFrame(ether(2, 3, 'goes on')));
    await vi.waitFor(() => expect(two.got).toEqual(['goes on']));
    expect(logged.some((line) => line.startsWith('node 1: a frame of 4294967295 bytes'))).toBe(true);
    const again = await node(1);
    again.socket.write(encodeFrame(ether(2, 1, 'back')));
    await vi.waitFor(() => expect(two.got).toContain('back'));
  });

  it('changes links live by its control socket and tells the state', async () => {
    const one = await node(1);
    const two = await node(2);
    const state = await askHub(control(), { op: 'link', port: 1, cut: true });
    expect(state.ports[0]).toMatchObject({ port: 1, attached: true, link: { cut: true } });
    one.socket.write(encodeFrame(ether(2, 1, 'lost')));
    await vi.waitFor(async () => expect((await askHub(control(), { op: 'status' })).ports[0]?.counters?.cut).toBe(1));
    await askHub(control(), { op: 'restore', port: 1 });
    one.socket.write(encodeFrame(ether(2, 1, 'through')));
    await vi.waitFor(() => expect(two.got).toEqual(['through']));
    await askHub(control(), { op: 'pair', a: 1, b: 2, cut: true });
    expect((await askHub(control(), { op: 'status' })).cutPairs).toEqual([[1, 2]]);
  });

  it.each(['nonsense', '{"op":"link"}', '{"op":"link","port":1,"dropPercent":101}', '{"op":"link","port":1,"typo":true}', '{"op":"destroy"}', '[]'])('refuses the request %s and goes on', async (line) => {
    const answer = await new Promise<string>((resolve) => {
      const socket = connect(control(), () => socket.write(`${line}\n`));
      sockets.push(socket);
      socket.once('data', (data) => resolve(data.toString()));
    });
    expect(JSON.parse(answer)).toMatchObject({ ok: false });
    await expect(askHub(control(), { op: 'status' })).resolves.toMatchObject({ ok: true });
  });

  it('ends a control connection that sends no end of line', async () => {
    const socket = connect(control());
    sockets.push(socket);
    socket.on('error', () => undefined);
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.resume().write('x'.repeat(200_000));
    await closed;
  });

  it('says in one sentence that there is no hub', async () => {
    await expect(askHub(join(dir, 'none.sock'), { op: 'status' })).rejects.toMatchObject({ code: 'LAB_HUB_FAILED' });
  });
});
