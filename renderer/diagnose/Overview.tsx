import { UnstyledButton } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import type { DiagnosisView, FindingView } from "../../electron/contract/index.js";
import { byName } from "../nodes/filter.js";
import { oneLine } from "../shared/printable.js";
import { State } from "../shared/small.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import { causesOf, SeverityState, worseFirst } from "./severity.js";
import { useSay } from "./words.js";
import css from "./diagnose.module.css";

interface ClassRow { finding: FindingView; nodeIds: string[] }

/** One row for each class of fault, whichever nodes have it: the worst first, then the most widespread. */
export function classRows(diagnoses: Iterable<DiagnosisView>): ClassRow[] {
  const rows = new Map<string, ClassRow>();
  for (const diagnosis of diagnoses) {
    for (const finding of causesOf(diagnosis)) {
      const row = rows.get(finding.class);
      if (!row) rows.set(finding.class, { finding, nodeIds: [diagnosis.nodeId] });
      else {
        if (!row.nodeIds.includes(diagnosis.nodeId)) row.nodeIds.push(diagnosis.nodeId);
        if (worseFirst(finding, row.finding) < 0) row.finding = finding;
      }
    }
  }
  return [...rows.values()].sort((a, b) => worseFirst(a.finding, b.finding) || b.nodeIds.length - a.nodeIds.length || (a.finding.class < b.finding.class ? -1 : 1));
}

/** What is wrong in the whole cluster, by cause; a node's name leads to its report. */
export function Overview({ onNode }: { onNode(nodeId: string): void }) {
  const { t } = useTranslation();
  const say = useSay();
  const { nodes, diagnoses } = useConsole();
  const names = useItems(nodes);
  const items = useItems(diagnoses);
  const rows = useMemo(() => classRows(items.values()), [items]);
  const running = [...items.values()].filter((diagnosis) => diagnosis.state === "running").length;
  const name = (id: string) => names.get(id)?.name ?? id;
  return (
    <div className={css.report} data-testid="overview">
      <div className="toolbar">
        <h2>{t("diagnose.overview")}</h2>
        {running > 0 && <State tone="info" icon={IconLoader2} spin label={t("diagnose.runningNodes", { count: running })} />}
        <span className="spacer" />
        <span className="dim">{t("diagnose.checkedNodes", { count: items.size, total: names.size })}</span>
      </div>
      {rows.length === 0 && running === 0 && <State tone="ok" icon={IconCircleCheck} label={t("diagnose.noCauses")} />}
      {rows.length > 0 && (
        <table className={css.overview}>
          <thead><tr><th>{t("diagnose.severity")}</th><th>{t("diagnose.cause")}</th><th>{t("diagnose.onNodes")}</th></tr></thead>
          <tbody>
            {rows.map(({ finding, nodeIds }) => (
              <tr key={finding.class} data-class={finding.class}>
                <td><SeverityState severity={finding.severity} /></td>
                <td><span title={finding.class}>{say(finding.title)}</span></td>
                <td>
                  {[...nodeIds].sort((a, b) => byName(name(a), name(b))).slice(0, 12).map((id) => <UnstyledButton key={id} className={css.nodeLink} onClick={() => onNode(id)}>{oneLine(name(id), 40)}</UnstyledButton>)}
                  {nodeIds.length > 12 && <span className="dim">{t("diagnose.moreNodes", { count: nodeIds.length - 12 })}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
