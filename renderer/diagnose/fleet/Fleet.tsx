import { Button } from "@mantine/core";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import { State } from "../../shared/small.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { unread } from "../severity.js";
import { FaultGroupItem } from "./FaultGroupItem.js";
import { faultGroups, inShownOrder } from "./groups.js";
import { GroupRunPanel } from "./GroupRunPanel.js";
import { useFleetUi, useGroupMender } from "./store.js";
import css from "./fleet.module.css";
import page from "../diagnose.module.css";

/** What is wrong in the whole cluster: one entry for each fault with all nodes that have it, and the mends of many nodes. */
export function Fleet({ onNode }: { onNode(nodeId: string): void }) {
  const { t } = useTranslation();
  const { nodes, diagnoses } = useConsole();
  const known = useItems(nodes);
  const items = useItems(diagnoses);
  const ui = useFleetUi();
  const { open, order } = useStore(ui);
  const mender = useGroupMender();
  const runs = useStore(mender.store, (s) => s.runs);
  const box = useRef<HTMLDivElement>(null);
  const sorted = useMemo(() => faultGroups(items.values()), [items]);
  const groups = inShownOrder(sorted, order);
  const moved = groups.some((group, index) => group.key !== sorted[index]!.key);
  const running = [...items.values()].filter((diagnosis) => diagnosis.state === "running").length;
  const failed = [...items.values()].filter((diagnosis) => diagnosis.state === "failed").length;
  const partly = [...items.values()].filter((diagnosis) => diagnosis.state === "done" && unread(diagnosis) > 0).length;
  const sort = useCallback(() => ui.setState({ order: sorted.map((group) => group.key) }), [ui, sorted]);
  const keys = groups.map((group) => group.key).join("\n");
  useEffect(() => {
    // Worst first, unless that would move what somebody reads or has the focus in.
    const inUse = open.size > 0 || (box.current?.contains(document.activeElement) ?? false);
    if (running === 0 && !inUse) sort();
    else ui.setState({ order: keys === "" ? [] : keys.split("\n") });
  }, [keys, running]);
  const toggle = useCallback((key: string) => ui.setState((before) => {
    const next = new Set(before.open);
    if (!next.delete(key)) next.add(key);
    return { open: next };
  }), [ui]);
  return (
    <div className={`${page.report} ${css.fleet}`} data-testid="overview" ref={box}>
      <div className="toolbar">
        <h2>{t("diagnose.overview")}</h2>
        {running > 0 && <State tone="info" icon={IconLoader2} spin label={t("diagnose.runningNodes", { count: running })} />}
        <span className="spacer" />
        {moved && <Button size="compact-xs" variant="default" onClick={sort}>{t("fleet.sort")}</Button>}
        <span className="dim">{t("diagnose.checkedNodes", { count: items.size - running, total: known.size })}</span>
      </div>
      {runs.map((run) => <GroupRunPanel key={run.id} run={run} mender={mender} onNode={onNode} />)}
      {groups.length === 0 && running === 0 && <State tone="ok" icon={IconCircleCheck} label={t("diagnose.noCauses")} />}
      {groups.length > 0 && <div className={css.groups}>{groups.map((group) => <FaultGroupItem key={group.key} group={group} open={open.has(group.key)} onToggle={toggle} onNode={onNode} />)}</div>}
      {failed > 0 && <State tone="bad" icon={IconHelpCircle} label={t("fleet.failed", { count: failed })} />}
      {partly > 0 && <State tone="warn" icon={IconHelpCircle} label={t("fleet.partly", { count: partly })} />}
    </div>
  );
}
