import { z } from "zod";
import { EvidenceView, FaultClass, MomentView, Risk, Severity } from "./diagnosis.js";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";
import { Words } from "./words.js";

const Id = z.string().regex(/^[a-z0-9-]{1,60}$/);
export const OfferId = Id;
export const MendRunId = Id;

/** What the console would run, exactly. Only an offer can be applied, once, and only until `expiresAtMs`. */
export const MendOffer = z.object({
  offerId: OfferId,
  nodeId: NodeId,
  findingId: z.string(),
  class: FaultClass,
  /** Run in this order, as root, each by itself; the first that fails ends it. */
  commands: z.array(z.object({ mendId: z.string(), command: z.string(), explanation: Words, risk: Risk })),
  /** The worst of its commands. */
  risk: Risk,
  /** Null unless the risk is destructive: then what the person has to type, the node's name. */
  secondConsent: z.string().nullable(),
  /** What is read again afterwards. */
  retest: z.array(z.string()),
  expiresAtMs: z.number(),
});
export type MendOffer = z.infer<typeof MendOffer>;

/** A finding as it stood at one moment, for the comparison. */
export const Reading = z.object({ class: FaultClass, severity: Severity, title: Words, evidence: z.array(EvidenceView) });
export const MendSnapshot = z.object({
  atMs: z.number(),
  /** The finding that is mended; null = it is not there (any more). */
  finding: Reading.nullable(),
  /** All others of the node above "info". */
  others: z.array(Reading),
  /** What the sources of the finding say, shortened to what matters. Hostile text. */
  readings: z.array(z.object({ source: z.string(), text: z.string() })),
});

export const MendRunView = z.object({
  id: MendRunId,
  nodeId: NodeId,
  findingId: z.string(),
  class: FaultClass,
  title: Words,
  startedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  /** `mended`: the re-test does not find it any more. `not_mended`: it does. `unknown`: the re-test could not tell. */
  state: z.enum(["applying", "retesting", "mended", "not_mended", "unknown", "failed", "cancelled"]),
  steps: z.array(z.object({
    mendId: z.string(), command: z.string(), explanation: Words, risk: Risk,
    state: z.enum(["pending", "running", "done", "failed", "skipped"]),
    startedAtMs: z.number().nullable(), endedAtMs: z.number().nullable(), status: z.number().nullable(),
    /** The end of its output; hostile text, bounded. */
    output: z.string(),
  })),
  before: MendSnapshot,
  after: MendSnapshot.nullable(),
  /** What the log said of the fault up to here is history, when the fault is gone: read on the node as the last command had ended. Null where no log shows it. */
  historyUntil: MomentView.extend({ bootId: z.string() }).nullable(),
  error: ErrorView.nullable(),
});
export type MendRunView = z.infer<typeof MendRunView>;

export const MENDS_METHODS = {
  /** Asks what would be run for these mends of a finding of the node's newest diagnosis. Runs nothing. H601, H602. */
  "mends.offer": { params: z.strictObject({ nodeId: NodeId, findingId: z.string().max(200), mendIds: z.array(z.string().max(80)).min(1).max(8) }), result: MendOffer },
  /**
   * Consent: `commands` are those of the offer, word for word. A destructive one also takes `secondConsent`. Runs, re-tests, compares;
   * follow it by the stream `mends`. H603 (no such offer, or expired), H604 (not the commands that were offered), H605 (second consent).
   */
  "mends.apply": { params: z.strictObject({ offerId: OfferId, commands: z.array(z.string().max(4096)).min(1).max(8), secondConsent: z.string().max(255).optional() }), result: MendRunView },
  /** Ends the running command; the re-test is still made. */
  "mends.cancel": { params: z.strictObject({ mendRunId: MendRunId }), result: z.object({}) },
  "mends.list": { params: z.strictObject({}), result: z.array(MendRunView) },
} as const;
