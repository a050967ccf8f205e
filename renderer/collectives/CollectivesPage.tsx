import { Button } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconChartLine from "@tabler/icons-react/icons/IconChartLine";
import { hrefOf } from "../app/router.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { EmptyState } from "../shared/small.js";
import { useConsole, useItems, useLoaded } from "../store/console-hooks.js";
import { RunCharts } from "./RunCharts.js";
import { RunForm } from "./RunForm.js";
import { RunHeader } from "./RunHeader.js";
import { RunHistory } from "./RunHistory.js";
import { RunTable } from "./RunTable.js";
import { useCollectivesUi } from "./store.js";
import css from "./collectives.module.css";

export function CollectivesPage() {
  const { t } = useTranslation();
  const { nodes, runs } = useConsole();
  const ui = useCollectivesUi();
  const items = useItems(runs);
  const loaded = useLoaded(runs);
  const error = useStore(runs.api, (s) => s.error);
  const chosen = useStore(ui, (s) => s.shown);
  const compared = useStore(ui, (s) => s.compared);
  const place = useStore(ui, (s) => s.place);
  const anyUp = [...useItems(nodes).values()].some((node) => node.phase === "up");
  const order = useMemo(() => [...items.values()].sort((a, b) => b.startedAtMs - a.startedAtMs || (a.id < b.id ? 1 : -1)), [items]);
  const ids = useMemo(() => order.map((run) => run.id), [order]);
  const shown = (chosen !== null ? items.get(chosen) : undefined) ?? order[0];
  const drawn = useMemo(() => (shown ? [shown, ...order.filter((run) => run.id !== shown.id && compared.has(run.id))] : []), [shown, order, compared]);
  return (
    <div className={css.page}>
      <RunForm />
      <div className={css.results}>
        {error && <ErrorNote error={error} />}
        {!shown && (
          <div className={`panel ${css.none}`}>
            {loaded && (
              <EmptyState icon={IconChartLine} title={t("run.empty.title")} action={anyUp ? undefined : <Button component="a" href={hrefOf("nodes")}>{t("run.empty.action")}</Button>}>
                {anyUp ? t("run.empty.text") : t("run.empty.noneUp")}
              </EmptyState>
            )}
          </div>
        )}
        {shown && (
          <>
            <div className={`panel ${css.head}`}><RunHeader run={shown} /></div>
            <div className={`panel ${css.chartPanel}`}><RunCharts runs={drawn} place={place} onPlace={(next) => ui.setState({ place: next })} /></div>
            <div className={`panel ${css.tablePanel}`}><RunTable run={shown} /></div>
            <div className={`panel ${css.history}`}><RunHistory ids={ids} shown={shown.id} /></div>
          </>
        )}
      </div>
    </div>
  );
}
