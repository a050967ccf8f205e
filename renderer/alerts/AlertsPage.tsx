import { Button, Checkbox } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconBell from "@tabler/icons-react/icons/IconBell";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import type { AlertView } from "../../electron/contract/index.js";
import { go } from "../app/router.js";
import { useGuidesFor } from "../diagnose/guides/use-guides.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { duration, timeOfDay } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { EmptyState, State } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItems, useLoaded, useNow } from "../store/console-hooks.js";
import { HistoryChart } from "./HistoryChart.js";
import { ThresholdForm } from "./ThresholdForm.js";
import { measureText } from "./words.js";
import css from "./alerts.module.css";

const SHOWN = 300;

function Row({ alert, onAcknowledge, busy }: { alert: AlertView; onAcknowledge(): void; busy: boolean }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const known = useItems(nodes).has(alert.nodeId);
  const guide = useGuidesFor(known ? `alert.${alert.rule}` : null)[0];
  const now = useNow();
  const lasts = alert.endedAtMs === null;
  return (
    <tr data-alert={alert.id} data-lasts={lasts || undefined} data-seen={alert.acknowledgedAtMs !== null || undefined}>
      <td>{lasts ? <State tone="bad" icon={IconAlertTriangle} label={t("alerts.lasts")} /> : <State tone="idle" icon={IconCircleCheck} label={t("alerts.over")} />}</td>
      <td>{t(`alerts.rules.${alert.rule}`)}</td>
      <td>{oneLine(alert.nodeName, 40)}{alert.subject !== null && <span className="mono dim"> {oneLine(alert.subject, 20)}</span>}</td>
      <td className="num"><strong>{measureText(alert.rule, alert.worst, t)}</strong> <span className="dim">({measureText(alert.rule, alert.threshold, t)})</span></td>
      <td className="num">{alert.count}</td>
      <td title={new Date(alert.startedAtMs).toISOString()}>{timeOfDay(alert.startedAtMs, now)}</td>
      <td>{duration((alert.endedAtMs ?? now) - alert.startedAtMs)}</td>
      <td>
        <span className={css.acts}>
          {known && <Button size="compact-xs" variant="subtle" onClick={() => go("diagnose", { nodes: alert.nodeId, ...(guide ? { view: "guides", guide } : {}) })}>{t("nodes.diagnose")}</Button>}
          {alert.acknowledgedAtMs === null
            ? <Button size="compact-xs" variant="default" loading={busy} onClick={onAcknowledge}>{t("alerts.acknowledge")}</Button>
            : <span className="dim" title={new Date(alert.acknowledgedAtMs).toISOString()}>{t("alerts.seen")}</span>}
        </span>
      </td>
    </tr>
  );
}

/** What is or was out of bounds, where the bounds lie, and how things were. */
export function AlertsPage() {
  const { t } = useTranslation();
  const { client, alerts } = useConsole();
  const items = useItems(alerts);
  const loaded = useLoaded(alerts);
  const error = useStore(alerts.api, (s) => s.error);
  const [unseenOnly, setUnseenOnly] = useState(false);
  const acknowledge = useAction(async (_signal, alertIds: string[]) => {
    await client.request("alerts.acknowledge", { alertIds });
  });
  const order = useMemo(() => [...items.values()].sort((a, b) => Number(a.endedAtMs !== null) - Number(b.endedAtMs !== null) || b.startedAtMs - a.startedAtMs), [items]);
  const shown = order.filter((alert) => !unseenOnly || alert.acknowledgedAtMs === null);
  const unseen = order.filter((alert) => alert.acknowledgedAtMs === null).map((alert) => alert.id);
  return (
    <div className={css.page}>
      <section className={`panel ${css.list}`} aria-label={t("pages.alerts")}>
        <div className={`toolbar ${css.bar}`}>
          <h2 className="panel-title">{t("alerts.title")}</h2>
          <Checkbox size="xs" label={t("alerts.unseenOnly")} checked={unseenOnly} onChange={() => setUnseenOnly(!unseenOnly)} />
          <span className="spacer" />
          <Button size="xs" variant="default" disabled={unseen.length === 0} loading={acknowledge.busy} onClick={() => void acknowledge.run(unseen.slice(0, 10_000))}>{t("alerts.acknowledgeAll", { count: unseen.length })}</Button>
        </div>
        {error && <ErrorNote error={error} />}
        {acknowledge.error && <ErrorNote error={acknowledge.error} onClose={acknowledge.clear} />}
        {loaded && shown.length === 0 ? <EmptyState icon={IconBell} title={t("alerts.empty.title")}>{t("alerts.empty.text")}</EmptyState> : (
          <div className={css.scroll}>
            <table className={css.table} data-testid="alerts-table">
              <thead><tr>{(["state", "rule", "node", "worst", "count", "since", "duration", "acts"] as const).map((column) => <th key={column} scope="col" className={column === "worst" || column === "count" ? "num" : undefined}>{t(`alerts.columns.${column}`)}</th>)}</tr></thead>
              <tbody>{shown.slice(0, SHOWN).map((alert) => <Row key={alert.id} alert={alert} busy={acknowledge.busy} onAcknowledge={() => void acknowledge.run([alert.id])} />)}</tbody>
            </table>
            {shown.length > SHOWN && <p className="dim">{t("alerts.more", { count: shown.length - SHOWN })}</p>}
          </div>
        )}
      </section>
      <div className={css.lower}>
        <HistoryChart />
        <ThresholdForm />
      </div>
    </div>
  );
}
