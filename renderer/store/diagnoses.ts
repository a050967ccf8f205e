import type { DiagnosisView } from "../../electron/contract/index.js";

/** A diagnosis as the page shows it. */
export type ShownDiagnosis = DiagnosisView & {
  /** While a new check has no result yet, the result of the one before is kept: since when that is, in ms. */
  earlierMs?: number;
};

/** A check that begins takes nothing off the screen: the result before it stays until there is another, or until it fails. */
export function keepResult(before: ShownDiagnosis | undefined, next: ShownDiagnosis): ShownDiagnosis {
  if (next.state !== "running" || next.verdict !== null || !before || before.verdict === null) return next;
  const { verdict, sources, findings, cannotTell } = before;
  return { ...next, verdict, sources, findings, cannotTell, earlierMs: before.earlierMs ?? before.endedAtMs ?? before.startedAtMs };
}
