import { Collective, COLLECTIVE_TAKES, RunSpec, type RunSpecInput } from "../../electron/contract/index.js";
import { parseSize, sizeTick } from "../shared/format.js";

/** The form as it is typed; sizes are text such as "16M". */
export interface Draft {
  collective: RunSpecInput["collective"];
  /** Null = every node that is up; else these. */
  nodeIds: ReadonlySet<string> | null;
  ranksPerNode: number | string;
  transport: NonNullable<RunSpecInput["transport"]>;
  datatype: NonNullable<RunSpecInput["datatype"]>;
  redop: NonNullable<RunSpecInput["redop"]>;
  /** A rank; of the collectives that have a root. */
  root: number;
  algorithm: string;
  minSize: string;
  maxSize: string;
  stepFactor: number | string;
  iterations: number | string;
  warmup: number | string;
  check: boolean;
  timeoutSeconds: number | string;
}

export const FIRST_DRAFT: Draft = {
  collective: "all_reduce", nodeIds: null, ranksPerNode: 1, transport: "auto", datatype: "float32", redop: "sum", root: 0, algorithm: "auto",
  minSize: "8", maxSize: "16M", stepFactor: 2, iterations: 20, warmup: 5, check: true, timeoutSeconds: 30,
};

export const OFFERED_COLLECTIVES = Collective.options;
export const OFFERED_TRANSPORTS = ["auto", "tcp", "rdma", "shm"] as const;

export type DraftProblem = "minSize" | "maxSize" | "order" | "stepFactor" | "iterations" | "warmup" | "timeout" | "ranksPerNode" | "ranks" | "noNodes" | "shmOneNode" | "root";

/** The run that the form asks for, or what is wrong with it, field by field. `up` = ids of the nodes that are up. */
export function specOf(draft: Draft, up: readonly string[]): { spec: RunSpecInput; problems: [] } | { spec: null; problems: DraftProblem[] } {
  const nodeIds = draft.nodeIds === null ? [...up] : up.filter((id) => draft.nodeIds!.has(id));
  const takes = COLLECTIVE_TAKES[draft.collective];
  // A field that the collective does not take keeps what was typed, and does not count.
  const minBytes = takes.sized ? parseSize(draft.minSize) : 8;
  const maxBytes = takes.sized ? parseSize(draft.maxSize) : 8;
  const problems: DraftProblem[] = [];
  if (minBytes === null) problems.push("minSize");
  if (maxBytes === null) problems.push("maxSize");
  if (minBytes !== null && maxBytes !== null && minBytes > maxBytes) problems.push("order");
  if (nodeIds.length === 0) problems.push("noNodes");
  else if (nodeIds.length * Number(draft.ranksPerNode) < 2) problems.push("ranks");
  if (draft.transport === "shm" && nodeIds.length > 1) problems.push("shmOneNode");
  const candidate = {
    collective: draft.collective, nodeIds, ranksPerNode: Number(draft.ranksPerNode), transport: draft.transport, datatype: draft.datatype,
    redop: takes.redop ? draft.redop : "sum" as const, root: takes.root ? draft.root : 0, algorithm: draft.algorithm,
    minBytes: minBytes ?? 8, maxBytes: maxBytes ?? Math.max(8, minBytes ?? 8), stepFactor: takes.sized ? Number(draft.stepFactor) : 2, iterations: Number(draft.iterations), warmup: Number(draft.warmup),
    check: draft.check, timeoutMs: Math.round(Number(draft.timeoutSeconds) * 1000),
  };
  const checked = RunSpec.safeParse(candidate);
  if (!checked.success) {
    const fields: Record<string, DraftProblem> = {
      minBytes: "minSize", maxBytes: "maxSize", stepFactor: "stepFactor", iterations: "iterations", warmup: "warmup", timeoutMs: "timeout", ranksPerNode: "ranksPerNode", nodeIds: "noNodes", root: "root",
    };
    for (const issue of checked.error.issues) {
      const problem = fields[String(issue.path[0])];
      // Without ranks there is no root to be right.
      if (problem === "root" && problems.length > 0) continue;
      if (problem && !problems.includes(problem) && !(problem === "minSize" && problems.includes("order"))) problems.push(problem);
    }
  }
  return problems.length === 0 ? { spec: candidate, problems: [] } : { spec: null, problems };
}

/** How many sizes a run measures: min, min*factor, ... up to max. */
export function sizeCount(minBytes: number, maxBytes: number, factor: number): number {
  if (minBytes <= 0 || factor < 2 || minBytes > maxBytes) return 0;
  let count = 0;
  for (let size = minBytes; size <= maxBytes; size *= factor) count++;
  return count;
}

/** The form filled from an earlier run, to run it again or to change one thing. */
export function draftOf(spec: RunSpec): Draft {
  return {
    collective: spec.collective, nodeIds: new Set(spec.nodeIds), ranksPerNode: spec.ranksPerNode, transport: spec.transport, datatype: spec.datatype, redop: spec.redop, root: spec.root, algorithm: spec.algorithm,
    minSize: sizeTick(spec.minBytes), maxSize: sizeTick(spec.maxBytes), stepFactor: spec.stepFactor, iterations: spec.iterations, warmup: spec.warmup, check: spec.check,
    timeoutSeconds: spec.timeoutMs / 1000,
  };
}
