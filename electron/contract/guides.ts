import { z } from "zod";
import { EvidenceView, FaultClass, FindingView } from "./diagnosis.js";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";
import { Transport } from "./topology.js";
import { Words } from "./words.js";

export const GuideId = z.enum([
  "node_wont_come_up", "dma_init_fails", "rdma_connection_fails", "job_hangs", "slow", "out_of_memory", "gpudirect_off", "ring_slow",
]);
export type GuideId = z.infer<typeof GuideId>;

export const GuideView = z.object({
  id: GuideId,
  title: Words,
  /** When to take this one, in the operator's words. */
  symptom: Words,
  /** How many nodes it looks at: one, two that do not reach each other, or all of a job. */
  takes: z.enum(["node", "pair", "nodes"]),
});
export type GuideView = z.infer<typeof GuideView>;

/** What a path element is on the topology: the ids are those of NodeView, NodeFacts and LinkView. */
export const TopologyRef = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("node"), nodeId: NodeId }),
  z.object({ kind: z.literal("gpu"), nodeId: NodeId, pci: z.string() }),
  z.object({ kind: z.literal("pcie"), nodeId: NodeId, pci: z.string() }),
  z.object({ kind: z.literal("nic"), nodeId: NodeId, name: z.string() }),
  z.object({ kind: z.literal("rdma"), nodeId: NodeId, name: z.string() }),
  z.object({ kind: z.literal("link"), from: NodeId, to: NodeId, transport: Transport }),
]);
export type TopologyRef = z.infer<typeof TopologyRef>;

export const PathElement = z.object({
  ref: TopologyRef,
  label: z.string(),
  state: z.enum(["ok", "broken", "unknown", "not_reached"]),
  /** The rule that it keeps or breaks, with the values found. */
  rule: Words,
  evidence: z.array(EvidenceView),
  class: FaultClass.nullable(),
});
/** GPU -> PCIe -> NIC -> link -> peer, in order. */
export const PathView = z.object({
  from: NodeId,
  to: NodeId.nullable(),
  elements: z.array(PathElement),
  /** Index of the first element that breaks a rule: the one to mark. Null when none does. */
  firstBroken: z.number().nullable(),
});
export type PathView = z.infer<typeof PathView>;

export const GuideStepView = z.object({
  id: z.string(),
  /** What is asked, such as "Is the driver loaded?". */
  question: Words,
  state: z.enum(["pending", "running", "ok", "fault", "cannot_tell", "skipped"]),
  nodeId: NodeId.nullable(),
  answer: Words.nullable(),
  evidence: z.array(EvidenceView),
  startedAtMs: z.number().nullable(),
  endedAtMs: z.number().nullable(),
});
export type GuideStepView = z.infer<typeof GuideStepView>;

export const GuideRunId = z.string().regex(/^[a-z0-9-]{1,60}$/);
export const GuideRunView = z.object({
  id: GuideRunId,
  guideId: GuideId,
  nodeIds: z.array(NodeId),
  state: z.enum(["running", "done", "failed", "cancelled"]),
  startedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  steps: z.array(GuideStepView),
  paths: z.array(PathView),
  /**
   * `cause_found`: `cards` hold what was found, the first first, each on its node; apply a card's mend by `mends.offer` with its node and
   * finding. `not_found`: every check that could be made is fine; `cannot_tell`: some could not be made.
   */
  conclusion: z.object({
    verdict: z.enum(["cause_found", "not_found", "cannot_tell"]),
    text: Words,
    cards: z.array(z.object({ nodeId: NodeId, finding: FindingView })),
  }).nullable(),
  error: ErrorView.nullable(),
});
export type GuideRunView = z.infer<typeof GuideRunView>;

export const GUIDES_METHODS = {
  "guides.list": { params: z.strictObject({}), result: z.array(GuideView) },
  /** Which guides fit a finding or an alert, the best first. */
  "guides.for": { params: z.strictObject({ class: z.string().max(80) }), result: z.array(GuideId) },
  /** The checks run by themselves; follow them by the stream `guides`. A pair guide takes two nodes. H301, H606. */
  "guides.start": { params: z.strictObject({ guideId: GuideId, nodeIds: z.array(NodeId).min(1).max(64) }), result: GuideRunView },
  "guides.cancel": { params: z.strictObject({ guideRunId: GuideRunId }), result: z.object({}) },
  "guides.runs": { params: z.strictObject({}), result: z.array(GuideRunView) },
} as const;
