import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleDashed from "@tabler/icons-react/icons/IconCircleDashed";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconFingerprint from "@tabler/icons-react/icons/IconFingerprint";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import IconPlugConnected from "@tabler/icons-react/icons/IconPlugConnected";
import IconPlugX from "@tabler/icons-react/icons/IconPlugX";
import IconShieldCheck from "@tabler/icons-react/icons/IconShieldCheck";
import IconShieldX from "@tabler/icons-react/icons/IconShieldX";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import type { HostKeyView, NodePhase } from "../../electron/contract/index.js";
import { State, type Icon } from "../shared/small.js";

type Tone = "ok" | "warn" | "bad" | "info" | "idle";

const PHASES: Record<NodePhase, [Tone, Icon]> = {
  new: ["idle", IconCircleDashed], needs_host_key: ["warn", IconFingerprint], reachable: ["info", IconPlugConnected], bringing_up: ["info", IconLoader2],
  up: ["ok", IconCircleCheck], degraded: ["warn", IconAlertTriangle], unreachable: ["bad", IconPlugX], failed: ["bad", IconCircleX],
};
const KEYS: Record<HostKeyView["status"], [Tone, Icon]> = {
  unknown: ["idle", IconHelpCircle], trusted: ["ok", IconShieldCheck], unconfirmed: ["warn", IconFingerprint], changed: ["bad", IconShieldX], revoked: ["bad", IconShieldX],
};

export function PhaseState({ phase }: { phase: NodePhase }) {
  const { t } = useTranslation();
  const [tone, icon] = PHASES[phase];
  return <State tone={tone} icon={icon} label={t(`phases.${phase}`)} spin={phase === "bringing_up"} />;
}

export function HostKeyState({ status }: { status: HostKeyView["status"] }) {
  const { t } = useTranslation();
  const [tone, icon] = KEYS[status];
  return <State tone={tone} icon={icon} label={t(`hostKeyStates.${status}`)} />;
}
