import { memo } from "react";
import { useTranslation } from "react-i18next";
import { Line, LineChart, ResponsiveContainer, Tooltip, XAxis, YAxis } from "recharts";
import type { PoolMapView } from "../../electron/contract/index.js";
import { timeOfDay } from "../shared/format.js";
import { percent } from "./words.js";
import css from "./memory.module.css";

/** How fragmented the pool was while it was looked at. */
export const Spark = memo(function Spark({ points }: { points: PoolMapView["history"] }) {
  const { t } = useTranslation();
  const known = points.filter((point) => point.fragmentationPermille !== null);
  const [first, last] = [known[0], known.at(-1)];
  if (!first || !last || known.length < 2) return <div className={`${css.spark} ${css.noMap}`}>{t("memory.noCurve")}</div>;
  return (
    <figure className={css.spark} aria-label={t("memory.curve")}>
      <ResponsiveContainer width="100%" height="100%">
        <LineChart data={known} margin={{ top: 4, right: 6, bottom: 0, left: 0 }} accessibilityLayer={false}>
          <XAxis dataKey="atMs" type="number" domain={[first.atMs, last.atMs]} hide />
          <YAxis type="number" domain={[0, 1000]} ticks={[0, 500, 1000]} width={40} tickFormatter={percent} tick={{ fontSize: 11, fill: "var(--mantine-color-dimmed)" }} stroke="var(--b-strong)" />
          <Tooltip
            isAnimationActive={false} cursor={{ stroke: "var(--b-strong)" }}
            content={({ active, payload, label }) => !active || !payload?.length ? null : <div className={css.tooltip}>{timeOfDay(Number(label), last.atMs)} <strong>{percent(Number(payload[0]!.value))}</strong></div>}
          />
          <Line dataKey="fragmentationPermille" stroke="var(--c-info)" strokeWidth={1.6} type="linear" dot={false} isAnimationActive={false} />
        </LineChart>
      </ResponsiveContainer>
    </figure>
  );
});
