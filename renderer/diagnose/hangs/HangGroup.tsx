import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCheck from "@tabler/icons-react/icons/IconCheck";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconDots from "@tabler/icons-react/icons/IconDots";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconHourglass from "@tabler/icons-react/icons/IconHourglass";
import IconPlayerPause from "@tabler/icons-react/icons/IconPlayerPause";
import IconPlayerPlay from "@tabler/icons-react/icons/IconPlayerPlay";
import IconQuestionMark from "@tabler/icons-react/icons/IconQuestionMark";
import IconX from "@tabler/icons-react/icons/IconX";
import type { HangGroup as Group, RecordedRank } from "../../../electron/contract/index.js";
import { duration } from "../../shared/format.js";
import { oneLine } from "../../shared/printable.js";
import { NodeText, State, type Icon } from "../../shared/small.js";
import { useConsole, useItems, useNow } from "../../store/console-hooks.js";
import { useSay } from "../words.js";
import { cellOf, lastSequences, type CellState } from "./sequences.js";
import css from "./hangs.module.css";

type Tone = "ok" | "warn" | "bad" | "info" | "idle";
const GROUPS: Record<Group["verdict"], [Tone, Icon]> = {
  hang: ["bad", IconHourglass], mismatch: ["bad", IconAlertTriangle], failed: ["bad", IconCircleX], running: ["ok", IconPlayerPlay], idle: ["idle", IconCircleCheck], cannot_tell: ["warn", IconHelpCircle],
};
const RANKS: Record<RecordedRank["verdict"], [Tone, Icon]> = {
  waiting: ["idle", IconHourglass], behind: ["bad", IconAlertTriangle], missing: ["bad", IconQuestionMark], dead: ["bad", IconCircleX], stopped: ["bad", IconPlayerPause], different: ["bad", IconAlertTriangle],
  failed: ["bad", IconCircleX], done: ["ok", IconCircleCheck], running: ["ok", IconPlayerPlay], unknown: ["warn", IconHelpCircle],
};
const CELLS: Record<CellState, Icon> = { completed: IconCheck, queued: IconDots, started: IconPlayerPlay, failed: IconX, not_reached: IconHourglass, unknown: IconQuestionMark };

function Rank({ rank, sequences, blamed }: { rank: RecordedRank; sequences: readonly number[]; blamed: boolean }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const now = useNow();
  const [tone, icon] = RANKS[rank.verdict];
  const { current } = rank;
  return (
    <tr data-blamed={blamed || undefined} data-testid={`hang-rank-${rank.rank}`} data-verdict={rank.verdict}>
      <th scope="row">{rank.rank}</th>
      <td><NodeText text={rank.nodeId === null ? rank.host : (items.get(rank.nodeId)?.name ?? rank.host)} /></td>
      <td className={css.number}>{rank.pid ?? "–"}</td>
      <td><State tone={tone} icon={icon} label={t(`hangs.ranks.${rank.verdict}`)} /></td>
      {sequences.map((sequence) => {
        const cell = cellOf(rank, sequence);
        const IconOf = CELLS[cell];
        return <td key={sequence} className={css.op} data-state={cell} title={t(`hangs.cells.${cell}`)}><IconOf size={12} aria-hidden /><span className="sr-only">{t(`hangs.cells.${cell}`)}</span></td>;
      })}
      <td>{current ? <NodeText mono text={`${current.collective} ${current.count}×${current.datatype}${current.redop === "" ? "" : ` ${current.redop}`}${current.root === null ? "" : ` root ${current.root}`}`} /> : <span className="dim">–</span>}</td>
      <td className={css.number}>{current?.startedAtMs != null ? duration(Math.max(0, now - current.startedAtMs)) : "–"}</td>
      <td>{current && current.waitingFor.length > 0 ? oneLine(current.waitingFor.join(", "), 60) : "–"}</td>
    </tr>
  );
}

/** One communicator: the sentence that says who holds it up, then every rank beside its last operations. */
export function HangGroup({ group }: { group: Group }) {
  const { t } = useTranslation();
  const say = useSay();
  const sequences = lastSequences(group);
  const blamed = new Set(group.culprits);
  const order = [...group.ranks].sort((a, b) => Number(blamed.has(b.rank)) - Number(blamed.has(a.rank)) || a.rank - b.rank);
  const [tone, icon] = GROUPS[group.verdict];
  return (
    <section className={css.group} data-tone={tone} data-testid="hang-group" data-verdict={group.verdict}>
      <header>
        <State tone={tone} icon={icon} label={t(`hangs.verdicts.${group.verdict}`)} />
        <h3>{say(group.text)}</h3>
        <span className="spacer" />
        <span className="dim mono">{oneLine(group.job, 40)} · {oneLine(group.communicator, 40)} · {t("hangs.worldSize", { count: group.worldSize })}</span>
      </header>
      <div className={css.scroll}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("hangs.rank")}</th><th scope="col">{t("hangs.node")}</th><th scope="col" className={css.number}>PID</th><th scope="col">{t("diagnose.state")}</th>
              {sequences.map((sequence) => <th key={sequence} scope="col" className={css.op} data-parting={String(sequence) === group.sequence || undefined} title={t("hangs.operation", { sequence })}>{sequence}</th>)}
              <th scope="col">{t("hangs.current")}</th><th scope="col" className={css.number}>{t("hangs.since")}</th><th scope="col">{t("hangs.waitsFor")}</th>
            </tr>
          </thead>
          <tbody>{order.map((rank) => <Rank key={rank.rank} rank={rank} sequences={sequences} blamed={blamed.has(rank.rank)} />)}</tbody>
        </table>
      </div>
    </section>
  );
}
