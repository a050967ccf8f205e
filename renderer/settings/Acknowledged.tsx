import { useTranslation } from "react-i18next";
import type { AckState, NodeMemoryView, SettingAck, SettingName } from "../../electron/contract/index.js";
import { ackText, ACK_SIGNS, inForceText } from "../memory/Acks.js";
import { processText } from "../memory/words.js";
import { oneLine } from "../shared/printable.js";
import { State } from "../shared/small.js";
import css from "./settings.module.css";

/** One process's word on one setting. */
export interface ProcessAck { who: string; ack: SettingAck }

/** What the processes of these nodes made of their settings. */
export function acksOf(views: Iterable<NodeMemoryView>, nameOf: (nodeId: string) => string): ReadonlyMap<SettingName, ProcessAck[]> {
  const all = new Map<SettingName, ProcessAck[]>();
  for (const view of views) {
    for (const process of view.processes) {
      for (const ack of process.settings) all.set(ack.setting, [...(all.get(ack.setting) ?? []), { who: `${oneLine(nameOf(view.nodeId), 40)} · ${processText(process)}`, ack }]);
    }
  }
  return all;
}

/** States that want to be seen, worst first; processes that keep their own value are said in the title alone where others follow. */
const ORDER: readonly AckState[] = ["refused", "pending", "applied", "own"];
const LISTED = 12;

/** Under the value of a setting: in how many processes it is in force, waits or is refused; why, in which and with what in place stands in the title. */
export function Acknowledged({ name, acks }: { name: SettingName; acks: readonly ProcessAck[] }) {
  const { t } = useTranslation();
  const groups = ORDER.flatMap((state) => { const these = acks.filter(({ ack }) => ack.state === state); return these.length > 0 ? [{ state, these }] : []; });
  return (
    <div className={css.acks} data-testid={`acks-${name}`}>
      {groups.map(({ state, these }) => {
        const [tone, icon] = ACK_SIGNS[state];
        const lines = these.slice(0, LISTED).map(({ who, ack }) => `${who}: ${inForceText(ack, t)}, ${ackText(ack, t)}`);
        const reasons = [...new Set(these.flatMap(({ ack }) => (ack.reason === null ? [] : [t(`memory.why.${ack.reason}`)])))];
        return (
          <div key={state} data-state={state} title={[...lines, ...(these.length > LISTED ? [`+${these.length - LISTED}`] : [])].join("\n")}>
            <State tone={tone} icon={icon} label={t(`settings.acks.${state}`, { count: these.length })} />
            {reasons.length > 0 && <div className={`dim ${css.why}`}>{reasons.slice(0, 2).join("; ")}</div>}
          </div>
        );
      })}
    </div>
  );
}
