import { Button, Menu, Progress } from "@mantine/core";
import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleMinus from "@tabler/icons-react/icons/IconCircleMinus";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconDownload from "@tabler/icons-react/icons/IconDownload";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import IconPlayerStop from "@tabler/icons-react/icons/IconPlayerStop";
import { COLLECTIVE_TAKES, type RunView } from "../../electron/contract/index.js";
import type { ShownError } from "../client/page-error.js";
import { ErrorNote, useErrorText } from "../shared/ErrorNote.js";
import { duration, gbps } from "../shared/format.js";
import { oneLine, printable } from "../shared/printable.js";
import { State, type Icon } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItems, useNow } from "../store/console-hooks.js";
import { sizeCount } from "./draft.js";
import { isRunning, sizeRange, transportWord } from "./run-words.js";
import { saveText } from "../shared/save.js";
import css from "./collectives.module.css";

const STATES: Record<RunView["state"], ["ok" | "bad" | "info" | "warn", Icon]> = {
  starting: ["info", IconLoader2], running: ["info", IconLoader2], succeeded: ["ok", IconCircleCheck], failed: ["bad", IconCircleX], stopped: ["warn", IconCircleMinus],
};

export function RunState({ run }: { run: RunView }) {
  const { t } = useTranslation();
  const [tone, icon] = STATES[run.state];
  return <State tone={tone} icon={icon} label={t(`runStates.${run.state}`)} spin={isRunning(run)} />;
}

function RankError({ error }: { error: ShownError }) {
  const { message, next } = useErrorText(error);
  return <span className="ellipsis" title={`${printable(error.message)} ${next}`}><code className="mono">{error.code}</code> {message}</span>;
}

/** More ranks than this are summed up; those that failed are still named one by one. */
const RANKS_SHOWN = 32;

function Ranks({ run }: { run: RunView }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const name = (id: string) => oneLine(items.get(id)?.name ?? id, 40);
  const failed = run.ranks.filter((rank) => rank.state === "failed");
  const counts = new Map<string, number>();
  for (const rank of run.ranks) counts.set(rank.state, (counts.get(rank.state) ?? 0) + 1);
  return (
    <>
      <div className={css.ranks} aria-label={t("run.ranks")} role="list">
        {run.ranks.length <= RANKS_SHOWN
          ? run.ranks.map((rank) => <span key={rank.rank} role="listitem" className={css.rank} data-state={rank.state}>{t("run.rank", { rank: rank.rank, name: name(rank.nodeId) })} · {t(`rankStates.${rank.state}`)}</span>)
          : [...counts].map(([state, count]) => <span key={state} role="listitem" className={css.rank} data-state={state}>{t(`rankStates.${state}`)}: {count}</span>)}
      </div>
      {failed.slice(0, 4).map((rank) => rank.error && rank.error.message !== run.error?.message && (
        <div key={rank.rank} className={css.rankError} data-testid={`rank-error-${rank.rank}`}>
          <strong>{t("run.rankFailed", { rank: rank.rank, name: name(rank.nodeId) })}</strong> <RankError error={rank.error} />
        </div>
      ))}
      {failed.length > 4 && <span className="dim">{t("run.moreFailed", { count: failed.length - 4 })}</span>}
    </>
  );
}

/** The shown run: what it is, how far it is, what went wrong; stop and export. */
export function RunHeader({ run }: { run: RunView }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const now = useNow();
  const stop = useAction(async () => {
    await client.request("runs.stop", { runId: run.id });
  });
  const save = useAction(async (signal, format: "csv" | "json") => saveText(await client.request("runs.export", { runId: run.id, format }, { signal })));
  const { spec } = run;
  const takes = COLLECTIVE_TAKES[spec.collective];
  const total = takes.sized ? sizeCount(spec.minBytes, spec.maxBytes, spec.stepFactor) : 1;
  const wrong = run.wrongTotal ?? 0;
  const what = [
    transportWord(spec.transport, t), t("run.rankCount", { count: spec.nodeIds.length * spec.ranksPerNode }), takes.sized && sizeRange(run), takes.sized && [spec.datatype, takes.redop && spec.redop].filter(Boolean).join(" "),
    takes.root && t("run.rootRank", { rank: spec.root }), spec.algorithm !== "auto" && oneLine(spec.algorithm, 32), run.encryption === "tls" && "TLS 1.3",
  ].filter(Boolean).join(" · ");
  return (
    <div className={css.runHeader} data-testid="run-header" data-state={run.state}>
      <div className={css.headBar}>
        <RunState run={run} />
        <strong>{t(`ops.${spec.collective}`)}</strong>
        <span className={`${css.what} ellipsis`} title={what}>{what}</span>
        <span className="dim">{duration((run.endedAtMs ?? now) - run.startedAtMs)}</span>
        {isRunning(run) && <span className={css.progress}><Progress value={total === 0 ? 0 : (run.rows.length / total) * 100} size="sm" aria-label={t("run.progress")} /> {t("run.sizesDone", { done: run.rows.length, total })}</span>}
        {run.avgBusbwGBps !== null && takes.sized && !isRunning(run) && <span>{t("run.avgBusbw")} <strong>{gbps(run.avgBusbwGBps)} GB/s</strong></span>}
        {run.wrongTotal !== null && wrong === 0 && <State tone="ok" icon={IconCircleCheck} label={t("run.noneWrong")} />}
        <span className="spacer" />
        {isRunning(run) && <Button color="red" variant="light" leftSection={<IconPlayerStop size={14} />} loading={stop.busy} onClick={() => void stop.run()}>{t("run.stop")}</Button>}
        <Menu disabled={run.rows.length === 0}>
          <Menu.Target><Button variant="default" leftSection={<IconDownload size={14} />} disabled={run.rows.length === 0} loading={save.busy}>{t("run.export")}</Button></Menu.Target>
          <Menu.Dropdown>
            <Menu.Item onClick={() => void save.run("csv")}>CSV</Menu.Item>
            <Menu.Item onClick={() => void save.run("json")}>JSON</Menu.Item>
          </Menu.Dropdown>
        </Menu>
      </div>
      {wrong > 0 && (
        <div className={css.wrongBanner} role="alert" data-testid="wrong-banner"><IconAlertTriangle size={18} aria-hidden /> <strong>{t("run.wrongTitle", { count: wrong })}</strong> {t("run.wrongText")}</div>
      )}
      {run.error && <ErrorNote error={run.error} />}
      {stop.error && <ErrorNote error={stop.error} onClose={stop.clear} />}
      {save.error && <ErrorNote error={save.error} onClose={save.clear} />}
      <Ranks run={run} />
    </div>
  );
}
