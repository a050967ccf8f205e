import { z } from "zod";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";

export const Collective = z.enum(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather", "all_to_all", "send_recv", "barrier"]);
export type Collective = z.infer<typeof Collective>;
/** What a collective takes: not every field of a run means something to each. `sized` = it moves bytes (a barrier does not). */
export const COLLECTIVE_TAKES: Readonly<Record<Collective, { root: boolean; redop: boolean; sized: boolean }>> = {
  all_reduce: { root: false, redop: true, sized: true },
  all_gather: { root: false, redop: false, sized: true },
  reduce_scatter: { root: false, redop: true, sized: true },
  broadcast: { root: true, redop: false, sized: true },
  reduce: { root: true, redop: true, sized: true },
  scatter: { root: true, redop: false, sized: true },
  gather: { root: true, redop: false, sized: true },
  all_to_all: { root: false, redop: false, sized: true },
  send_recv: { root: false, redop: false, sized: true },
  barrier: { root: false, redop: false, sized: false },
};
export const DataType = z.enum(["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]);
export const RedOp = z.enum(["sum", "prod", "min", "max", "avg"]);
export const RunTransport = z.enum(["auto", "shm", "tcp", "rdma", "dma"]);

const MAX_BYTES = 64 * 1024 ** 3;
/** What to run; the fields are those of nccl-tests. */
export const RunSpec = z.strictObject({
  collective: Collective,
  nodeIds: z.array(NodeId).min(1).max(1024).refine((ids) => new Set(ids).size === ids.length, "a node is named twice"),
  ranksPerNode: z.number().int().min(1).max(64).default(1),
  transport: RunTransport.default("auto"),
  algorithm: z.string().regex(/^[a-z_]{1,32}$/).default("auto"),
  datatype: DataType.default("float32"),
  redop: RedOp.default("sum"),
  /** The rank that the data starts from or ends at, for the collectives that have one. */
  root: z.number().int().min(0).max(65_535).default(0),
  minBytes: z.number().int().min(1).max(MAX_BYTES).default(8),
  maxBytes: z.number().int().min(1).max(MAX_BYTES).default(16 * 1024 ** 2),
  stepFactor: z.number().int().min(2).max(1024).default(2),
  iterations: z.number().int().min(1).max(100_000).default(20),
  warmup: z.number().int().min(0).max(10_000).default(5),
  check: z.boolean().default(true),
  timeoutMs: z.number().int().min(100).max(3_600_000).default(30_000),
}).refine((s) => s.minBytes <= s.maxBytes, { message: "minBytes is above maxBytes", path: ["minBytes"] })
  .refine((s) => !COLLECTIVE_TAKES[s.collective].root || s.root < s.nodeIds.length * s.ranksPerNode, { message: "root is no rank of the run", path: ["root"] });
export type RunSpec = z.infer<typeof RunSpec>;
export type RunSpecInput = z.input<typeof RunSpec>;

export const Timing = z.object({ timeUs: z.number(), algbwGBps: z.number(), busbwGBps: z.number(), wrong: z.number().nullable() });
export const RunRow = z.object({
  bytes: z.number(), count: z.number(), datatype: z.string(), redop: z.string(), root: z.number(), algorithm: z.string(), transport: z.string(), iterations: z.number(),
  outOfPlace: Timing,
  /** null for a collective that has no form in place. */
  inPlace: Timing.nullable(),
  /** What the alpha-beta model expects, from this run's own fit or the link's calibration; null before a fit exists. */
  expectedTimeUs: z.number().nullable(),
});
export type RunRow = z.infer<typeof RunRow>;

export const RunId = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/);
export const RunView = z.object({
  id: RunId,
  spec: RunSpec,
  state: z.enum(["starting", "running", "succeeded", "failed", "stopped"]),
  startedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  ranks: z.array(z.object({ rank: z.number(), nodeId: NodeId, state: z.enum(["starting", "running", "ended", "failed"]), error: ErrorView.nullable() })),
  rows: z.array(RunRow),
  /** Fit of T = alpha·steps + beta·bytes over the rows; see native/README.md. */
  model: z.object({ alphaUs: z.number(), betaUsPerByte: z.number(), source: z.string() }).nullable(),
  wrongTotal: z.number().nullable(),
  avgBusbwGBps: z.number().nullable(),
  /** Of the data between nodes; absent until a rank has told. */
  encryption: z.enum(["off", "tls"]).optional(),
  /** The first cause: which rank, on which node. */
  error: ErrorView.nullable(),
});
export type RunView = z.infer<typeof RunView>;
