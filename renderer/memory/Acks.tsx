import { useTranslation } from "react-i18next";
import type { TFunction } from "i18next";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleDot from "@tabler/icons-react/icons/IconCircleDot";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconClock from "@tabler/icons-react/icons/IconClock";
import type { AckState, SettingAck } from "../../electron/contract/index.js";
import { valueText } from "../settings/words.js";
import { State, type Icon } from "../shared/small.js";

export const ACK_SIGNS: Record<AckState, ["ok" | "warn" | "bad" | "idle", Icon]> = { applied: ["ok", IconCircleCheck], pending: ["warn", IconClock], refused: ["bad", IconCircleX], own: ["idle", IconCircleDot] };

/** "waits: counts from the next common call on". */
export const ackText = (ack: SettingAck, t: TFunction): string => (ack.reason === null ? t(`memory.acks.${ack.state}`) : `${t(`memory.acks.${ack.state}`)}: ${t(`memory.why.${ack.reason}`)}`);

/** What an engine runs with: where it sets nothing itself, 0 says how it chooses. */
export function inForceText({ setting, inForce }: SettingAck, t: TFunction): string {
  if (inForce === 0 && setting === "buffer_bytes") return t("memory.byRatio");
  if (inForce === 0 && setting === "sm_budget") return t("memory.bySize");
  return inForce === null ? "–" : valueText(setting, inForce, t);
}

/** What one process made of its node's settings. */
export function Acks({ settings, className }: { settings: readonly SettingAck[]; className?: string }) {
  const { t } = useTranslation();
  return (
    <table className={className} data-testid="acks">
      <tbody>
        {settings.map((ack) => (
          <tr key={ack.setting} data-setting={ack.setting} data-state={ack.state}>
            <th scope="row">{t(`settings.names.${ack.setting}`)}</th>
            <td className="num">{inForceText(ack, t)}{ack.state !== "applied" && ack.wanted !== null && ack.wanted !== ack.inForce && <span className="dim"> ({t("memory.wanted", { value: valueText(ack.setting, ack.wanted, t) })})</span>}</td>
            <td title={ackText(ack, t)}><State tone={ACK_SIGNS[ack.state][0]} icon={ACK_SIGNS[ack.state][1]} label={ackText(ack, t)} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
