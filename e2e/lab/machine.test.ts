import { createServer, type Server } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Lab } from './lab.js';
import { labPlace } from './paths.js';
import { machineArguments, type MachineSpec } from './qemu.js';
import { Qmp } from './qmp.js';
import { fingerprintOfPublicKey } from './ssh.js';

describe('machine', () => {
  const spec: MachineSpec = { name: 'x', memoryMiB: 256, vmlinux: '/v', initrd: '/i', append: 'a=1', disk: { file: '/a,b.qcow2', format: 'qcow2' }, serialFiles: ['/c'], iommu: false };

  it('escapes commas in paths, so that a path can\'t become an option', () => {
    expect(machineArguments(spec)).toContain('file=/a,,b.qcow2,format=qcow2,if=none,id=disk0,discard=unmap');
  });

  it('forwards from loopback only and keeps the guest in', () => {
    const args = machineArguments({ ...spec, network: { index: 11, sshPort: 40022, hubSocket: '/s' } });
    expect(args).toContain('user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:40022-:22');
    expect(args.filter((arg) => arg.includes('mac='))).toEqual([expect.stringContaining('mac=52:54:00:76:00:0b'), expect.stringContaining('mac=52:54:00:77:00:0b')]);
  });

  it('gives each clone a place of its own, with room for a socket\'s name', () => {
    const [one, two] = ['/home/a/build/out/lab', '/home/b/build/out/lab'].map((dir) => labPlace(dir));
    expect(one?.token).not.toBe(two?.token);
    expect(labPlace('/home/a/build/out/lab')).toEqual(one);
    expect(Buffer.byteLength(join(labPlace(`/${'x'.repeat(500)}`).socketDir, 'port-16.sock'))).toBeLessThan(108);
  });

  it('prints fingerprints as ssh-keygen does', () => {
    // ssh-keygen -l of this key prints the same.
    const key = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f comment';
    expect(fingerprintOfPublicKey(key)).toBe('SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA');
  });
});

describe('Lab without a running lab', () => {
  let dir: string;
  let lab: Lab;
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'lab-none-'));
    lab = new Lab(labPlace(join(dir, 'lab')));
  });
  afterEach(() => rm(dir, { recursive: true }));

  it('is down, and going down again changes nothing', async () => {
    expect(await lab.status()).toEqual({ phase: 'down', nodes: [] });
    await lab.down();
    expect(await lab.status()).toEqual({ phase: 'down', nodes: [] });
  });

  it('refuses what needs one, and a number of nodes that it can\'t have', async () => {
    await expect(lab.reset(1)).rejects.toMatchObject({ code: 'LAB_NOT_UP' });
    await expect(lab.fault(1, 'cut', true)).rejects.toMatchObject({ code: 'LAB_NOT_UP' });
    for (const nodes of [0, 17, 1.5, NaN]) await expect(lab.up({ nodes })).rejects.toMatchObject({ code: 'LAB_BAD_ARGUMENT' });
  });
});

describe('Qmp', () => {
  let dir: string;
  let server: Server;
  beforeEach(async () => void (dir = await mkdtemp(join(tmpdir(), 'lab-qmp-'))));
  afterEach(async () => {
    server.close();
    await rm(dir, { recursive: true });
  });

  /** A control socket that greets and answers each line by `answer`. */
  async function serve(answer: (command: string) => string): Promise<Qmp> {
    const path = join(dir, 'qmp');
    server = createServer((socket) => {
      socket.write('{"QMP": {"version": {}}}\r\n');
      socket.on('data', (data) => {
        const text = answer((JSON.parse(data.toString()) as { execute: string }).execute);
        if (text === '') socket.destroy();
        else socket.write(text);
      });
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
    return Qmp.open(path);
  }

  it('passes events over and returns what the command returned', async () => {
    const qmp = await serve((command) => (command === 'qmp_capabilities' ? '{"return": {}}\r\n' : '{"event": "STOP"}\r\n{"return": "text\\n"}\r\n'));
    expect(await qmp.monitor('info status')).toBe('text');
    qmp.close();
  });

  it('turns QEMU\'s error into one of the lab', async () => {
    const qmp = await serve((command) => (command === 'qmp_capabilities' ? '{"return": {}}\r\n' : '{"error": {"class": "GenericError", "desc": "no such thing"}}\r\n'));
    await expect(qmp.execute('x')).rejects.toMatchObject({ code: 'LAB_QEMU_FAILED', message: expect.stringContaining('no such thing') });
    qmp.close();
  });

  it('ends a waiting command when QEMU goes away', async () => {
    const qmp = await serve((command) => (command === 'qmp_capabilities' ? '{"return": {}}\r\n' : ''));
    await expect(qmp.execute('quit')).rejects.toMatchObject({ code: 'LAB_QEMU_FAILED' });
    await expect(qmp.execute('again')).rejects.toMatchObject({ code: 'LAB_QEMU_FAILED' });
  });
});
