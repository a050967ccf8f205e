import { z } from "zod";
import { InputFiles } from "./diagnosis.js";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";
import { Words } from "./words.js";

/** One operation as a rank's flight recorder has it. Times in ms since 1970. */
export const RecordedOperation = z.object({
  sequence: z.string(), collective: z.string(), datatype: z.string(), redop: z.string(), count: z.string(), root: z.number().nullable(),
  state: z.enum(["queued", "started", "completed", "failed"]), startedAtMs: z.number().nullable(), waitingFor: z.array(z.number()),
});

export const RecordedRank = z.object({
  rank: z.number(),
  nodeId: NodeId.nullable(),
  host: z.string(),
  pid: z.number().nullable(),
  /** No recorder of this rank was found. */
  missing: z.boolean(),
  /** Null where not known. */
  alive: z.boolean().nullable(),
  /** `stopped`: the process is stopped by a signal or a debugger. */
  verdict: z.enum(["waiting", "behind", "missing", "dead", "stopped", "different", "failed", "done", "running", "unknown"]),
  lastCompleted: z.string().nullable(),
  current: RecordedOperation.nullable(),
});

export const HangGroup = z.object({
  format: z.enum(["stepccl", "pytorch_nccl"]),
  job: z.string(),
  communicator: z.string(),
  worldSize: z.number(),
  /** The operation where they part. */
  sequence: z.string().nullable(),
  verdict: z.enum(["hang", "mismatch", "failed", "running", "idle", "cannot_tell"]),
  text: Words,
  /** Ranks that hold the others up, the first first. */
  culprits: z.array(z.number()),
  ranks: z.array(RecordedRank),
});

export const HangView = z.object({
  takenAtMs: z.number(),
  groups: z.array(HangGroup),
  /** What could not be read: a node without its daemon, a file that is no recording. */
  unread: z.array(z.object({ what: z.string(), error: ErrorView })),
});
export type HangView = z.infer<typeof HangView>;
export type HangGroup = z.infer<typeof HangGroup>;
export type RecordedRank = z.infer<typeof RecordedRank>;
export type RecordedOperation = z.infer<typeof RecordedOperation>;

export const HANGS_METHODS = {
  /** Reads the flight recorders of these nodes' ranks (of all nodes that are up, where none is named) and merges them. */
  "hangs.check": { params: z.strictObject({ nodeIds: z.array(NodeId).min(1).max(10_000).optional() }), result: HangView },
  /** The same from files: StepCCL's recordings, or PyTorch's NCCL flight recorder as JSON. */
  "hangs.files": { params: z.strictObject({ files: InputFiles }), result: HangView },
} as const;
