import { createHash } from "node:crypto";
import { isIP } from "node:net";
import type { CannotTellView, FindingView, Verdict, Words } from "../contract/index.js";
import { orderOfBlame } from "./blame.js";
import { ruleOf, RULES } from "./rules/index.js";
import { Scan } from "./scan.js";
import type { Evidence, Group, InputKind, Text } from "./types.js";
import { WATCHERS } from "./watch/index.js";

/** One source as given: the bytes of a file, or what a collector read. */
export interface Source {
  name: string;
  data: Uint8Array | string | Iterable<Uint8Array | string>;
  /** The node that it comes from, where several are mixed. */
  host?: string | null;
}

export interface Analysis {
  verdict: Verdict;
  /** The order of blame: roots, then what follows from them, then notes. */
  findings: FindingView[];
  cannotTell: CannotTellView[];
  inputs: InputKind[];
  lines: number;
  records: number;
  droppedChars: number;
}

/** More devices than this with the same fault are one event, told once. */
const DEVICES_APART = 4;

export function analyse(sources: Iterable<Source>): Analysis {
  const scan = new Scan();
  for (const source of sources) {
    const data = source.data;
    scan.read(source.name, typeof data === "string" || data instanceof Uint8Array ? [data] : data, source.host ?? null);
  }
  return conclude(scan);
}

export async function analyseStreams(sources: Iterable<{ name: string; host?: string | null; data: AsyncIterable<Uint8Array | string> }>): Promise<Analysis> {
  const scan = new Scan();
  for (const source of sources) await scan.readStream(source.name, source.data, source.host ?? null);
  return conclude(scan);
}

/** Judges what a scan has read. `extra` raises findings from values that are no log, such as other members' facts. */
export function conclude(scan: Scan, extra: (scan: Scan) => void = () => undefined): Analysis {
  for (const watcher of WATCHERS) watcher.end?.(scan);
  scan.settleSuppressed();
  extra(scan);
  mergeDevices(scan);
  let groups = orderOfBlame(scan);
  const told = groups.filter((g) => g.severity !== "info");
  let verdict: Verdict;
  if (told.some((g) => isCause(g))) verdict = "cause_found";
  else if (told.length > 0) verdict = "only_consequences";
  else if (scan.unexplainedCount > 0 && (groups.length === 0 || scan.plainFailures > 0)) verdict = "not_in_this_log";
  else verdict = groups.length > 0 ? "harmless" : scan.records > 0 ? "healthy" : "nothing_read";
  if (verdict === "healthy") { scan.raise("none.healthy", { lines: [] }).against.push(...scan.complaints); groups = orderOfBlame(scan); }
  if (verdict === "not_in_this_log") {
    const g = scan.raise("none.cause_not_in_log", { count: scan.unexplainedCount });
    for (const u of scan.unexplained.slice(0, 4)) g.evidence.push({ source: u.source, line: u.line, lineNumber: u.lineNumber, meaning: null });
    groups = orderOfBlame(scan);
  }
  if (verdict === "only_consequences") for (const g of told) if (g.consequenceOf === null) g.checked.push(["The cause is not in what was read: it lies before this excerpt, or in another rank's log.", "原因不在所读内容中：在此摘录之前，或在其他进程的日志中。"]);
  scan.contrary.attach(groups);
  const findings = groups.map(render);
  return { verdict, findings, cannotTell: cannotTell(scan), inputs: [...scan.seen], lines: scan.lines, records: scan.records, droppedChars: scan.droppedChars };
}

function isCause(g: Group): boolean {
  const role = ruleOf(g.class).role ?? "cause";
  return role === "cause" || role === "note";
}

function mergeDevices(scan: Scan): void {
  const byClass = new Map<string, Group[]>();
  for (const g of scan.groups.values()) { const key = `${g.class}|${g.host ?? ""}`; byClass.set(key, [...(byClass.get(key) ?? []), g]); }
  for (const groups of byClass.values()) {
    if (groups.length <= DEVICES_APART) continue;
    const [head, ...rest] = groups as [Group, ...Group[]];
    for (const g of rest) {
      head.count += g.count;
      head.suppressed += g.suppressed;
      for (const d of g.devices) if (head.devices.size < 64) head.devices.add(d);
      if (head.evidence.length < 6 && g.evidence[0]) head.evidence.push(g.evidence[0]);
      if (g.first && (!head.first || g.first.time < head.first.time)) head.first = g.first;
      if (g.last && (!head.last || g.last.time > head.last.time)) head.last = g.last;
      for (const [key, value] of scan.groups) if (value === g) scan.groups.delete(key);
    }
    head.device = null;
  }
}

function cannotTell(scan: Scan): CannotTellView[] {
  const found = new Set([...scan.groups.values()].map((g) => g.class));
  return RULES.filter((r) => r.role !== "note" && r.role !== "pointer" && !found.has(r.id) && !r.needs.some((n) => scan.seen.has(n))).map((r) => ({ class: r.id, title: words(r.title), missing: [...r.needs] }));
}

export const words = ([en, zh]: Text): Words => ({ en, zh });
const shownEvidence = (e: Evidence): FindingView["evidence"][number] => ({ source: e.source, line: e.line, lineNumber: e.lineNumber, meaning: e.meaning ? words(e.meaning) : null });

/** The same for the same fault in the next diagnosis. What a node said is in it only as a digest. */
export function findingId(g: Pick<Group, "class" | "host" | "device">): string {
  return g.host === null && g.device === null ? g.class : `${g.class}~${createHash("sha256").update(`${g.host ?? ""}\u0000${g.device ?? ""}`).digest("hex").slice(0, 10)}`;
}

/** Values for the commands' placeholders; a placeholder without a value stays, so that nobody runs a wrong command. */
function fill(command: string, g: Group): string {
  // A peer's address stands for the way to it: no command takes it for a device.
  const device = [...g.devices, g.device].find((d) => d !== null && isIP(d) === 0);
  return command.replace(/\{(\w+)\}/g, (whole, key: string) => {
    const value = key === "device" ? device : key === "gpu" ? (g.params["gpu"] ?? device) : g.params[key];
    if (value === undefined || value === null) return key.toUpperCase();
    // What a node said goes into a command only where it is a plain word.
    return /^[\w./:@%+-]{1,128}$/.test(String(value)) ? String(value) : whole.slice(1, -1).toUpperCase();
  });
}

const seen = (m: Group["first"]): FindingView["first"] => m && { ...m, atMs: m.clock === "wall" ? Math.round(m.time * 1000) : null };

/** A group as the contract has it. Only the console's own mends can be applied: those get their ids by the node that they are for. */
export function render(g: Group): FindingView {
  const rule = ruleOf(g.class);
  const params: Record<string, string | number> = {};
  for (const [k, v] of Object.entries(g.params)) if (k !== "strong" && k !== "proved" && k !== "weak") params[k] = v;
  return {
    id: findingId(g), class: g.class, code: rule.code, severity: g.severity, title: words(rule.title), explanation: words(rule.what), host: g.host, devices: [...g.devices], first: seen(g.first), last: seen(g.last),
    evidence: g.evidence.map(shownEvidence), against: g.against.map(shownEvidence), checked: [...g.checked, ...(rule.checks ?? [])].map(words), causes: (rule.causes ?? []).map(words),
    mend: (rule.mend ?? []).map(([command, risk, en, zh]) => ({ id: null, command: fill(command, g), explanation: { en, zh }, risk })),
    count: g.count + g.suppressed, params, consequenceOf: g.consequenceOf === null ? null : findingId(g.consequenceOf),
    candidates: (rule.candidates ?? []).map((c) => ({ class: c, title: words(ruleOf(c).title) })), retest: [],
  };
}
