import { quoteLine } from "./logs/clean.js";
import { findBdf, findRdmaDevice, mayBeSame } from "./logs/device.js";
import type { LogRecord } from "./logs/normalise.js";
import { AGAINST } from "./rules/against.js";
import type { Evidence, Group } from "./types.js";

/** Lines kept for one entry; of a flood the first ones say as much as all. */
const LINES_EACH = 4;
const LINES_PER_FINDING = 3;

interface Kept { evidence: Evidence; host: string | null; device: string | null; time: number | null; clock: string | null }

/** Lines of one scan that may speak against a class, kept until it is known which classes were found. */
export class ContraryLines {
  readonly #kept: Kept[][] = AGAINST.map(() => []);

  /** `text` is the record's text with runs of blanks collapsed. */
  note(entry: number, record: LogRecord, text: string, source: string): void {
    const kept = this.#kept[entry]!;
    const { re, text: meaning } = AGAINST[entry]!;
    if (kept.length >= LINES_EACH || (re !== undefined && !re.test(text))) return;
    // Two of the entry's literals in one line.
    const last = kept.at(-1)?.evidence;
    if (last !== undefined && last.lineNumber === record.line && last.source === source) return;
    kept.push({ evidence: { source, line: quoteLine(record.raw), lineNumber: record.line, meaning }, host: record.host, device: findBdf(text) ?? findRdmaDevice(text), time: record.time, clock: record.clock });
  }

  /** Puts the lines on the groups that they speak against. A line that proves a finding does not speak against it. */
  attach(groups: Iterable<Group>): void {
    const byClass = new Map<string, number[]>();
    AGAINST.forEach(({ classes }, i) => { if (this.#kept[i]!.length > 0) for (const c of classes) byClass.set(c, [...(byClass.get(c) ?? []), i]); });
    for (const g of groups) {
      if (g.severity === "info") continue;
      for (const i of byClass.get(g.class) ?? []) for (const k of this.#kept[i]!) {
        if (g.against.length >= LINES_PER_FINDING) break;
        if ((k.host !== null && g.host !== null && k.host !== g.host) || g.evidence.some((e) => e.line === k.evidence.line)) continue;
        const when = AGAINST[i]!.when;
        if (when === "after" && (k.time === null || g.last === null || k.clock !== g.last.clock || k.time < g.last.time)) continue;
        if (when === "device" && (k.device === null || g.devices.size === 0 || ![...g.devices].some((d) => mayBeSame(d, k.device)))) continue;
        g.against.push(k.evidence);
      }
    }
  }
}
