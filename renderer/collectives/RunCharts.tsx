import { SegmentedControl } from "@mantine/core";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { CartesianGrid, Line, LineChart, ResponsiveContainer, Tooltip, XAxis, YAxis } from "recharts";
import type { RunView } from "../../electron/contract/index.js";
import { bytes, gbps, sizeTick, us } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { curveOf, decades, niceTop, MAX_RUNS, sizeTicks, timeTick, type CurvePoint, type Place } from "./series.js";
import { runTitle } from "./run-words.js";
import css from "./collectives.module.css";

/** Dash and colour together tell runs apart. */
const STROKES = ["var(--run-1)", "var(--run-2)", "var(--run-3)", "var(--run-4)", "var(--run-5)"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2"];
const REDRAW_MS = 1000;

interface Curve { run: RunView; points: CurvePoint[]; stroke: string; dash: string }
type Measure = "timeUs" | "algbwGBps" | "busbwGBps";

/** The value, renewed at most once a second, and not at all while `frozen`. */
function useCalm<T>(value: T, frozen: boolean): T {
  const [calm, setCalm] = useState(value);
  const latest = useRef(value);
  const lastMs = useRef(0);
  latest.current = value;
  useEffect(() => {
    if (frozen || calm === value) return;
    const wait = Math.max(0, REDRAW_MS - (performance.now() - lastMs.current));
    const timer = setTimeout(() => {
      lastMs.current = performance.now();
      setCalm(latest.current);
    }, wait);
    return () => clearTimeout(timer);
  }, [value, frozen, calm]);
  return calm;
}

interface ChartProps { title: string; measure: Measure; curves: readonly Curve[]; onHover(hovering: boolean): void }

const Chart = memo(function Chart({ title, measure, curves, onHover }: ChartProps) {
  const { t } = useTranslation();
  const logarithmic = measure === "timeUs";
  const all = curves.flatMap((curve) => curve.points);
  const sizes = all.map((point) => point.bytes);
  const [low, high] = [Math.min(...sizes), Math.max(...sizes)];
  const values = all.flatMap((point) => [point[measure], logarithmic ? point.expectedTimeUs : null]).filter((value): value is number => value !== null);
  const scale = logarithmic ? decades(values) : null;
  const linear = niceTop(Math.max(...values, 0));
  const format = (value: number) => (logarithmic ? `${us(value)} µs` : `${gbps(value)} GB/s`);
  return (
    <figure className={css.chart} onMouseEnter={() => onHover(true)} onMouseLeave={() => onHover(false)} aria-label={title}>
      <figcaption>{title}</figcaption>
      <div className={css.plot}>
        <ResponsiveContainer width="100%" height="100%">
          <LineChart margin={{ top: 6, right: 12, bottom: 0, left: 0 }} accessibilityLayer={false}>
            <CartesianGrid stroke="var(--b-line)" strokeWidth={1} />
            <XAxis
              dataKey="bytes" type="number" scale="log" domain={low < high ? [low, high] : [low / 2, low * 2]} ticks={sizeTicks(low, high)} tickFormatter={sizeTick} allowDuplicatedCategory={false}
              allowDataOverflow tick={{ fontSize: 11, fill: "var(--mantine-color-dimmed)" }} stroke="var(--b-strong)" height={22}
            />
            <YAxis
              type="number" scale={logarithmic ? "log" : "linear"} domain={scale?.domain ?? linear.domain} ticks={scale?.ticks ?? linear.ticks} tickFormatter={logarithmic ? timeTick : (value: number) => String(Number(value.toPrecision(6)))}
              allowDataOverflow width={logarithmic ? 52 : 48} tick={{ fontSize: 11, fill: "var(--mantine-color-dimmed)" }} stroke="var(--b-strong)"
            />
            <Tooltip
              isAnimationActive={false} cursor={{ stroke: "var(--b-strong)" }}
              content={({ active, payload, label }) => !active || !payload?.length ? null : (
                <div className={css.tooltip}>
                  <strong>{bytes(Number(label))}</strong>
                  {payload.map((entry) => (
                    <div key={String(entry.name)}><span style={{ color: entry.color }}>{String(entry.name)}</span> {entry.value === null ? "–" : format(Number(entry.value))}</div>
                  ))}
                </div>
              )}
            />
            {curves.map(({ run, points, stroke, dash }) => (
              <Line key={run.id} data={points} dataKey={measure} name={runTitle(run, t)} stroke={stroke} strokeWidth={2} strokeDasharray={dash} type="linear" isAnimationActive={false} dot={points.length < 2} connectNulls />
            ))}
            {logarithmic && curves[0]?.points.some((point) => point.expectedTimeUs !== null) && (
              <Line
                data={curves[0].points} dataKey="expectedTimeUs" name={t("run.expected")} stroke="var(--mantine-color-dimmed)" strokeWidth={1.5} strokeDasharray="3 4" type="linear" isAnimationActive={false}
                dot={curves[0].points.length < 2} connectNulls
              />
            )}
          </LineChart>
        </ResponsiveContainer>
      </div>
    </figure>
  );
});

function Model({ run }: { run: RunView }) {
  if (!run.model) return null;
  const { alphaUs, betaUsPerByte, source } = run.model;
  return <span className="dim" title={oneLine(source)}>α {us(alphaUs)} µs{betaUsPerByte > 0 && ` · 1/β ${gbps(1e-3 / betaUsPerByte)} GB/s`}</span>;
}

/** Time, algorithm and bus bandwidth over size for the shown run and those laid over it; redrawn once a second, never under the pointer. */
export function RunCharts({ runs, place, onPlace }: { runs: readonly RunView[]; place: Place; onPlace(place: Place): void }) {
  const { t } = useTranslation();
  const [hovering, setHovering] = useState(false);
  const curves = useMemo<Curve[]>(
    () => runs.slice(0, MAX_RUNS).map((run, index) => ({ run, points: curveOf(run, place), stroke: STROKES[index]!, dash: DASHES[index]! })), [runs, place],
  );
  const calm = useCalm(curves, hovering);
  const drawn = useMemo(() => calm.filter((curve) => curve.points.length > 0), [calm]);
  return (
    <section className={css.charts} aria-label={t("run.charts")} data-testid="run-charts">
      <div className={css.chartBar}>
        <ul className={css.legend}>
          {curves.map(({ run, stroke, dash }) => (
            <li key={run.id}>
              <svg width="24" height="8" aria-hidden><line x1="0" y1="4" x2="24" y2="4" stroke={stroke} strokeWidth="2.5" strokeDasharray={dash} /></svg> {runTitle(run, t)}
            </li>
          ))}
          {curves[0]?.points.some((point) => point.expectedTimeUs !== null) && (
            <li title={t("run.expectedHint")}><svg width="24" height="8" aria-hidden><line x1="0" y1="4" x2="24" y2="4" stroke="var(--mantine-color-dimmed)" strokeWidth="2" strokeDasharray="3 4" /></svg> {t("run.expected")} <Model run={curves[0].run} /></li>
          )}
        </ul>
        <span className="spacer" />
        <SegmentedControl
          aria-label={t("run.place")} value={place} onChange={(value) => onPlace(value as Place)}
          data={[{ value: "outOfPlace", label: t("run.outOfPlace") }, { value: "inPlace", label: t("run.inPlace") }]}
        />
      </div>
      {drawn.length === 0 ? <div className={css.noCurve}>{t(runs[0] && runs[0].rows.length > 0 ? "run.noCurve" : "run.noRows")}</div> : (
        <div className={css.chartRow}>
          <Chart title={t("run.timeChart")} measure="timeUs" curves={drawn} onHover={setHovering} />
          <Chart title={t("run.algbwChart")} measure="algbwGBps" curves={drawn} onHover={setHovering} />
          <Chart title={t("run.busbwChart")} measure="busbwGBps" curves={drawn} onHover={setHovering} />
        </div>
      )}
    </section>
  );
}
