import { duplexPair, type Duplex } from "node:stream";
import type { AgentMethod } from "./schemas.js";

/** For tests: a daemon that speaks agent/PROTOCOL.md over one end of a stream pair, with the answers that a test gives it. */
export type FakeHandler = (params: never, connection: FakeConnection) => unknown;

export class RpcFailure extends Error {
  constructor(readonly code: string, message: string, readonly next = "Look at the journal.", readonly detail: Record<string, unknown> = {}) {
    super(message);
  }
}

export class FakeConnection {
  #pending = "";
  constructor(readonly stream: Duplex, private readonly daemon: FakeDaemon) {
    stream.on("data", (chunk: Buffer) => this.#onData(chunk));
    stream.on("error", () => this.stream.destroy());
  }
  send(message: unknown): void {
    if (!this.stream.destroyed) this.stream.write(`${JSON.stringify(message)}\n`);
  }
  raw(bytes: Uint8Array | string): void {
    if (!this.stream.destroyed) this.stream.write(bytes);
  }
  runEvent(params: { run_id: string; seq: number; rank: number | null; event: Record<string, unknown>; at_ms?: number }): void {
    this.send({ jsonrpc: "2.0", method: "run.event", params: { at_ms: Date.now(), ...params } });
  }
  #onData(chunk: Buffer): void {
    this.#pending += chunk.toString("utf8");
    for (let at = this.#pending.indexOf("\n"); at >= 0; at = this.#pending.indexOf("\n")) {
      const line = this.#pending.slice(0, at);
      this.#pending = this.#pending.slice(at + 1);
      void this.#answer(JSON.parse(line) as { id: number; method: AgentMethod; params: never });
    }
  }
  async #answer(request: { id: number; method: AgentMethod; params: never }): Promise<void> {
    this.daemon.calls.push({ method: request.method, params: request.params });
    const handler = this.daemon.handlers[request.method];
    try {
      if (!handler) throw new RpcFailure("A102", `there is no method ${request.method}`);
      const result = await handler(request.params, this);
      if (result !== NO_ANSWER) this.send({ jsonrpc: "2.0", id: request.id, result });
    } catch (error) {
      if (!(error instanceof RpcFailure)) throw error;
      this.send({ jsonrpc: "2.0", id: request.id, error: { code: -32000, message: error.message, data: { code: error.code, next: error.next, detail: error.detail } } });
    }
  }
}

/** A handler that gives this never answers. */
export const NO_ANSWER = Symbol("no answer");

export const FAKE_HELLO = {
  protocol: 1, version: "0.1.0", git: "abcdef0", hostname: "n1", machine_id: "00", boot_id: "00", pid: 100, uid: 0,
  started_at_ms: 1_700_000_000_000, uptime_s: 5, rss_kib: 2048, features: [] as string[],
};

export class FakeDaemon {
  readonly calls: { method: AgentMethod; params: Record<string, unknown> }[] = [];
  readonly connections: FakeConnection[] = [];
  handlers: Partial<Record<AgentMethod, FakeHandler>> = { hello: () => FAKE_HELLO };

  /** Dials: gives the client's end of a new connection. */
  connect(): Duplex {
    const [ours, theirs] = duplexPair();
    // Node 20 does not tell the other side by itself.
    ours.on("close", () => theirs.destroy());
    theirs.on("close", () => ours.destroy());
    this.connections.push(new FakeConnection(ours, this));
    return theirs;
  }
  /** As when the process dies: every connection ends at once. */
  kill(): void {
    for (const connection of this.connections.splice(0)) connection.stream.destroy();
  }
  callsOf(method: AgentMethod): Record<string, unknown>[] {
    return this.calls.filter((call) => call.method === method).map((call) => call.params);
  }
}

export interface FrameInput {
  node?: number; intervalMs?: number; sequence?: number; monotonicNs?: bigint; realtimeNs?: bigint; lostOps?: number; rankCount?: number;
  rssKib?: number; cpuPermille?: number; memAvailableBytes?: number;
  nics?: { name: string; kind?: number; port?: number; state?: number; speedMbps?: number; tx: number; rx: number; errors?: number; drops?: number }[];
  flows?: { commId?: number; rank: number; peerRank: number; peerNode: number; transport: number; queueDepth?: number; tx: number; rx: number; errors?: number }[];
}

/** A telemetry frame by native/include/stepccl/telemetry.h section 3, version 1. */
export function encodeFrame(input: FrameInput): Buffer {
  const nics = input.nics ?? [];
  const flows = input.flows ?? [];
  const bytes = Buffer.alloc(80 + 72 * nics.length + 64 * flows.length);
  bytes.write("SCF1", 0, "latin1");
  bytes.writeUInt32LE(bytes.length, 4);
  bytes.writeUInt16LE(1, 8);
  bytes.writeUInt16LE(input.node ?? 0xffff, 10);
  bytes.writeUInt32LE(input.intervalMs ?? 500, 12);
  bytes.writeBigUInt64LE(BigInt(input.sequence ?? 1), 16);
  bytes.writeBigUInt64LE(input.monotonicNs ?? 0n, 24);
  bytes.writeBigUInt64LE(input.realtimeNs ?? 0n, 32);
  bytes.writeBigUInt64LE(BigInt(input.lostOps ?? 0), 40);
  [nics.length, flows.length, 0, input.rankCount ?? 0, input.rssKib ?? 2000, input.cpuPermille ?? 0].forEach((v, i) => bytes.writeUInt32LE(v, 48 + 4 * i));
  bytes.writeBigUInt64LE(BigInt(input.memAvailableBytes ?? 0), 72);
  let at = 80;
  for (const nic of nics) {
    bytes.write(nic.name.slice(0, 15), at, "latin1");
    bytes.writeUInt8(nic.kind ?? 1, at + 16);
    bytes.writeUInt8(nic.port ?? 0, at + 17);
    bytes.writeUInt8(nic.state ?? 4, at + 18);
    bytes.writeUInt32LE(nic.speedMbps ?? 0, at + 20);
    [nic.tx, nic.rx, 0, 0, nic.errors ?? 0, nic.drops ?? 0].forEach((v, i) => bytes.writeBigUInt64LE(BigInt(v), at + 24 + 8 * i));
    at += 72;
  }
  for (const flow of flows) {
    bytes.writeBigUInt64LE(BigInt(flow.commId ?? 1), at);
    bytes.writeUInt32LE(flow.rank, at + 8);
    bytes.writeUInt32LE(flow.peerRank, at + 12);
    bytes.writeUInt16LE(flow.peerNode, at + 16);
    bytes.writeUInt8(flow.transport, at + 18);
    bytes.writeUInt32LE(flow.queueDepth ?? 0, at + 20);
    [flow.tx, flow.rx, 0, 0, flow.errors ?? 0].forEach((v, i) => bytes.writeBigUInt64LE(BigInt(v), at + 24 + 8 * i));
    at += 64;
  }
  return bytes;
}

export interface BoardInput { pid: number; rank: number; commId: bigint; monotonicNs: bigint; job: string; heldBytes: number; usedBytes: number; ranges: { offset: number; bytes: number; kind: number }[]; settings: { wanted: number; inForce: number; state: number; reason: number }[] }
const GPU_SETTINGS = 11;
const GPU_RANGES = 256;

/** A GPU board by native/include/stepccl/telemetry.h section 5, version 1; what is not named is 0. */
export function encodeBoard(input: BoardInput): Buffer {
  const bytes = Buffer.alloc(480 + 24 * (GPU_SETTINGS + GPU_RANGES));
  const u32 = (at: number, ...values: number[]): void => values.forEach((v, i) => bytes.writeUInt32LE(v, at + 4 * i));
  const u64 = (at: number, ...values: (number | bigint)[]): void => values.forEach((v, i) => bytes.writeBigUInt64LE(BigInt(v), at + 8 * i));
  bytes.write("SCG1", 0, "latin1");
  u32(4, 1, bytes.length, 2, input.pid, input.rank, 2);
  u64(32, input.commId, input.monotonicNs, 7);
  bytes.write(input.job, 56, 63, "latin1");
  bytes.write("GPU-0", 120, "latin1");
  u32(296, 1, 132);
  u32(328, 500, 250);
  u64(360, 1 << 30, input.heldBytes, input.usedBytes);
  u32(472, input.ranges.length, 0);
  input.settings.forEach((row, i) => {
    u64(480 + 24 * i, row.wanted, row.inForce);
    bytes.writeUInt8(row.state, 496 + 24 * i);
    bytes.writeUInt8(row.reason, 497 + 24 * i);
  });
  input.ranges.forEach((range, i) => {
    const at = 480 + 24 * (GPU_SETTINGS + i);
    u64(at, range.offset, range.bytes);
    bytes.writeUInt8(range.kind, at + 16);
  });
  return bytes;
}
