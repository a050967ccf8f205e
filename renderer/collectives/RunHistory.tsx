import { ActionIcon, Checkbox, Tooltip } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconRefresh from "@tabler/icons-react/icons/IconRefresh";
import type { RunView } from "../../electron/contract/index.js";
import { DataGrid, type Column } from "../shared/DataGrid.js";
import { gbps, timeOfDay } from "../shared/format.js";
import { useConsole, useItem, useNow } from "../store/console-hooks.js";
import { draftOf } from "./draft.js";
import { RunState } from "./RunHeader.js";
import { runTitle, sizeRange, transportWord } from "./run-words.js";
import { MAX_RUNS } from "./series.js";
import { useCollectivesUi } from "./store.js";

function Cell({ id, children }: { id: string; children(run: RunView): React.ReactNode }) {
  const { runs } = useConsole();
  const run = useItem(runs, id);
  return run ? <>{children(run)}</> : null;
}

function Compare({ run, shown }: { run: RunView; shown: string | null }) {
  const { t } = useTranslation();
  const ui = useCollectivesUi();
  const compared = useStore(ui, (s) => s.compared);
  const isShown = run.id === shown;
  const full = compared.size >= MAX_RUNS - 1 && !compared.has(run.id);
  return (
    <Checkbox
      tabIndex={0} aria-label={t("run.compareWith", { run: runTitle(run, t) })} checked={isShown || compared.has(run.id)} disabled={isShown || full}
      title={full ? t("run.compareFull", { count: MAX_RUNS }) : undefined} onClick={(event) => event.stopPropagation()}
      onChange={() => {
        const next = new Set(compared);
        if (!next.delete(run.id)) next.add(run.id);
        ui.setState({ compared: next });
      }}
    />
  );
}

function StartedAt({ run }: { run: RunView }) {
  return <>{timeOfDay(run.startedAtMs, useNow())}</>;
}

/** All runs, newest first: choose one to see it, tick more to lay them over it. */
export function RunHistory({ ids, shown }: { ids: readonly string[]; shown: string | null }) {
  const { t } = useTranslation();
  const ui = useCollectivesUi();
  const columns = useMemo<Column[]>(() => {
    const column = (key: string, width: string, render: (run: RunView) => React.ReactNode, more: Partial<Column> = {}): Column => ({
      key, header: t(`run.history.${key}`), width, ...more, cell: (id) => <Cell id={id}>{render}</Cell>,
    });
    return [
      column("compare", "74px", (run) => <Compare run={run} shown={shown} />),
      column("started", "minmax(84px, 1fr)", (run) => <StartedAt run={run} />),
      column("state", "102px", (run) => <RunState run={run} />),
      column("operation", "96px", (run) => t(`ops.${run.spec.collective}`)),
      column("transport", "78px", (run) => transportWord(run.spec.transport, t), { wide: true }),
      column("ranks", "64px", (run) => run.spec.nodeIds.length * run.spec.ranksPerNode, { align: "end" }),
      column("sizes", "98px", (run) => sizeRange(run), { align: "end" }),
      column("busbw", "104px", (run) => (run.avgBusbwGBps === null ? "–" : gbps(run.avgBusbwGBps)), { align: "end" }),
      column("wrong", "70px", (run) => (run.wrongTotal === null ? "N/A" : <span style={run.wrongTotal > 0 ? { color: "var(--c-bad)", fontWeight: 700 } : undefined}>{run.wrongTotal}</span>), { align: "end" }),
      column("again", "64px", (run) => (
        <Tooltip label={t("run.again")}>
          <ActionIcon size="sm" aria-label={t("run.again")} onClick={(event) => { event.stopPropagation(); ui.setState({ draft: draftOf(run.spec) }); }}><IconRefresh size={13} /></ActionIcon>
        </Tooltip>
      )),
    ];
  }, [t, ui, shown]);
  const selected = useMemo(() => new Set(shown === null ? [] : [shown]), [shown]);
  return (
    <DataGrid
      label={t("run.historyTitle")} columns={columns} ids={ids} selected={selected} follow testId="run-history"
      onSelect={(chosen) => { if (chosen.size === 1) ui.setState({ shown: [...chosen][0]! }); }}
    />
  );
}
