import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconFlagExclamation from "@tabler/icons-react/icons/IconFlagExclamation";
import IconInfoCircle from "@tabler/icons-react/icons/IconInfoCircle";
import IconPointFilled from "@tabler/icons-react/icons/IconPointFilled";
import type { DiagnosisView, FindingView, Severity } from "../../electron/contract/index.js";
import { State, type Icon } from "../shared/small.js";

const LOOK: Record<Severity, ["bad" | "warn" | "info" | "idle", Icon]> = {
  critical: ["bad", IconCircleX], high: ["bad", IconAlertTriangle], medium: ["warn", IconFlagExclamation], low: ["info", IconPointFilled], info: ["idle", IconInfoCircle],
};
const RANK: Record<Severity, number> = { critical: 0, high: 1, medium: 2, low: 3, info: 4 };

export const toneOf = (severity: Severity): string => LOOK[severity][0];

export function SeverityState({ severity }: { severity: Severity }) {
  const { t } = useTranslation();
  const [tone, icon] = LOOK[severity];
  return <State tone={tone} icon={icon} label={t(`severities.${severity}`)} />;
}

/** Causes that want a person: neither known as harmless nor consequences of another that is there. */
export function causesOf(diagnosis: DiagnosisView): FindingView[] {
  const ids = new Set(diagnosis.findings.map((finding) => finding.id));
  return diagnosis.findings.filter((finding) => finding.severity !== "info" && (finding.consequenceOf === null || !ids.has(finding.consequenceOf)));
}

export const worseFirst = (a: { severity: Severity }, b: { severity: Severity }): number => RANK[a.severity] - RANK[b.severity];

/** The worst that was found; null where nothing above a note was. */
export const worst = (diagnosis: DiagnosisView): Severity | null => [...diagnosis.findings].filter((finding) => finding.severity !== "info").sort(worseFirst)[0]?.severity ?? null;

/** What was asked and not read. A program or device that the node does not have is an answer, not a gap. */
export const unread = (diagnosis: DiagnosisView): number => diagnosis.sources.filter((source) => source.state !== "ok" && source.state !== "missing").length;
