import { basename, join } from "node:path";
import { z } from "zod";
import { Severity } from "../contract/index.js";
import { parseBlocks } from "./case-blocks.js";
import { analyse } from "./engine.js";

const CaseFile = z.object({
  id: z.string().optional(), slug: z.string().optional(), expected_class: z.string(), expected_severity: z.string().optional(),
  also_expected: z.array(z.string()).default([]), harmless: z.boolean().default(false), inputs: z.array(z.string()).optional(),
});

export interface FaultCase { id: string; expected: string; /** Classes that may stand first too. */ accepted: readonly string[]; severity: string | null; also: string[]; harmless: boolean; inputs: { name: string; bytes: Uint8Array }[] }

interface Files { readdirSync(path: string): string[]; readFileSync(path: string): Uint8Array; statSync(path: string): { isDirectory(): boolean } }

/** Every folder under `folder` that holds a case.json, with its inputs, and every case of every `.blocks` file. */
export function readCases(folder: string, fs: Files): FaultCase[] {
  const out: FaultCase[] = [];
  const visit = (dir: string): void => {
    const names = fs.readdirSync(dir).sort();
    if (names.includes("case.json")) {
      const c = CaseFile.parse(JSON.parse(new TextDecoder().decode(fs.readFileSync(join(dir, "case.json")))));
      const inputs = c.inputs ?? names.filter((n) => n !== "case.json");
      out.push({ id: c.id ?? c.slug ?? basename(dir), expected: c.expected_class, accepted: [], severity: c.expected_severity ?? null, also: c.also_expected, harmless: c.harmless, inputs: inputs.map((name) => ({ name, bytes: fs.readFileSync(join(dir, name)) })) });
      return;
    }
    for (const name of names) {
      if (fs.statSync(join(dir, name)).isDirectory()) visit(join(dir, name));
      else if (name.endsWith(".blocks")) for (const b of parseBlocks(new TextDecoder().decode(fs.readFileSync(join(dir, name))))) {
        const harmless = b.wanted[0] === "info";
        out.push({
          id: `${basename(name, ".blocks")}: ${b.name}`, expected: harmless ? "none.healthy" : b.wanted[0]!, accepted: b.wanted, severity: b.severity, also: [], harmless,
          inputs: b.inputs.map((i) => ({ name: i.name, bytes: new TextEncoder().encode(i.text) })),
        });
      }
    }
  };
  visit(folder);
  return out;
}

export interface CaseResult {
  id: string; expected_class: string; expected_severity: string | null; also_expected: string[]; harmless: boolean;
  found_first: string; found_severity: string; found: { class: string; severity: string; consequence_of: string | null; count: number }[]; candidates: string[];
  verdict: string; first_right: boolean; severity_right: boolean; also_found: string[]; also_missing: string[]; false_alarm: boolean;
}

const rate = (a: number, b: number): number | null => (b === 0 ? null : Math.round((a / b) * 1000) / 1000);

/** Diagnoses every case as if its files had been dropped in, and counts. */
export function evaluate(cases: readonly FaultCase[]) {
  const results: CaseResult[] = cases.map((c) => {
    const a = analyse(c.inputs.map((i) => ({ name: i.name, data: i.bytes })));
    const first = a.findings[0];
    const classOf = new Map(a.findings.map((f) => [f.id, f.class]));
    const found = a.findings.map((f) => ({ class: f.class, severity: f.severity, consequence_of: f.consequenceOf === null ? null : classOf.get(f.consequenceOf) ?? f.consequenceOf, count: f.count }));
    const classes = new Set(a.findings.map((f) => f.class));
    const candidates = [...new Set(a.findings.filter((f) => f.severity !== "info").flatMap((f) => f.candidates.map((x) => x.class)))].filter((x) => !classes.has(x));
    const reachable = new Set([...classes, ...candidates]);
    const told = a.findings.some((f) => f.severity !== "info");
    const firstRight = first?.class === c.expected || (first !== undefined && c.accepted.includes(first.class)) || (c.accepted.includes("info") && !told);
    return {
      id: c.id, expected_class: c.expected, expected_severity: c.severity, also_expected: c.also, harmless: c.harmless,
      found_first: first?.class ?? "-", found_severity: first?.severity ?? "-", found, candidates, verdict: a.verdict,
      first_right: firstRight, severity_right: c.severity === null || first?.severity === c.severity,
      also_found: c.also.filter((x) => reachable.has(x)), also_missing: c.also.filter((x) => !reachable.has(x)),
      // What is shown above "info" on a harmless input disturbs the operator for nothing.
      false_alarm: c.harmless && told && !(c.accepted.length > 1 && firstRight),
    };
  });
  const classes: Record<string, { expected: number; first: number; reported: number; reported_right: number; precision: number | null; recall: number | null }> = {};
  const at = (cls: string) => (classes[cls] ??= { expected: 0, first: 0, reported: 0, reported_right: 0, precision: null, recall: null });
  const complete = new Set(cases.filter((c) => c.accepted.length === 0).map((c) => c.id));
  for (const r of results) {
    at(r.expected_class).expected++;
    if (r.first_right) at(r.expected_class).first++;
    // A short case names what must stand first and not what follows from it: it says nothing of precision.
    if (!complete.has(r.id)) continue;
    for (const cls of new Set(r.found.map((f) => f.class))) {
      at(cls).reported++;
      if (cls === r.expected_class || r.also_expected.includes(cls)) at(cls).reported_right++;
    }
  }
  for (const c of Object.values(classes)) { c.precision = rate(c.reported_right, c.reported); c.recall = rate(c.first, c.expected); }
  const severities: Record<string, { expected: number; right: number; first: number }> = {};
  for (const s of Severity.options) {
    const of = results.filter((r) => r.expected_severity === s);
    severities[s] = { expected: of.length, right: of.filter((r) => r.severity_right).length, first: of.filter((r) => r.first_right).length };
  }
  const reported = results.filter((r) => complete.has(r.id)).flatMap((r) => [...new Set(r.found.map((f) => f.class))].map((cls) => cls === r.expected_class || r.also_expected.includes(cls)));
  const alsoAll = results.reduce((s, r) => s + r.also_expected.length, 0);
  return {
    summary: {
      cases: results.length, expected_first: results.filter((r) => r.first_right).length, expected_found: results.filter((r) => r.found.some((f) => f.class === r.expected_class)).length,
      also_expected: alsoAll, also_found: results.reduce((s, r) => s + r.also_found.length, 0),
      harmless_cases: results.filter((r) => r.harmless).length, false_alarms: results.filter((r) => r.false_alarm).length,
      severity_right: results.filter((r) => r.severity_right).length, precision: rate(reported.filter(Boolean).length, reported.length),
      recall: rate(results.filter((r) => r.first_right).length, results.length), classes: Object.keys(classes).length,
    },
    by_severity: severities, by_class: classes, cases: results,
  };
}

export type Report = ReturnType<typeof evaluate>;

export function formatTable(report: Report): string {
  const rows = report.cases.map((r) => [
    r.id, r.expected_class, r.found_first, r.found.slice(1).map((f) => (f.consequence_of ? `(${f.class})` : f.class)).join(" "), r.found_severity,
    r.false_alarm ? "FALSE ALARM" : r.first_right ? (r.severity_right ? "ok" : `ok, severity ${r.expected_severity}`) : "MISSED",
  ]);
  const head = ["case", "expected", "found first", "others (consequences in brackets)", "severity", "verdict"];
  const widths = head.map((h, i) => Math.min([60, 34, 34, 70, 9, 24][i]!, Math.max(h.length, ...rows.map((r) => r[i]!.length))));
  const line = (cells: readonly string[]): string => cells.map((c, i) => (c.length > widths[i]! ? `${c.slice(0, widths[i]! - 1)}…` : c.padEnd(widths[i]!))).join("  ").trimEnd();
  const s = report.summary;
  const classLines = Object.entries(report.by_class).filter(([, c]) => c.recall !== null && (c.recall < 1 || (c.precision !== null && c.precision < 1))).map(([cls, c]) => `  ${cls.padEnd(36)} recall ${c.recall ?? "-"}  precision ${c.precision ?? "-"}`);
  return [
    line(head), line(widths.map((w) => "-".repeat(w))), ...rows.map(line), "",
    `cases ${s.cases}, expected first ${s.expected_first} (${((s.expected_first / s.cases) * 100).toFixed(1)} %), also expected ${s.also_found} of ${s.also_expected}, severity right ${s.severity_right}`,
    `harmless inputs ${s.harmless_cases}, false alarms ${s.false_alarms}; precision over all reported classes ${s.precision}`,
    `by severity: ${Object.entries(report.by_severity).map(([k, v]) => `${k} ${v.first}/${v.expected} first, ${v.right} rated so`).join("; ")}`,
    ...(classLines.length > 0 ? ["classes below 1:", ...classLines] : []),
  ].join("\n");
}
