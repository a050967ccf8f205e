import { z } from "zod";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";
import { Words } from "./words.js";

export const Severity = z.enum(["critical", "high", "medium", "low", "info"]);
export type Severity = z.infer<typeof Severity>;

/** Stable class name of the catalogue, such as "driver.not_loaded". */
export const FaultClass = z.string().regex(/^[a-z0-9_]+(\.[a-z0-9_]+)+$/);

/** What was read on the node, or why it was not: a failed read is "unknown", never "fine". */
export const SourceView = z.object({
  id: z.string(),
  command: z.string(),
  state: z.enum(["ok", "missing", "not_permitted", "timeout", "failed"]),
  collectedAtMs: z.number(),
  durationMs: z.number(),
  /** Hostile text: the end of what was read. `diagnose.source` gives all; `truncatedBytes` says how much is left out at the start. */
  text: z.string(),
  truncatedBytes: z.number(),
  error: ErrorView.nullable(),
});
export type SourceView = z.infer<typeof SourceView>;

/** Longest piece of a source in one answer, in UTF-16 units: with every one of them escaped it still fits into a message. */
export const SOURCE_PIECE_CHARS = 128 * 1024;
export const SourcePiece = z.object({ text: z.string(), fromChar: z.number(), totalChars: z.number() });
export const SOURCE_METHODS = {
  /** What was read last of one source, whole, piece by piece; kept until the console ends. H301, H609. */
  "diagnose.source": { params: z.strictObject({ nodeId: NodeId, sourceId: z.string().max(60), fromChar: z.number().int().min(0).default(0) }), result: SourcePiece },
} as const;

/** A line as it was read, and what its numbers stand for. */
export const EvidenceView = z.object({ source: z.string(), line: z.string(), lineNumber: z.number().nullable(), meaning: Words.nullable() });
export type EvidenceView = z.infer<typeof EvidenceView>;

export const Risk = z.enum(["none", "restarts_service", "interrupts_jobs", "destructive"]);
export type Risk = z.infer<typeof Risk>;
/** What consent a risk takes: `destructive` takes a second one. */
export function riskClassOf(risk: Risk): "safe" | "disruptive" | "destructive" {
  return risk === "none" ? "safe" : risk === "destructive" ? "destructive" : "disruptive";
}

export const MendView = z.object({
  /** By which the console applies it (`mends.offer`); null = only shown: a command to look with, one for another place, or one with a blank to fill. */
  id: z.string().nullable(),
  command: z.string(),
  explanation: Words,
  risk: Risk,
});
export type MendView = z.infer<typeof MendView>;

/** Seconds on the source's own clock: "wall" = since 1970, "uptime" = since the node's start, other names: of that source alone. */
export const MomentView = z.object({ time: z.number(), clock: z.string() });
/** With the console's own time of it, in ms; null where the two clocks are not tied. */
export const SeenView = MomentView.extend({ atMs: z.number().nullable() });

export const FindingView = z.object({
  /** Unique within its diagnosis, and the same in the next one while the fault stands. */
  id: z.string(),
  class: FaultClass,
  /** F001 to F157 of the catalogue, S… for StepCCL's own. */
  code: z.string(),
  severity: Severity,
  title: Words,
  explanation: Words,
  /** As the log names it; null = the node itself, or not known. */
  host: z.string().nullable(),
  devices: z.array(z.string()),
  first: SeenView.nullable(),
  last: SeenView.nullable(),
  count: z.number(),
  evidence: z.array(EvidenceView),
  /** What speaks against it, quoted. */
  against: z.array(EvidenceView),
  /** What was looked at to exclude other causes. */
  checked: z.array(Words),
  /** Likely causes of this class, the likeliest first. */
  causes: z.array(Words),
  /** Id of the finding that explains this one: the page folds it under that. Null for a root. */
  consequenceOf: z.string().nullable(),
  /** Classes to look at next when this one alone does not explain the symptom. */
  candidates: z.array(z.object({ class: FaultClass, title: Words })),
  mend: z.array(MendView),
  /** Sources that are read again after a mend to see whether it helped. */
  retest: z.array(z.string()),
  params: z.record(z.string(), z.union([z.string(), z.number()])),
});
export type FindingView = z.infer<typeof FindingView>;

/**
 * cause_found: a root stands first. only_consequences: what was found follows from something outside what was read.
 * not_in_this_log: something failed and fits no class. harmless: only notes. healthy: nothing. nothing_read: no usable input.
 */
export const Verdict = z.enum(["cause_found", "only_consequences", "not_in_this_log", "harmless", "healthy", "nothing_read"]);
export type Verdict = z.infer<typeof Verdict>;

/** Checks that could not be made, with the inputs that were missing. */
export const CannotTellView = z.object({ class: FaultClass, title: Words, missing: z.array(z.string()) });
export type CannotTellView = z.infer<typeof CannotTellView>;

export const DiagnosisView = z.object({
  nodeId: NodeId,
  startedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  state: z.enum(["running", "done", "failed"]),
  /** Null until something was judged. */
  verdict: Verdict.nullable(),
  sources: z.array(SourceView),
  /** The order of blame: roots, then what follows from them, then notes (severity "info"). */
  findings: z.array(FindingView),
  cannotTell: z.array(CannotTellView),
  error: ErrorView.nullable(),
});
export type DiagnosisView = z.infer<typeof DiagnosisView>;

/** Pasted text, or a file that was sent by `uploads.begin` and `uploads.append`. */
export const InputFile = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("text"), name: z.string().min(1).max(255), text: z.string().max(700_000) }),
  z.strictObject({ kind: z.literal("upload"), uploadId: z.string().regex(/^[a-z0-9-]{1,60}$/) }),
]);
export type InputFile = z.infer<typeof InputFile>;
export const InputFiles = z.array(InputFile).min(1).max(1000);

/** What files of a machine that the console cannot reach say. */
export const FileDiagnosisView = z.object({
  verdict: Verdict,
  findings: z.array(FindingView),
  cannotTell: z.array(CannotTellView),
  /** Kinds of input that were recognised, such as "kernel_log". */
  inputs: z.array(z.string()),
  files: z.array(z.object({ name: z.string(), sizeBytes: z.number() })),
  lines: z.number(),
  /** Characters that were left out of lines longer than 8 KiB. */
  droppedChars: z.number(),
  durationMs: z.number(),
});
export type FileDiagnosisView = z.infer<typeof FileDiagnosisView>;
