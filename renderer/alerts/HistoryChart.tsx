import { NativeSelect, SegmentedControl } from "@mantine/core";
import { useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { CartesianGrid, Line, LineChart, ResponsiveContainer, Tooltip, XAxis, YAxis } from "recharts";
import { HistoryMetric, type HistorySeries } from "../../electron/contract/index.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { oneLine } from "../shared/printable.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import { metricText, SPANS, timeTick, type Span } from "./words.js";
import css from "./alerts.module.css";

const STROKES = ["#1c7ed6", "#e8590c", "#2f9e44", "#9c36b5", "#e64980"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2"];
/** More lines than this cannot be told apart: those with the highest peaks are drawn. */
const MOST = STROKES.length;
const RELOAD_MS = 60_000;
const POINTS = 180;

/** How a measure was over the last hour, day or week: the mean of each slice, a line for each node. */
export function HistoryChart() {
  const { t } = useTranslation();
  const { client, nodes, clock } = useConsole();
  const items = useItems(nodes);
  const [metric, setMetric] = useState<HistoryMetric>("tx_bytes_per_second");
  const [span, setSpan] = useState<Span>("hour");
  const [read, setRead] = useState<{ series: HistorySeries[]; fromMs: number; toMs: number } | null>(null);
  const load = useAction(async (signal, which: HistoryMetric, over: Span) => {
    const toMs = Math.trunc(clock.now());
    const fromMs = toMs - SPANS[over];
    setRead({ series: await client.request("history.get", { metric: which, fromMs, toMs, points: POINTS }, { signal }), fromMs, toMs });
  });
  const reload = load.run;
  useEffect(() => {
    void reload(metric, span);
    const timer = setInterval(() => void reload(metric, span), RELOAD_MS);
    return () => clearInterval(timer);
  }, [reload, metric, span]);
  const drawn = useMemo(() => {
    const peak = (series: HistorySeries): number => series.points.reduce((most, point) => Math.max(most, point.highest), 0);
    return [...(read?.series ?? [])].sort((a, b) => peak(b) - peak(a)).slice(0, MOST);
  }, [read]);
  const left = (read?.series.length ?? 0) - drawn.length;
  const name = (nodeId: string): string => oneLine(items.get(nodeId)?.name ?? nodeId, 30);
  return (
    <section className={`panel ${css.history}`} aria-label={t("alerts.history")} data-testid="history-chart">
      <div className="toolbar">
        <h2 className="panel-title">{t("alerts.history")}</h2>
        <NativeSelect size="xs" aria-label={t("alerts.metric")} value={metric} onChange={(event) => setMetric(event.currentTarget.value as HistoryMetric)} data={HistoryMetric.options.map((value) => ({ value, label: t(`alerts.metrics.${value}`) }))} />
        <span className="spacer" />
        <SegmentedControl size="xs" aria-label={t("alerts.span")} value={span} onChange={(value) => setSpan(value as Span)} data={(Object.keys(SPANS) as Span[]).map((value) => ({ value, label: t(`alerts.spans.${value}`) }))} />
      </div>
      {load.error && <ErrorNote error={load.error} onClose={load.clear} />}
      {drawn.length === 0 ? <div className={css.nothing}>{read && t("alerts.noHistory")}</div> : (
        <>
          <div className={css.plot}>
            <ResponsiveContainer width="100%" height="100%">
              <LineChart margin={{ top: 6, right: 12, bottom: 0, left: 0 }} accessibilityLayer={false}>
                <CartesianGrid stroke="var(--b-line)" />
                <XAxis dataKey="atMs" type="number" domain={[read!.fromMs, read!.toMs]} allowDataOverflow allowDuplicatedCategory={false} tickFormatter={(value: number) => timeTick(value, span)} tick={{ fontSize: 11, fill: "var(--mantine-color-dimmed)" }} stroke="var(--b-strong)" height={22} />
                <YAxis type="number" domain={[0, "auto"]} width={74} tickFormatter={(value: number) => metricText(metric, value)} tick={{ fontSize: 11, fill: "var(--mantine-color-dimmed)" }} stroke="var(--b-strong)" />
                <Tooltip
                  isAnimationActive={false}
                  content={({ active, payload, label }) => !active || !payload?.length ? null : (
                    <div className={css.tooltip}><strong>{timeTick(Number(label), span)}</strong>{payload.map((entry) => <div key={String(entry.name)}><span style={{ color: entry.color }}>{String(entry.name)}</span> {metricText(metric, Number(entry.value))}</div>)}</div>
                  )}
                />
                {drawn.map((series, index) => <Line key={series.nodeId} data={series.points} dataKey="mean" name={name(series.nodeId)} stroke={STROKES[index]!} strokeDasharray={DASHES[index]!} strokeWidth={2} dot={series.points.length < 2} isAnimationActive={false} type="linear" />)}
              </LineChart>
            </ResponsiveContainer>
          </div>
          <ul className={css.legend}>
            {drawn.map((series, index) => <li key={series.nodeId}><svg width="24" height="8" aria-hidden><line x1="0" y1="4" x2="24" y2="4" stroke={STROKES[index]} strokeWidth="2.5" strokeDasharray={DASHES[index]} /></svg> {name(series.nodeId)}</li>)}
            {left > 0 && <li className="dim">{t("alerts.notDrawn", { count: left })}</li>}
          </ul>
        </>
      )}
    </section>
  );
}
