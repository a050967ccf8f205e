import type { FindingView, Severity } from "../../contract/index.js";
import type { LogLine } from "../normalise.js";
import type { NodeSources } from "../facts.js";
import type { SourceId } from "../sources.js";

export interface Evidence {
  source: SourceId;
  line: LogLine;
  meaning?: string;
}
/** One occurrence of a fault on a node. */
export interface Hit {
  evidence: Evidence[];
  params?: Record<string, string | number>;
  /** How often it was seen; the number of evidence lines where absent. */
  count?: number;
  /** Where it differs from the rule's. */
  severity?: Severity;
}

export interface Rule {
  /** Stable name; texts.ts has its words. */
  class: string;
  severity: Severity;
  /** All must have been read, else the check is one that cannot be made. */
  needs: readonly SourceId[];
  /** Classes that this one explains: they are effects and are left out where this one holds. */
  explains?: readonly string[];
  find(sources: NodeSources): Hit[];
}

/** A rule over single lines of a log: every text of one of the groups stands in the line, and none of `not`. */
export interface LineRule {
  class: string;
  severity: Severity;
  source: SourceId;
  anyOf: readonly (readonly string[])[];
  not?: readonly string[];
  explains?: readonly string[];
  /** Lines with the same key are one finding. Default: all of them. */
  key?: (text: string) => string;
  params?: (text: string) => Record<string, string | number>;
  severityOf?: (lines: readonly LogLine[]) => Severity;
  /** Leaves a group of lines to another rule. */
  accepts?: (lines: readonly LogLine[]) => boolean;
}

const MAX_EVIDENCE = 5;

export function lineRule(rule: LineRule): Rule {
  return {
    class: rule.class, severity: rule.severity, needs: [rule.source], ...(rule.explains ? { explains: rule.explains } : {}),
    find: (sources) => {
      const groups = new Map<string, { lines: LogLine[]; count: number }>();
      let last: { count: number } | undefined;
      for (const line of sources.lines(rule.source) ?? []) {
        const suppressed = /: (\d{1,9}) callbacks suppressed/.exec(line.text)?.[1];
        if (suppressed !== undefined) {
          if (last) last.count += Number(suppressed);
          continue;
        }
        if (!rule.anyOf.some((all) => all.every((part) => line.text.includes(part))) || rule.not?.some((part) => line.text.includes(part))) continue;
        const key = rule.key?.(line.text) ?? "";
        let group = groups.get(key);
        if (!group) groups.set(key, (group = { lines: [], count: 0 }));
        group.lines.push(line);
        group.count++;
        last = group;
      }
      return [...groups.values()].filter((group) => rule.accepts?.(group.lines) ?? true).map((group): Hit => ({
        evidence: firstAndLast(group.lines).map((line) => ({ source: rule.source, line })),
        count: group.count,
        ...(rule.params ? { params: rule.params(group.lines.at(-1)!.text) } : {}),
        ...(rule.severityOf ? { severity: rule.severityOf(group.lines) } : {}),
      }));
    },
  };
}

const firstAndLast = (lines: readonly LogLine[]): LogLine[] =>
  lines.length <= MAX_EVIDENCE ? [...lines] : [...lines.slice(0, MAX_EVIDENCE - 2), ...lines.slice(-2)];

/** The order in which findings are shown. */
export const SEVERITY_ORDER: readonly Severity[] = ["critical", "high", "medium", "low", "info"];
export const bySeverity = (a: FindingView, b: FindingView): number => SEVERITY_ORDER.indexOf(a.severity) - SEVERITY_ORDER.indexOf(b.severity);
