import type { Risk, Severity } from "../contract/index.js";

/** English first, Simplified Chinese second. */
export type Text = readonly [en: string, zh: string];
export type { Risk, Severity };

/** What kind of input a rule reads. A run without any of a rule's inputs answers "cannot tell" for that class. */
export const INPUT_KINDS = [
  "kernel_log", "system_log", "module_tools", "job_log", "perf_tool", "rdma_ports", "gid_table", "counters", "pci", "gpu", "limits",
  "device_nodes", "modules", "network", "service", "disk", "clock", "memory", "cluster",
] as const;
export type InputKind = (typeof INPUT_KINDS)[number];

export type Mend = readonly [command: string, risk: Risk, en: string, zh: string];

/** One wording of a fault in one line. Literals are lower case; blanks in them stand for any run of blanks. */
export interface Signature {
  /** One of these must occur: the prefilter. */
  any: readonly string[];
  /** All of these must occur too. */
  all?: readonly string[];
  /** None of these may occur: evidence against. */
  not?: readonly string[];
  /** Confirms and takes values out of the line by named groups; the group `dev` names the device. No nested quantifiers. */
  re?: RegExp;
  /** Severity of this wording where it differs from the class. */
  severity?: Severity;
}

/**
 * cause: may stand first. consequence: never a root while anything explains it. pointer: only says where to look.
 * note: known as harmless; shown on request.
 */
export type Role = "cause" | "consequence" | "pointer" | "note";

export interface Rule {
  id: string;
  /** Stable code, F001 to F157 by the class, S… for StepCCL's own. */
  code: string;
  severity: Severity;
  role?: Role;
  /** Any one of these inputs is enough to judge; without all of them the answer is "cannot tell". */
  needs: readonly InputKind[];
  sig?: readonly Signature[];
  /** Raised by a check over parsed values rather than, or besides, by a line. */
  checkedBy?: readonly string[];
  /** One finding for the node, whatever the number of devices. */
  perNode?: boolean;
  /** Classes to look at next when this one alone does not explain the symptom. */
  candidates?: readonly string[];
  title: Text;
  what: Text;
  causes?: readonly Text[];
  /** What excludes the next candidate. */
  checks?: readonly Text[];
  mend?: readonly Mend[];
}

export interface Evidence {
  source: string;
  line: string;
  lineNumber: number | null;
  /** What the numbers in the line mean. */
  meaning: Text | null;
}

/** One occurrence. */
export interface Hit {
  class: string;
  host: string | null;
  device: string | null;
  severity: Severity | null;
  /** Seconds on the source's own clock. */
  time: number | null;
  clock: string | null;
  count: number;
  params: Record<string, string | number>;
  evidence: Evidence;
}

/** All occurrences of one class on one device of one host. */
export interface Group {
  class: string;
  host: string | null;
  device: string | null;
  devices: Set<string>;
  severity: Severity;
  count: number;
  /** Calls that came here, whatever they counted. */
  hits: number;
  suppressed: number;
  first: { time: number; clock: string } | null;
  last: { time: number; clock: string } | null;
  evidence: Evidence[];
  params: Record<string, string | number>;
  checked: Text[];
  /** Lines that speak against it. */
  against: Evidence[];
  /** The group that explains this one. */
  consequenceOf: Group | null;
  order: number;
}
