import { Button, CloseButton, Progress, UnstyledButton } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleDashed from "@tabler/icons-react/icons/IconCircleDashed";
import IconCircleMinus from "@tabler/icons-react/icons/IconCircleMinus";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import { byName } from "../../nodes/filter.js";
import { DataGrid, gridHeight, type Column } from "../../shared/DataGrid.js";
import { ErrorNote, useErrorText } from "../../shared/ErrorNote.js";
import type { ShownError } from "../../client/page-error.js";
import { duration } from "../../shared/format.js";
import { oneLine } from "../../shared/printable.js";
import { NodeText, State, type Icon } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useItems, useNow } from "../../store/console-hooks.js";
import { Fold } from "../Fold.js";
import { useSay } from "../words.js";
import { isGoing, tally, type EntryState, type GroupMender, type GroupRun } from "./mender.js";
import css from "./fleet.module.css";
import page from "../diagnose.module.css";

const LOOK: Record<EntryState, ["ok" | "warn" | "bad" | "info" | "idle", Icon]> = {
  waiting: ["idle", IconCircleDashed], asking: ["info", IconLoader2], applying: ["info", IconLoader2], retesting: ["info", IconLoader2], mended: ["ok", IconCircleCheck], gone: ["ok", IconCircleCheck],
  not_mended: ["bad", IconCircleX], failed: ["bad", IconCircleX], unknown: ["warn", IconHelpCircle], refused: ["bad", IconAlertTriangle], changed: ["warn", IconAlertTriangle], cancelled: ["idle", IconCircleMinus], not_begun: ["idle", IconCircleMinus],
};
/** What wants a person first. */
const ORDER: readonly EntryState[] = ["failed", "not_mended", "refused", "unknown", "changed", "cancelled", "applying", "retesting", "asking", "waiting", "not_begun", "mended", "gone"];
const ROWS = 8;

function What({ error }: { error: ShownError }) {
  const { message } = useErrorText(error);
  return <NodeText text={`${error.code} ${message}`} />;
}

export const groupRunElementId = (runId: string): string => `group-run-${runId}`;

/** A mend of many nodes: how far it is, the sum, the way to stop it, and each node's result. */
export function GroupRunPanel({ run, mender, onNode }: { run: GroupRun; mender: GroupMender; onNode(nodeId: string): void }) {
  const { t } = useTranslation();
  const say = useSay();
  const { nodes } = useConsole();
  const names = useItems(nodes);
  const now = useNow();
  const end = useAction(() => mender.endRunning(run.id));
  const sum = tally(run);
  const going = run.endedAtMs === null;
  const total = run.entries.size;
  const name = (id: string) => names.get(id)?.name ?? id;
  const ids = useMemo(() => {
    const rank = new Map(ORDER.map((state, index) => [state, index]));
    const entries = [...run.entries.values()];
    // While it runs the rows stay where they are: by name. Ended, what wants a person comes first.
    entries.sort((a, b) => (going ? 0 : rank.get(a.state)! - rank.get(b.state)!) || byName(name(a.member.nodeId), name(b.member.nodeId)));
    return entries.map((entry) => entry.key);
  }, [run.entries, going, names]);
  const columns = useMemo<Column[]>(() => [
    { key: "node", header: t("nodes.columns.name"), width: "minmax(150px, 1fr)", cell: (key) => {
      const entry = run.entries.get(key);
      return entry && <UnstyledButton tabIndex={-1} className={`${page.nodeLink} ellipsis`} title={oneLine(name(entry.member.nodeId))} onClick={(event) => { event.stopPropagation(); onNode(entry.member.nodeId); }}>{oneLine(name(entry.member.nodeId), 60)}</UnstyledButton>;
    } },
    { key: "state", header: t("diagnose.state"), width: "190px", cell: (key) => {
      const state = run.entries.get(key)?.state;
      return state && <State tone={LOOK[state][0]} icon={LOOK[state][1]} spin={isGoing(state) && state !== "waiting"} label={t(`fleet.states.${state}`)} />;
    } },
    { key: "what", header: t("fleet.said"), width: "minmax(200px, 2fr)", cell: (key) => {
      const entry = run.entries.get(key);
      return entry && (entry.error ? <What error={entry.error} /> : <NodeText mono text={entry.commands.map((each) => each.command).join("; ")} />);
    } },
  ], [run.entries, names, onNode, t]);
  const done = total - sum.waiting - sum.running;
  const tone = going ? "info" : sum.notMended + sum.notRun > 0 ? "bad" : "ok";
  return (
    <section id={groupRunElementId(run.id)} tabIndex={-1} className={page.finding} data-tone={tone} data-testid="group-run" data-state={going ? "running" : "done"} data-class={run.class} aria-label={say(run.title)}>
      <header>
        <h3>{say(run.title)}</h3>
        <span className="spacer" />
        <span className="dim">{t("fleet.done", { done, total })} · {duration((run.endedAtMs ?? Math.max(now, run.startedAtMs)) - run.startedAtMs)}</span>
        {!going && <CloseButton size="sm" aria-label={t("common.dismiss")} onClick={() => mender.dismiss(run.id)} />}
      </header>
      <Progress value={total === 0 ? 100 : (done / total) * 100} color={going ? undefined : tone === "ok" ? "green" : "red"} size="sm" mt={6} aria-label={t("fleet.progress")} />
      <div className={css.sum}>
        <div className={css.sums} role="status">
          <State tone={sum.mended > 0 ? "ok" : "idle"} icon={IconCircleCheck} label={t("fleet.sum.mended", { count: sum.mended })} />
          {sum.notMended > 0 && <State tone="bad" icon={IconCircleX} label={t("fleet.sum.notMended", { count: sum.notMended })} />}
          {sum.notRun > 0 && <State tone="warn" icon={IconCircleMinus} label={t("fleet.sum.notRun", { count: sum.notRun })} />}
          {sum.running > 0 && <State tone="info" icon={IconLoader2} spin label={t("fleet.sum.running", { count: sum.running })} />}
          {sum.waiting > 0 && !run.stopped && <State tone="idle" icon={IconCircleDashed} label={t("fleet.sum.waiting", { count: sum.waiting })} />}
        </div>
        {going && (run.stopped
          ? <Button size="compact-xs" variant="default" loading={end.busy} disabled={sum.running === 0} onClick={() => void end.run()}>{t("fleet.endRunning")}</Button>
          : <Button size="compact-xs" variant="default" onClick={() => mender.stop(run.id)}>{t("fleet.stop")}</Button>)}
      </div>
      {run.heldBack && <p className={page.warning}>{t("fleet.heldBack")}</p>}
      {run.stopped && going && <p className="dim">{t("fleet.stopping")}</p>}
      {end.error && <ErrorNote error={end.error} onClose={end.clear} compact />}
      <Fold label={t("fleet.results", { count: total })} open>
        <div className={css.grid} style={{ height: gridHeight(Math.min(total, ROWS)) }}>
          <DataGrid label={t("fleet.results", { count: total })} columns={columns} ids={ids} onOpen={(key) => { const entry = run.entries.get(key); if (entry) onNode(entry.member.nodeId); }} testId="group-results" />
        </div>
      </Fold>
    </section>
  );
}
