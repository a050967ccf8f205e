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

export const bySeverity = (findings: readonly FindingView[]): FindingView[] => [...findings].sort((a, b) => RANK[a.severity] - RANK[b.severity] || (a.class < b.class ? -1 : 1));

/** The worst that was found; null where nothing was. */
export const worst = (diagnosis: DiagnosisView): Severity | null => bySeverity(diagnosis.findings)[0]?.severity ?? null;

/** What was asked and not read: any of these makes "nothing found" mean less. */
export const unread = (diagnosis: DiagnosisView): number => diagnosis.sources.filter((source) => source.state !== "ok").length;
