import { z } from "zod";
import { EvidenceView } from "./diagnosis.js";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";
import { Words } from "./words.js";

/** `verbs`: ibv_rc_pingpong. The others: StepCCL's own ping, two ranks over that transport. */
export const PairTestKind = z.enum(["verbs", "rdma", "tcp"]);
export type PairTestKind = z.infer<typeof PairTestKind>;

export const PairResult = z.object({
  from: NodeId,
  to: NodeId,
  kind: PairTestKind,
  state: z.enum(["pending", "running", "ok", "failed", "skipped", "cancelled"]),
  /** Time of one way and back, divided by two. */
  latencyUs: z.number().nullable(),
  bandwidthGBps: z.number().nullable(),
  /** Where it failed: at one node before a byte went between them, or between the two. */
  failed: z.enum(["from", "to", "between"]).nullable(),
  text: Words.nullable(),
  evidence: z.array(EvidenceView),
  error: ErrorView.nullable(),
  endedAtMs: z.number().nullable(),
});
export type PairResult = z.infer<typeof PairResult>;

export const PairTestId = z.string().regex(/^[a-z0-9-]{1,60}$/);
export const PairTestView = z.object({
  id: PairTestId,
  nodeIds: z.array(NodeId),
  kinds: z.array(PairTestKind),
  sampling: z.enum(["all", "ring", "random"]),
  state: z.enum(["running", "done", "cancelled", "failed"]),
  startedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  results: z.array(PairResult),
  /** Nodes that stand in most of the failed pairs, and are therefore the likelier half. */
  suspects: z.array(z.object({ nodeId: NodeId, failed: z.number(), of: z.number() })),
  error: ErrorView.nullable(),
});
export type PairTestView = z.infer<typeof PairTestView>;

export const PAIRS_METHODS = {
  /** `all`: every ordered pair; `ring`: each with the next; `random`: `maxPairs` of them, each node at least once where that is enough. H301, H607. */
  "pairs.start": {
    params: z.strictObject({
      nodeIds: z.array(NodeId).min(2).max(1024).refine((ids) => new Set(ids).size === ids.length, "a node is named twice"),
      kinds: z.array(PairTestKind).min(1).max(3),
      sampling: z.enum(["all", "ring", "random"]).default("all"),
      maxPairs: z.number().int().min(1).max(2000).default(256),
    }),
    result: PairTestView,
  },
  "pairs.cancel": { params: z.strictObject({ pairTestId: PairTestId }), result: z.object({}) },
  "pairs.list": { params: z.strictObject({}), result: z.array(PairTestView) },
} as const;
