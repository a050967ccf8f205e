import { Button, Checkbox } from "@mantine/core";
import { useCallback, useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import IconPlayerPlay from "@tabler/icons-react/icons/IconPlayerPlay";
import IconStethoscope from "@tabler/icons-react/icons/IconStethoscope";
import { byName } from "../nodes/filter.js";
import { DataGrid, type Column } from "../shared/DataGrid.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { oneLine } from "../shared/printable.js";
import { EmptyState, NodeText, State } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useIds, useItem, useItems, useLoaded } from "../store/console-hooks.js";
import { Fleet } from "./fleet/Fleet.js";
import { NodeReport } from "./NodeReport.js";
import { causesOf, SeverityState, unread, worst } from "./severity.js";
import { SourceViewer } from "./SourceViewer.js";
import { useDiagnoseUi } from "./store.js";
import css from "./diagnose.module.css";

/** Row of the whole cluster; no node's id has a star. */
const ALL = "*";

function Name({ id }: { id: string }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const node = useItem(nodes, id);
  return id === ALL ? <strong>{t("diagnose.cluster")}</strong> : <NodeText text={node?.name ?? id} />;
}
function Choose({ id }: { id: string }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const node = useItem(nodes, id);
  const ui = useDiagnoseUi();
  const chosen = useStore(ui, (s) => s.chosen);
  if (id === ALL) return null;
  return (
    <Checkbox
      tabIndex={-1} aria-label={t("nodes.selectNode", { name: oneLine(node?.name ?? id) })} checked={chosen.has(id)} onClick={(event) => event.stopPropagation()}
      onChange={() => {
        const next = new Set(chosen);
        if (!next.delete(id)) next.add(id);
        ui.setState({ chosen: next });
      }}
    />
  );
}
function Outcome({ id }: { id: string }) {
  const { t } = useTranslation();
  const { diagnoses } = useConsole();
  const diagnosis = useItem(diagnoses, id);
  if (id === ALL) return null;
  if (!diagnosis) return <span className="dim">{t("diagnose.notChecked")}</span>;
  if (diagnosis.state === "running") return <State tone="info" icon={IconLoader2} spin label={t("diagnose.checking")} />;
  if (diagnosis.state === "failed") return <State tone="bad" icon={IconCircleX} label={diagnosis.error?.code ?? t("operationStates.failed")} />;
  const severity = worst(diagnosis);
  if (severity !== null) return <><SeverityState severity={severity} /><span className="dim" style={{ marginLeft: 6 }}>{causesOf(diagnosis).length}</span></>;
  return unread(diagnosis) > 0 ? <State tone="warn" icon={IconHelpCircle} label={t("diagnose.partly")} /> : <State tone="ok" icon={IconCircleCheck} label={t("diagnose.clean")} />;
}

/** Checks of nodes, and what they say: the cluster by cause, or one node in full. */
export function NodesView() {
  const { t } = useTranslation();
  const { client, nodes, diagnoses, operations } = useConsole();
  const ui = useDiagnoseUi();
  const main = useRef<HTMLDivElement>(null);
  const items = useItems(nodes);
  const loaded = useLoaded(nodes);
  const shown = useStore(ui, (s) => s.shown);
  const chosen = useStore(ui, (s) => s.chosen);
  const source = useStore(ui, (s) => s.source);
  const error = useStore(diagnoses.api, (s) => s.error);
  const checked = useIds(diagnoses).length;
  const ids = useMemo(() => [...items.values()].sort((a, b) => byName(a.name, b.name) || byName(a.id, b.id)).map((node) => node.id), [items]);
  const rows = useMemo(() => (ids.length > 1 ? [ALL, ...ids] : ids), [ids]);
  const running = [...useItems(operations).values()].filter((op) => op.kind === "diagnose" && op.state === "running");
  const start = useAction(async () => {
    const nodeIds = (chosen.size > 0 ? [...chosen] : ids).filter((id) => items.has(id));
    await client.request("diagnose.start", { nodeIds });
    if (nodeIds.length === 1) ui.setState({ shown: nodeIds[0]! });
    else if (shown !== null && !nodeIds.includes(shown)) ui.setState({ shown: null });
  });
  const cancel = useAction(async () => {
    for (const op of running) await client.request("operations.cancel", { operationId: op.id });
  });
  const columns = useMemo<Column[]>(() => [
    { key: "choose", header: "", width: "32px", cell: (id) => <Choose id={id} /> },
    { key: "name", header: t("nodes.columns.name"), width: "minmax(110px, 1fr)", cell: (id) => <Name id={id} /> },
    { key: "outcome", header: t("diagnose.outcome"), width: "138px", cell: (id) => <Outcome id={id} /> },
  ], [t]);
  const current = shown ?? (ids.length === 1 ? ids[0]! : null);
  const diagnosis = useItem(diagnoses, current);
  const opened = useItem(diagnoses, source?.nodeId ?? null)?.sources.find((each) => each.id === source?.sourceId) ?? null;
  const selected = useMemo(() => new Set([current ?? ALL]), [current]);
  const openSource = useCallback((sourceId: string, line: number | null) => {
    if (current !== null) ui.setState({ source: { nodeId: current, sourceId, line } });
  }, [current, ui]);
  const showNode = useCallback((id: string) => ui.setState({ shown: id }), [ui]);
  return (
    <>
      <div className={css.side}>
        <div className="toolbar">
          {running.length > 0
            ? <Button variant="default" loading={cancel.busy} onClick={() => void cancel.run()}>{t("diagnose.cancel")}</Button>
            : <Button leftSection={<IconPlayerPlay size={14} />} disabled={ids.length === 0} loading={start.busy} onClick={() => void start.run()} data-testid="run-checks">{chosen.size > 0 ? t("diagnose.runChosen", { count: chosen.size }) : t("diagnose.runAll")}</Button>}
          {chosen.size > 0 && <Button variant="subtle" onClick={() => ui.setState({ chosen: new Set() })}>{t("diagnose.clear")}</Button>}
        </div>
        {start.error && <ErrorNote error={start.error} onClose={start.clear} />}
        {cancel.error && <ErrorNote error={cancel.error} onClose={cancel.clear} />}
        <div className={`panel ${css.list}`}>
          <DataGrid label={t("diagnose.nodes")} columns={columns} ids={rows} selected={selected} follow testId="diagnose-nodes" onOpen={() => main.current?.focus()} onSelect={(next) => { if (next.size === 1) { const [id] = next; ui.setState({ shown: id === ALL ? null : id! }); } }} />
        </div>
      </div>
      <div className={`panel ${css.main}`} ref={main} tabIndex={-1} role="region" aria-label={current === null ? t("diagnose.overview") : t("diagnose.report", { name: oneLine(items.get(current)?.name ?? current, 60) })}>
        {error && <ErrorNote error={error} />}
        {current !== null && diagnosis
          ? <NodeReport key={current} diagnosis={diagnosis} name={oneLine(items.get(current)?.name ?? current, 60)} onSource={openSource} />
          : current === null && checked > 0
            ? <Fleet onNode={showNode} />
            : loaded && <EmptyState icon={IconStethoscope} title={t("diagnose.none.title")}>{t("diagnose.none.text")}</EmptyState>}
      </div>
      <SourceViewer source={opened} nodeId={source?.nodeId ?? null} line={source?.line ?? null} onClose={() => ui.setState({ source: null })} />
    </>
  );
}
