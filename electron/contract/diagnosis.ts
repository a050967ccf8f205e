import { z } from "zod";
import { ErrorView } from "./errors.js";
import { NodeId } from "./nodes.js";

export const Severity = z.enum(["critical", "high", "medium", "low", "info"]);
export type Severity = z.infer<typeof Severity>;

/** What was read on the node, or why it was not: a failed read is "unknown", never "fine". */
export const SourceView = z.object({
  id: z.string(),
  command: z.string(),
  state: z.enum(["ok", "missing", "not_permitted", "timeout", "failed"]),
  collectedAtMs: z.number(),
  durationMs: z.number(),
  /** Hostile text, bounded; `truncatedBytes` says how much was left out at the start. */
  text: z.string(),
  truncatedBytes: z.number(),
  error: ErrorView.nullable(),
});
export type SourceView = z.infer<typeof SourceView>;

export const FindingView = z.object({
  /** Stable class name of the catalogue, such as "driver.not_loaded". The page names it by `findings.<class>`. */
  class: z.string().regex(/^[a-z0-9_]+(\.[a-z0-9_]+)+$/),
  severity: Severity,
  title: z.string(),
  explanation: z.string(),
  evidence: z.array(z.object({ source: z.string(), line: z.string(), lineNumber: z.number().nullable(), meaning: z.string().nullable() })),
  /** What was looked at to exclude other causes. */
  checked: z.array(z.string()),
  mend: z.array(z.object({ command: z.string(), explanation: z.string(), risk: z.enum(["none", "restarts_service", "interrupts_jobs", "destructive"]) })),
  count: z.number(),
  params: z.record(z.string(), z.union([z.string(), z.number()])),
});
export type FindingView = z.infer<typeof FindingView>;

export const DiagnosisView = z.object({
  nodeId: NodeId,
  startedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  state: z.enum(["running", "done", "failed"]),
  sources: z.array(SourceView),
  findings: z.array(FindingView),
  /** Checks that could not be made, with the missing input. */
  cannotTell: z.array(z.object({ class: z.string(), missing: z.array(z.string()) })),
  error: ErrorView.nullable(),
});
export type DiagnosisView = z.infer<typeof DiagnosisView>;
