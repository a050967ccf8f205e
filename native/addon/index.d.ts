// SPDX-License-Identifier: Apache-2.0

/** Totals of network interfaces and RDMA ports; element i of every column belongs to the same one. */
export interface NicColumns {
  /** Printable ASCII; other bytes are replaced by `?`. */
  readonly name: string[];
  /** 1 netdev, 2 RDMA port. */
  readonly kind: Uint8Array;
  readonly port: Uint8Array;
  /** 0 unknown, 1 down, 2 init, 3 armed, 4 active. */
  readonly state: Uint8Array;
  /** 0: the kernel doesn't say. */
  readonly speedMbps: Uint32Array;
  readonly txBytes: Float64Array;
  readonly rxBytes: Float64Array;
  readonly txPackets: Float64Array;
  readonly rxPackets: Float64Array;
  readonly errors: Float64Array;
  readonly drops: Float64Array;
}

/** Totals between a rank of this node and a peer, since the rank's start. */
export interface FlowColumns {
  /** 16 hexadecimal digits. */
  readonly commId: string[];
  readonly rank: Uint32Array;
  readonly peerRank: Uint32Array;
  /** The cluster's number of the peer's node; 65535 = unknown. */
  readonly peerNode: Uint16Array;
  /** 0 none, 1 shm, 2 tcp, 3 rdma, 4 dma, 5 gpu_peer. */
  readonly transport: Uint8Array;
  readonly queueDepth: Uint32Array;
  readonly txBytes: Float64Array;
  readonly rxBytes: Float64Array;
  readonly txOps: Float64Array;
  readonly rxOps: Float64Array;
  readonly errors: Float64Array;
}

/** Records of operations: one at the start and one at the end of each. */
export interface OpColumns {
  readonly commId: string[];
  /** From 1, by communicator. */
  readonly sequence: Float64Array;
  /** CLOCK_MONOTONIC of the node. */
  readonly beginNs: Float64Array;
  /** 0 while it runs. */
  readonly endNs: Float64Array;
  readonly bytes: Float64Array;
  readonly smNs: Float64Array;
  readonly rank: Uint32Array;
  readonly worldSize: Uint32Array;
  /** 1 started, 2 completed, 3 failed. */
  readonly state: Uint8Array;
  readonly collective: Uint8Array;
  readonly algorithm: Uint8Array;
  readonly transport: Uint8Array;
  readonly datatype: Uint8Array;
  readonly redop: Uint8Array;
  /** A runtime code as a number: 203 is R203; 0 = none. */
  readonly error: Uint16Array;
}

/**
 * A frame of the daemon. 64-bit totals and times are doubles: exact below 2^53 (9 PB, 104 days in ns); the two clock
 * readings of the header are bigints, since wall-clock ns are above that.
 */
export interface TelemetryFrame {
  /** The cluster's number of the node, null where the daemon doesn't know it. */
  readonly node: number | null;
  readonly intervalMs: number;
  readonly sequence: number;
  readonly monotonicNs: bigint;
  readonly realtimeNs: bigint;
  readonly lostOps: number;
  readonly rankCount: number;
  readonly daemonRssKib: number;
  readonly cpuPermille: number;
  readonly memAvailableBytes: number;
  readonly nics: NicColumns;
  readonly flows: FlowColumns;
  readonly ops: OpColumns;
}

export type TelemetryFrameReason = 'truncated' | 'bad_magic' | 'bad_version' | 'too_long' | 'bad_length' | 'bad_value';

/** What decodeTelemetryFrame throws for bytes that are no frame. */
export interface TelemetryFrameError extends Error {
  readonly code: 'TELEMETRY_FRAME_INVALID';
  readonly reason: TelemetryFrameReason;
}

/**
 * Decodes exactly one frame that fills `bytes`. Everything is copied.
 * @throws TelemetryFrameError for hostile or damaged bytes; TypeError for anything but a Uint8Array.
 */
export function decodeTelemetryFrame(bytes: Uint8Array): TelemetryFrame;

export type Collective =
  | 'all_reduce' | 'all_gather' | 'reduce_scatter' | 'broadcast' | 'reduce'
  | 'scatter' | 'gather' | 'all_to_all' | 'send_recv' | 'barrier';

export type Algorithm =
  | 'auto' | 'ring' | 'tree' | 'double_binary_tree' | 'recursive_doubling' | 'halving_doubling' | 'direct_one_shot'
  | 'direct_two_shot' | 'hierarchical' | 'pairwise' | 'bruck' | 'binomial' | 'chain' | 'dissemination';

export interface ModelProblem {
  readonly collective: Collective;
  readonly algorithm: Algorithm;
  /** 1 to 65536. */
  readonly worldSize: number;
}

export interface ExpectedTimeOptions extends ModelProblem {
  /** Of the full array. */
  readonly bytes: number;
  /** From posting a message to its first byte at the peer. */
  readonly alphaUs: number;
  readonly betaUsPerByte: number;
  /** Of reducing; default 0. */
  readonly gammaUsPerByte?: number;
}

/**
 * Predicted time in us, from a walk through the schedules that the runtime executes (Hockney's alpha-beta model,
 * full-duplex ports, messages not cut into chunks). `auto` takes the algorithm with the least predicted time.
 * @throws an Error with code UNKNOWN_NAME or UNSUPPORTED_ALGORITHM; RangeError for numbers out of range.
 */
export function expectedTimeUs(options: ExpectedTimeOptions): number;

/**
 * Least squares of relative errors over measured samples, both parameters at 0 or above; the cost of reducing is part of
 * beta. null where the samples don't determine it (fewer than two sizes, times of 0, `auto`).
 */
export function fitAlphaBeta(
  samples: readonly { readonly bytes: number; readonly timeUs: number }[],
  options: ModelProblem,
): { alphaUs: number; betaUsPerByte: number } | null;

/** Version of the runtime's sources that this addon was built from. */
export function runtimeVersion(): string;
