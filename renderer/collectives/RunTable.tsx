import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import { COLLECTIVE_TAKES, type RunView } from "../../electron/contract/index.js";
import { bytes, gbps, us } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import css from "./collectives.module.css";

type Row = RunView["rows"][number];

function Wrong({ count }: { count: number | null }) {
  const { t } = useTranslation();
  if (count === null) return <td className={css.n} title={t("run.notChecked")}>N/A</td>;
  if (count === 0) return <td className={css.n}>0</td>;
  return <td className={`${css.n} ${css.wrong}`}><IconAlertTriangle size={12} aria-hidden /> {count}</td>;
}

function Timings({ timing }: { timing: Row["inPlace"] }) {
  if (timing === null) return <td className={`${css.n} dim`} colSpan={4}>–</td>;
  return <><td className={css.n}>{us(timing.timeUs)}</td><td className={css.n}>{gbps(timing.algbwGBps)}</td><td className={css.n}>{gbps(timing.busbwGBps)}</td><Wrong count={timing.wrong} /></>;
}

/** The rows as nccl-tests prints them, plus the model's expectation. At most 36 rows (a doubling from 1 B to 64 GiB), so no virtual list. */
export function RunTable({ run }: { run: RunView }) {
  const { t } = useTranslation();
  const takes = COLLECTIVE_TAKES[run.spec.collective];
  const rooted = takes.root;
  return (
    <div className={css.tableScroll} data-testid="run-table">
      <table className={css.table} aria-label={t("run.table")}>
        <thead>
          <tr>
            <th colSpan={rooted ? 7 : 6} />
            <th colSpan={4} scope="colgroup" className={css.group}>{t("run.outOfPlace")} <small>(µs, GB/s)</small></th>
            <th colSpan={4} scope="colgroup" className={css.group}>{t("run.inPlace")} <small>(µs, GB/s)</small></th>
            <th colSpan={2} scope="colgroup" className={css.group}>{t("run.model")} <small>(µs)</small></th>
          </tr>
          <tr>
            <th className={css.n} scope="col">{t("run.columns.size")} <small>(B)</small></th><th className={css.n} scope="col">{t("run.columns.count")}</th><th scope="col">{t("run.columns.type")}</th><th scope="col">{t("run.columns.redop")}</th>
            {rooted && <th className={css.n} scope="col">{t("run.columns.root")}</th>}
            <th scope="col">{t("run.columns.algorithm")}</th><th scope="col">{t("run.columns.transport")}</th>
            {["out", "in"].map((place) => [
              <th key={`${place}t`} className={css.n} scope="col">{t("run.columns.time")}</th>, <th key={`${place}a`} className={css.n} scope="col">algbw</th>,
              <th key={`${place}b`} className={css.n} scope="col">busbw</th>, <th key={`${place}w`} className={css.n} scope="col">#wrong</th>,
            ])}
            <th className={css.n} scope="col">{t("run.columns.expected")}</th><th className={css.n} scope="col" title={t("run.ratioHint")}>{t("run.columns.ratio")}</th>
          </tr>
        </thead>
        <tbody>
          {run.rows.map((row) => (
            <tr key={row.bytes} data-wrong={(row.outOfPlace.wrong ?? 0) + (row.inPlace?.wrong ?? 0) > 0 || undefined}>
              <td className={css.n} title={bytes(row.bytes)}>{row.bytes}</td><td className={css.n}>{row.count}</td><td>{oneLine(row.datatype, 16)}</td><td>{takes.redop ? oneLine(row.redop, 16) : "–"}</td>{rooted && <td className={css.n}>{row.root}</td>}
              <td>{oneLine(row.algorithm, 24)}</td><td>{oneLine(row.transport, 12)}</td>
              <Timings timing={row.outOfPlace} />
              <Timings timing={row.inPlace} />
              <td className={`${css.n} dim`}>{row.expectedTimeUs === null ? "–" : us(row.expectedTimeUs)}</td>
              <td className={`${css.n} dim`}>{row.expectedTimeUs === null || row.expectedTimeUs <= 0 ? "–" : `${(row.outOfPlace.timeUs / row.expectedTimeUs).toFixed(2)}×`}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {run.rows.length === 0 && <div className={css.noCurve}>{t("run.noRows")}</div>}
    </div>
  );
}
