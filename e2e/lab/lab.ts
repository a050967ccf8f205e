import { spawn } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { copyFile, lstat, mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { LabError } from './errors.js';
import { askHub } from './hub/client.js';
import type { HubStatus } from './hub/protocol.js';
import { ensureImage, type Image } from './image/build.js';
import { withLock } from './lock.js';
import { choosePeer, findFault, hasPlug, runOnNode, type FaultName } from './faults.js';
import { adopt, labKey, loadSnapshot, nodeFiles, onNode, plugDevice, portWasTaken, powerOnMachine, prepareDisk, storeSnapshot, takeSnapshot, unplugDevice, waitForBoot, waitUntilSettled, type NodeContext } from './machines.js';
import { labPlace, type LabPlace } from './paths.js';
import { freePorts } from './ports.js';
import { findByToken, isAlive, killProcess, processRef, type ProcessRef } from './processes.js';
import { lastLines, qemuProgram } from './qemu.js';
import { dataAddress, generateKey, openSlot, openSlotStore } from './slots.js';
import { readState, writeState, type NodeState, type RunState } from './state.js';

/** The most nodes that one lab may have. */
export const maxNodes = 16;

export interface LabNode {
  index: number;
  name: string;
  sshHost: '127.0.0.1';
  sshPort: number;
  user: 'ops';
  /** Private key that logs in on every node of this lab. */
  keyPath: string;
  /** `SHA256:...`, as ssh-keygen -l prints it. */
  hostKeySha256: string;
  /** Address on the data network, where rxe0 is. */
  dataAddress: string;
  rdmaDevice: 'rxe0';
}

export interface LabState {
  nodes: LabNode[];
  kernelRelease: string;
  /** Folder of the run state; each node has a folder in it with console.log and qemu.log. */
  dir: string;
}

export interface LabStatus {
  /** `down`: nothing runs; `broken`: an `up` was killed or the hub has ended, `down` cleans it. */
  phase: 'down' | 'broken' | 'up';
  lab?: LabState;
  nodes: { index: number; power: 'on' | 'off'; faults: NodeState['faults'] }[];
  hub?: HubStatus;
}

export interface UpOptions {
  nodes: number;
  /** Boots in place of restoring the snapshot. */
  cold?: boolean;
  onProgress?: (message: string) => void;
  /** Stops the start and takes everything down again. */
  signal?: AbortSignal;
}

/** One lab: this clone's when no other place is given. */
export class Lab {
  constructor(readonly place: LabPlace = labPlace()) {}

  /**
   * Starts `nodes` virtual machines and waits until each lets in the lab's key. What a killed start left is
   * cleaned first. The first start builds the image and takes the snapshots.
   * @throws LabError; nothing is left running then.
   */
  async up(options: UpOptions): Promise<LabState> {
    const { nodes, cold = false, onProgress = () => undefined, signal } = options;
    if (!Number.isInteger(nodes) || nodes < 1 || nodes > maxNodes) {
      throw new LabError('LAB_BAD_ARGUMENT', `a lab has 1 to ${maxNodes} nodes, not ${nodes}`, 'Give --nodes a number in that range.');
    }
    return this.#locked(async () => {
      const before = await readState(this.place.dir);
      if (before !== undefined && before.phase === 'up' && before.hub !== null && isAlive(before.hub)) {
        throw new LabError('LAB_ALREADY_UP', `this clone's lab is up with ${before.nodes.length} nodes`, 'Use it, or run `npm run lab -- down` first.');
      }
      await this.#clean();
      await rm(`${this.place.dir}-failed`, { recursive: true, force: true });
      const image = await ensureImage(onProgress);
      try {
        return await this.#start(image, nodes, cold, onProgress, signal);
      } catch (error) {
        await this.#endProcesses();
        await this.#keepLogs();
        await this.#clean();
        throw error;
      }
    });
  }

  /** Ends every process of the lab and removes its files. Does nothing when there is none. */
  async down(): Promise<void> {
    await this.#locked(() => this.#clean());
  }

  async status(): Promise<LabStatus> {
    const state = await readState(this.place.dir);
    if (state === undefined) {
      const phase = existsSync(this.place.dir) || this.#strays().length > 0 ? 'broken' : 'down';
      return { phase, nodes: [] };
    }
    const hubAlive = state.hub !== null && isAlive(state.hub);
    return {
      phase: state.phase === 'up' && hubAlive ? 'up' : 'broken',
      lab: this.#view(state),
      nodes: state.nodes.map((node) => ({ index: node.index, power: node.machine !== null && isAlive(node.machine) ? 'on' : 'off', faults: node.faults })),
      ...(hubAlive ? { hub: await askHub(this.#hubSocket(), { op: 'status' }) } : {}),
    };
  }

  /** Puts a node, its disk and its link back to what they were when the lab came up; also one that is off. */
  async reset(index: number): Promise<void> {
    await this.#change(index, async (node, context, state) => {
      await askHub(this.#hubSocket(), { op: 'restore', port: index });
      // A cut between this node and another is whole again for both.
      for (const other of state.nodes) other.faults = other.faults.filter((active) => !(active.name === 'cut' && active.peer === index));
      // A snapshot knows nothing of a device that was plugged in since: such a machine starts anew.
      const plugged = node.faults.some((active) => hasPlug(active.name));
      if (plugged && node.machine !== null) await killProcess(node.machine);
      if (!plugged && node.machine !== null && isAlive(node.machine)) await loadSnapshot(this.place, index);
      else node.machine = await powerOnMachine(context, node.sshPort, true);
      node.faults = [];
      await waitForBoot(context, node.machine, node.sshPort);
      await adopt(context, node.sshPort);
    });
  }

  /** Takes the power from a node: what it had not written is lost. */
  async powerOff(index: number): Promise<void> {
    await this.#change(index, async (node) => {
      if (node.machine !== null) await killProcess(node.machine);
      node.machine = null;
    });
  }

  /** Boots a node that is off with the disk as it was left; returns when it lets in the lab's key. */
  async powerOn(index: number): Promise<void> {
    await this.#change(index, async (node, context) => {
      if (node.machine !== null && isAlive(node.machine)) return;
      node.machine = await powerOnMachine(context, node.sshPort, false);
      await waitForBoot(context, node.machine, node.sshPort);
      await waitUntilSettled(context, node.sshPort);
      await adopt(context, node.sshPort);
    });
  }

  /**
   * Makes a fault on a node, or takes it back; `peer` is the other node of a fault between two.
   * @throws LabError LAB_BAD_ARGUMENT for an unknown name, LAB_FAULT_FAILED when the node refuses.
   */
  async fault(index: number, name: string, on: boolean, options: { peer?: number } = {}): Promise<void> {
    const fault = findFault(name);
    await this.#change(index, async (node, context, state) => {
      const before = node.faults.find((active) => active.name === name);
      const peer = fault.between ? choosePeer(index, state.nodes.map((other) => other.index), options.peer ?? before?.peer) : undefined;
      if (fault.kind === 'link') await askHub(this.#hubSocket(), fault.request(index, on, options.peer === undefined ? undefined : peer));
      else {
        if (on && fault.plug !== undefined) await plugDevice(this.place, index, fault.plug);
        await runOnNode(fault, on, { peerAddress: peer === undefined ? undefined : dataAddress(peer) }, (script) => onNode(context, node.sshPort, 'sudo sh -s', { input: script, timeoutMs: 60_000 }));
        if (!on && fault.plug !== undefined) await unplugDevice(this.place, index, fault.plug);
      }
      node.faults = node.faults.filter((active) => active.name !== name);
      if (on) node.faults.push({ name, ...(peer === undefined ? {} : { peer }) });
    });
  }

  #hubSocket(): string {
    return join(this.place.socketDir, 'hub.sock');
  }

  #locked<T>(action: () => Promise<T>): Promise<T> {
    return withLock(this.place.token, action);
  }

  async #change<T>(index: number, action: (node: NodeState, context: NodeContext, state: RunState) => Promise<T>): Promise<T> {
    return this.#locked(async () => {
      const state = await readState(this.place.dir);
      if (state === undefined || state.phase !== 'up') throw new LabError('LAB_NOT_UP', 'this clone has no running lab', 'Run `npm run lab -- up --nodes 3`.');
      const node = state.nodes.find((candidate) => candidate.index === index);
      if (node === undefined) throw new LabError('LAB_BAD_ARGUMENT', `the lab has no node ${index}`, `Its nodes are ${state.nodes.map(({ index: i }) => i).join(', ')}.`);
      const image: Image = { hash: state.imageHash, kernelRelease: state.kernelRelease, dir: state.imageDir, vmlinux: join(state.imageDir, 'vmlinux'), initrd: join(state.imageDir, 'initrd.gz'), root: join(state.imageDir, 'root.img') };
      const store = await openSlotStore(image);
      const context = { place: this.place, image, store, slot: await openSlot(image, store, index) };
      try {
        return await action(node, context, state);
      } finally {
        writeState(this.place.dir, state);
      }
    });
  }

  async #start(image: Image, count: number, cold: boolean, onProgress: (message: string) => void, signal?: AbortSignal): Promise<LabState> {
    const began = performance.now();
    const seconds = (): string => `${((performance.now() - began) / 1000).toFixed(1)} s`;
    await mkdir(dirname(this.place.dir), { recursive: true });
    await mkdir(this.place.dir, { recursive: true, mode: 0o700 });
    await this.#makeSocketDir();
    const store = await openSlotStore(image);
    const slots = await Promise.all(Array.from({ length: count }, (_, i) => openSlot(image, store, i + 1)));
    const contexts = slots.map((slot): NodeContext => ({ place: this.place, image, store, slot }));
    const ports = await freePorts(count);
    const state: RunState = {
      version: 1,
      phase: 'starting',
      imageHash: image.hash,
      imageDir: image.dir,
      kernelRelease: image.kernelRelease,
      hub: null,
      nodes: slots.map((slot, i) => ({ index: slot.index, name: `node${slot.index}`, sshPort: ports[i] as number, hostKeySha256: slot.hostKeySha256, machine: null, faults: [] })),
    };
    writeState(this.place.dir, state);
    const hub = this.#startHub(count);
    await Promise.all([
      generateKey(labKey(this.place)),
      ...contexts.map(async (context) => {
        await mkdir(nodeFiles(this.place, context.slot.index).dir, { recursive: true, mode: 0o700 });
        await prepareDisk(context, !cold && existsSync(context.slot.disk));
      }),
      hub.then((ref) => (state.hub = ref)),
    ]);
    writeState(this.place.dir, state);

    await this.#startAll(
      contexts.map((context, i) => (stop) =>
        this.#startNode(context, state, state.nodes[i] as NodeState, cold, stop, (what) => onProgress(`node${context.slot.index}: ${what} (${seconds()})`)),
      ),
      signal,
    );
    const knownHosts = slots.map((slot, i) => `[127.0.0.1]:${state.nodes[i]?.sshPort} ${slot.hostKey}\n`).join('');
    await writeFile(join(this.place.dir, 'known_hosts'), knownHosts, { mode: 0o600 });
    state.phase = 'up';
    writeState(this.place.dir, state);
    onProgress(`${count} ${count === 1 ? 'node' : 'nodes'} ready for SSH in ${seconds()}`);
    return this.#view(state);
  }

  /** Starts all nodes at once; when one fails or the caller stops, none is left behind. */
  async #startAll(starts: ((stop: AbortSignal) => Promise<void>)[], signal?: AbortSignal): Promise<void> {
    const stopping = new AbortController();
    const stop = signal === undefined ? stopping.signal : AbortSignal.any([stopping.signal, signal]);
    const running = starts.map((start) => start(stop));
    const stopped = new Promise<never>((_, reject) => {
      if (stop.aborted) reject(stop.reason as Error);
      stop.addEventListener('abort', () => reject(stop.reason as Error), { once: true });
    });
    try {
      await Promise.race([Promise.all(running), stopped]);
    } catch (error) {
      stopping.abort(error);
      await this.#endProcesses();
      await Promise.allSettled([...running, stopped]);
      throw error;
    }
    stopped.catch(() => undefined); // a later abort is no longer ours
  }

  async #startNode(context: NodeContext, state: RunState, node: NodeState, cold: boolean, stop: AbortSignal, progress: (what: string) => void): Promise<void> {
    const restored = !cold && existsSync(context.slot.disk);
    await this.#powerOnWithFreePort(context, state, node, restored, stop, progress);
    if (!restored) {
      await waitUntilSettled(context, node.sshPort);
      progress('booted, RDMA device there; taking the snapshot');
      await takeSnapshot(this.place, node.index);
      if (!cold) {
        await storeSnapshot(context, node.machine as ProcessRef);
        await this.#powerOnWithFreePort(context, state, node, true, stop, progress);
      }
    }
    await adopt(context, node.sshPort);
    progress(restored ? 'restored from its snapshot' : 'ready');
  }

  /** Starts a node and waits for its SSH server; takes another port when the chosen one was taken meanwhile. */
  async #powerOnWithFreePort(context: NodeContext, state: RunState, node: NodeState, fromSnapshot: boolean, stop: AbortSignal, progress: (what: string) => void): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      stop.throwIfAborted();
      node.machine = await powerOnMachine(context, node.sshPort, fromSnapshot);
      writeState(this.place.dir, state);
      try {
        await waitForBoot(context, node.machine, node.sshPort);
        progress('SSH server greets');
        return;
      } catch (error) {
        if (attempt === 3 || isAlive(node.machine) || !portWasTaken(this.place, node.index)) throw error;
        node.sshPort = (await freePorts(1))[0] as number;
      }
    }
  }

  async #startHub(ports: number): Promise<ProcessRef> {
    const logFile = join(this.place.dir, 'hub.log');
    const log = openSync(logFile, 'a', 0o600);
    const main = fileURLToPath(new URL('./hub/main.ts', import.meta.url));
    const child = spawn(process.execPath, ['--import', import.meta.resolve('tsx'), main, this.place.token, this.place.socketDir, String(ports)], { detached: true, stdio: ['ignore', log, log] });
    closeSync(log);
    await new Promise<void>((resolve, reject) => child.once('spawn', resolve).once('error', reject));
    child.unref();
    const ref = processRef(child.pid as number);
    const deadline = Date.now() + 30_000;
    // The control socket is opened last.
    while (ref !== undefined && isAlive(ref) && Date.now() < deadline) {
      if (existsSync(this.#hubSocket())) {
        await askHub(this.#hubSocket(), { op: 'status' });
        return ref;
      }
      await sleep(20);
    }
    throw new LabError('LAB_HUB_FAILED', `the hub that joins the nodes did not start: ${lastLines(logFile)}`, 'The message is the hub\'s own; mend its cause and repeat.');
  }

  #strays(): ProcessRef[] {
    return findByToken(this.place.token, [qemuProgram, 'node']);
  }

  async #endProcesses(): Promise<void> {
    const state = await readState(this.place.dir);
    const known = [...(state?.nodes.map((node) => node.machine) ?? []), state?.hub ?? null].filter((ref): ref is ProcessRef => ref !== null);
    await Promise.all(known.map((ref) => killProcess(ref)));
    // What a killed start had begun but not yet written down.
    await Promise.all(this.#strays().map((ref) => killProcess(ref)));
  }

  async #clean(): Promise<void> {
    await this.#endProcesses();
    await rm(this.place.socketDir, { recursive: true, force: true });
    await rm(this.place.dir, { recursive: true, force: true });
  }

  /** Keeps the logs of a start that failed; the next `up` removes them. */
  async #keepLogs(): Promise<void> {
    const kept = `${this.place.dir}-failed`;
    await rm(kept, { recursive: true, force: true });
    for (const name of ['.', ...Array.from({ length: maxNodes }, (_, i) => `node${i + 1}`)]) {
      for (const log of ['console.log', 'qemu.log', 'hub.log']) {
        const file = join(this.place.dir, name, log);
        if (!existsSync(file)) continue;
        await mkdir(join(kept, name), { recursive: true, mode: 0o700 });
        await copyFile(file, join(kept, name, log));
      }
    }
  }

  /** The socket folder's name can be guessed: it must be a folder of ours that nobody else can enter. */
  async #makeSocketDir(): Promise<void> {
    await mkdir(this.place.socketDir, { recursive: true, mode: 0o700 });
    const info = await lstat(this.place.socketDir);
    if (!info.isDirectory() || info.uid !== process.getuid?.() || (info.mode & 0o077) !== 0) {
      throw new LabError('LAB_QEMU_FAILED', `${this.place.socketDir} belongs to somebody else`, 'Remove it, then repeat.');
    }
  }

  #view(state: RunState): LabState {
    return {
      dir: this.place.dir,
      kernelRelease: state.kernelRelease,
      nodes: state.nodes.map((node) => ({
        index: node.index,
        name: node.name,
        sshHost: '127.0.0.1',
        sshPort: node.sshPort,
        user: 'ops',
        keyPath: labKey(this.place),
        hostKeySha256: node.hostKeySha256,
        dataAddress: dataAddress(node.index),
        rdmaDevice: 'rxe0',
      })),
    };
  }
}

const own = new Lab();
/** This clone's lab. */
export const up = (options: UpOptions): Promise<LabState> => own.up(options);
export const down = (): Promise<void> => own.down();
export const status = (): Promise<LabStatus> => own.status();
export const reset = (index: number): Promise<void> => own.reset(index);
export const powerOff = (index: number): Promise<void> => own.powerOff(index);
export const powerOn = (index: number): Promise<void> => own.powerOn(index);
export const fault = (index: number, name: FaultName, on: boolean, options?: { peer?: number }): Promise<void> => own.fault(index, name, on, options);
