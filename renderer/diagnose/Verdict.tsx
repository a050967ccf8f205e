import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import type { Verdict } from "../../electron/contract/index.js";
import { State, type Icon } from "../shared/small.js";

const LOOK: Record<Verdict, ["ok" | "warn" | "bad" | "idle", Icon]> = {
  cause_found: ["bad", IconCircleX], only_consequences: ["warn", IconAlertTriangle], not_in_this_log: ["warn", IconHelpCircle], harmless: ["ok", IconCircleCheck], healthy: ["ok", IconCircleCheck], nothing_read: ["warn", IconHelpCircle],
};

/** What it comes to, in one sentence. */
export function VerdictLine({ verdict }: { verdict: Verdict }) {
  const { t } = useTranslation();
  return <span data-testid="verdict" data-verdict={verdict}><State tone={LOOK[verdict][0]} icon={LOOK[verdict][1]} label={t(`verdicts.${verdict}`)} /></span>;
}
