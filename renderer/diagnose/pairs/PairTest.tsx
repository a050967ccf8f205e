import { Button, Progress, SegmentedControl } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import type { PairTestKind, PairTestView } from "../../../electron/contract/index.js";
import { DataGrid, type Column } from "../../shared/DataGrid.js";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { duration, gbps, us } from "../../shared/format.js";
import { oneLine } from "../../shared/printable.js";
import { Age, NodeText } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { Evidence } from "../Evidence.js";
import { useSay } from "../words.js";
import { matrixOf, pairKey, worstFirst, type Metric } from "./heat.js";
import { Matrix } from "./Matrix.js";
import css from "./pairs.module.css";
import page from "../diagnose.module.css";

/** Above this many nodes a matrix no longer fits a screen: the table shows failed and slow pairs first. */
const MATRIX_UP_TO = 32;

export function PairTest({ test }: { test: PairTestView }) {
  const { t } = useTranslation();
  const say = useSay();
  const { client, nodes } = useConsole();
  const items = useItems(nodes);
  const [kind, setKind] = useState<PairTestKind>(test.kinds[0]!);
  const [metric, setMetric] = useState<Metric>("latency");
  const [form, setForm] = useState<"matrix" | "table">(test.nodeIds.length <= MATRIX_UP_TO ? "matrix" : "table");
  const [selected, setSelected] = useState<string | null>(null);
  const cancel = useAction(async () => { await client.request("pairs.cancel", { pairTestId: test.id }); });
  const matrix = useMemo(() => matrixOf(test, kind), [test, kind]);
  const name = (id: string) => oneLine(items.get(id)?.name ?? id, 40);
  const ended = test.results.filter((result) => result.state !== "pending" && result.state !== "running").length;
  const failed = test.results.filter((result) => result.state === "failed").length;
  const rows = useMemo(() => worstFirst([...matrix.cells.values()], metric).map((result) => pairKey(result.from, result.to)), [matrix, metric]);
  const columns = useMemo<Column[]>(() => {
    const of = (key: string) => matrix.cells.get(key)!;
    return [
      { key: "from", header: t("pairs.from"), width: "minmax(112px, 1fr)", cell: (key) => <NodeText text={items.get(of(key).from)?.name ?? of(key).from} /> },
      { key: "to", header: t("pairs.to"), width: "minmax(112px, 1fr)", cell: (key) => <NodeText text={items.get(of(key).to)?.name ?? of(key).to} /> },
      { key: "state", header: t("diagnose.state"), width: "80px", cell: (key) => t(`pairStates.${of(key).state}`) },
      { key: "latency", header: t("pairs.metrics.latency"), width: "100px", align: "end", cell: (key) => (of(key).latencyUs === null ? "–" : us(of(key).latencyUs!)) },
      { key: "bandwidth", header: t("pairs.metrics.bandwidth"), width: "134px", align: "end", cell: (key) => (of(key).bandwidthGBps === null ? "–" : gbps(of(key).bandwidthGBps!)) },
      { key: "text", header: t("pairs.said"), width: "minmax(130px, 2fr)", cell: (key) => { const { text } = of(key); return text === null ? null : <NodeText text={say(text)} />; } },
    ];
  }, [matrix, items, t, say]);
  const cell = selected === null ? undefined : matrix.cells.get(selected);
  return (
    <div className={page.report} data-testid="pair-test" data-state={test.state}>
      <div className="toolbar">
        <h2>{t("pairs.title", { count: test.nodeIds.length })}</h2>
        <span>{failed > 0 ? <strong style={{ color: "var(--c-bad)" }}>{t("pairs.failedCount", { count: failed })}</strong> : test.state === "done" ? t("pairs.allPass") : ""}</span>
        <span className="spacer" />
        {test.endedAtMs !== null
          ? <span className="dim">{t("diagnose.took")} {duration(test.endedAtMs - test.startedAtMs)} · <Age atMs={test.endedAtMs} event /></span>
          : <><span className="dim">{ended} / {test.results.length}</span><Progress w={120} value={test.results.length === 0 ? 0 : (ended / test.results.length) * 100} aria-label={t("pairs.progress")} /><Button size="compact-sm" variant="default" loading={cancel.busy} onClick={() => void cancel.run()}>{t("common.cancel")}</Button></>}
      </div>
      {cancel.error && <ErrorNote error={cancel.error} onClose={cancel.clear} />}
      {test.error && <ErrorNote error={test.error} />}
      {test.suspects.length > 0 && (
        <div className={css.suspects} role="status" data-testid="suspects">
          <IconAlertTriangle size={15} aria-hidden style={{ color: "var(--c-bad)" }} />
          {test.suspects.map((suspect) => <span key={suspect.nodeId}>{t("pairs.suspect", { name: name(suspect.nodeId), failed: suspect.failed, of: suspect.of })}</span>)}
        </div>
      )}
      <div className={css.bar}>
        {test.kinds.length > 1 && <SegmentedControl aria-label={t("pairs.kinds")} value={kind} onChange={(value) => { setKind(value as PairTestKind); setSelected(null); }} data={test.kinds.map((value) => ({ value, label: t(`pairKinds.${value}`) }))} />}
        <SegmentedControl aria-label={t("pairs.metric")} value={metric} onChange={(value) => setMetric(value as Metric)} data={(["latency", "bandwidth"] as const).map((value) => ({ value, label: t(`pairs.metrics.${value}`) }))} />
        <SegmentedControl aria-label={t("pairs.form")} value={form} onChange={(value) => setForm(value as "matrix" | "table")} data={(["matrix", "table"] as const).map((value) => ({ value, label: t(`pairs.forms.${value}`), disabled: value === "matrix" && test.nodeIds.length > MATRIX_UP_TO }))} />
        <span className="spacer" />
        {test.nodeIds.length > MATRIX_UP_TO && <span className="dim">{t("pairs.matrixUpTo", { count: MATRIX_UP_TO })}</span>}
        {form === "matrix" && <span className={css.scale}>{t("pairs.best")} <span className={css.ramp} aria-hidden /> {t("pairs.worst")}</span>}
      </div>
      {form === "matrix"
        ? <div className={css.matrixBox}><Matrix matrix={matrix} metric={metric} name={name} selected={selected} onSelect={setSelected} /></div>
        : <div className={css.table}><DataGrid label={t("pairs.table")} columns={columns} ids={rows} selected={selected === null ? new Set() : new Set([selected])} follow testId="pair-table" onSelect={(next) => setSelected([...next][0] ?? null)} toneOf={(key) => (matrix.cells.get(key)?.state === "failed" ? "bad" : undefined)} /></div>}
      <div className={css.detail} aria-live="polite" data-testid="pair-detail">
        {cell
          ? <>
              <strong>{name(cell.from)} → {name(cell.to)} · {t(`pairKinds.${cell.kind}`)} · {t(`pairStates.${cell.state}`)}{cell.latencyUs !== null && ` · ${us(cell.latencyUs)} µs`}{cell.bandwidthGBps !== null && ` · ${gbps(cell.bandwidthGBps)} GB/s`}</strong>
              {cell.text && <span>{say(cell.text)}</span>}
              {cell.evidence.length > 0 && <Evidence pieces={cell.evidence} />}
              {cell.error && <ErrorNote error={cell.error} />}
            </>
          : <span className="dim">{t("pairs.chooseCell")}</span>}
      </div>
    </div>
  );
}
