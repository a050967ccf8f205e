import type { z } from "zod";
import type { DiagnosisView, FindingView, MendSnapshot, Reading } from "../../contract/index.js";

/** Sources that tell what was, not what is. */
const LOGS = new Set(["kernel_log", "service_log"]);
const MAX_READING_CHARS = 2000;
const reading = (f: FindingView): z.infer<typeof Reading> => ({ class: f.class, severity: f.severity, title: f.title, evidence: f.evidence.slice(0, 4) });

/** How a finding stands in a diagnosis, beside what the sources that show it say. */
export function snapshotOf(view: DiagnosisView, finding: FindingView, atMs: number): z.infer<typeof MendSnapshot> {
  const now = view.findings.find((f) => f.id === finding.id && f.severity !== "info");
  const cited = new Set(finding.evidence.map((e) => e.source));
  return {
    atMs, finding: now ? reading(now) : null,
    others: view.findings.filter((f) => f.id !== finding.id && f.severity !== "info").slice(0, 32).map(reading),
    readings: view.sources.filter((s) => cited.has(s.id)).slice(0, 6).map((s) => ({ source: s.id, text: relevant(s.text, finding) })),
  };
}

/** The lines that the finding quotes or that name what it is about; the end of the text where there is none. */
function relevant(text: string, finding: FindingView): string {
  const quoted = new Set(finding.evidence.map((e) => e.line.trim()));
  const names = [...finding.devices, ...["netdev", "pid", "mount", "peer"].flatMap((k) => (finding.params[k] === undefined ? [] : [String(finding.params[k])]))].filter((n) => n.length > 1);
  const rows = text.split("\n");
  const chosen = rows.length <= 12 ? rows : rows.filter((row) => quoted.has(row.trim()) || (row.length > 10 && [...quoted].some((line) => line.endsWith(row.trim()))) || names.some((n) => row.includes(n)));
  return (chosen.length > 0 ? chosen : rows).slice(-24).join("\n").slice(-MAX_READING_CHARS);
}

/** Whether the re-test shows the fault gone: from values it is not there any more, from a log nothing of it was written after `until`. */
export function outcomeOf(before: FindingView, after: DiagnosisView, until: { time: number; clock: string } | null): "mended" | "not_mended" | "unknown" {
  const now = after.findings.find((f) => f.id === before.id && f.severity !== "info");
  if (now) {
    const logged = now.evidence.every((e) => LOGS.has(e.source)) && now.last !== null && until !== null && now.last.clock === until.clock;
    return logged && now.last!.time <= until.time ? "mended" : "not_mended";
  }
  // A source that could not be read again proves nothing.
  const cited = new Set(before.evidence.map((e) => e.source));
  const unread = after.sources.some((s) => cited.has(s.id) && s.state !== "ok");
  return unread ? "unknown" : "mended";
}
