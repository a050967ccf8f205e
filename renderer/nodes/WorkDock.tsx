import { ActionIcon, Button, Progress, UnstyledButton } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import IconCheck from "@tabler/icons-react/icons/IconCheck";
import IconChevronDown from "@tabler/icons-react/icons/IconChevronDown";
import IconChevronRight from "@tabler/icons-react/icons/IconChevronRight";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleDashed from "@tabler/icons-react/icons/IconCircleDashed";
import IconCircleMinus from "@tabler/icons-react/icons/IconCircleMinus";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import IconX from "@tabler/icons-react/icons/IconX";
import type { OperationView } from "../../electron/contract/index.js";
import { useUi } from "../app/ui.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { duration, timeOfDay } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { State, type Icon } from "../shared/small.js";
import { StepList } from "../shared/StepList.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItem, useItems, useNow } from "../store/console-hooks.js";
import css from "./nodes.module.css";

type Part = OperationView["nodes"][number];
type PartState = Part["state"];
const STATES: Record<PartState, ["ok" | "bad" | "info" | "idle" | "warn", Icon]> = {
  pending: ["idle", IconCircleDashed], running: ["info", IconLoader2], succeeded: ["ok", IconCircleCheck], failed: ["bad", IconCircleX], cancelled: ["warn", IconCircleMinus],
};

/** How many operations the dock keeps in sight. */
const KEPT = 4;

function NodePart({ part, single }: { part: Part; single: boolean }) {
  const { t, i18n } = useTranslation();
  const { nodes } = useConsole();
  const node = useItem(nodes, part.nodeId);
  const [chosen, setChosen] = useState<boolean | null>(null);
  const open = chosen ?? (single || part.state === "failed");
  const done = part.steps.filter((step) => step.state === "done" || step.state === "skipped").length;
  const current = part.steps.find((step) => step.state === "running" || step.state === "failed");
  const inStep = current?.progress && current.progress.total > 0 ? current.progress.done / current.progress.total : 0;
  const percent = part.state === "succeeded" ? 100 : part.steps.length === 0 ? 0 : ((done + inStep) / part.steps.length) * 100;
  const [tone, icon] = STATES[part.state];
  const stepName = current ? (i18n.exists(`steps.${current.id}`) ? t(`steps.${current.id}`) : current.id) : "";
  const name = oneLine(node?.name ?? part.nodeId, 60);
  return (
    <li className={css.part} data-testid={`work-${part.nodeId}`} data-state={part.state}>
      <UnstyledButton className={css.partHead} aria-expanded={open} onClick={() => setChosen(!open)}>
        {open ? <IconChevronDown size={14} aria-hidden /> : <IconChevronRight size={14} aria-hidden />}
        <strong className="ellipsis">{name}</strong>
        <State tone={tone} icon={icon} label={t(`partStates.${part.state}`)} spin={part.state === "running"} />
        <span className="ellipsis dim">{part.state === "running" || part.state === "failed" ? stepName : ""}</span>
        <Progress value={percent} size="sm" color={part.state === "failed" ? "red" : part.state === "succeeded" ? "green" : "blue"} aria-label={t("work.progressOf", { name })} />
        <span className="num dim">{t("work.steps", { done, total: part.steps.length })}</span>
      </UnstyledButton>
      {open && (
        <div className={css.partBody}>
          <StepList steps={part.steps} />
          {part.error && !part.steps.some((step) => step.error) && <ErrorNote error={part.error} />}
        </div>
      )}
    </li>
  );
}

function Operation({ operation }: { operation: OperationView }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const now = useNow();
  const cancel = useAction(async () => {
    await client.request("operations.cancel", { operationId: operation.id });
  });
  const ended = operation.nodes.filter((part) => part.state !== "pending" && part.state !== "running");
  const failed = operation.nodes.filter((part) => part.state === "failed").length;
  return (
    <section className={css.operation} data-testid="operation" data-state={operation.state}>
      <div className={css.operationHead}>
        <strong>{t(`operations.${operation.kind}`)}</strong>
        <span>{t("work.nodesDone", { done: ended.length, total: operation.nodes.length })}</span>
        {failed > 0 && <State tone="bad" icon={IconCircleX} label={t("work.failed", { count: failed })} />}
        {operation.state === "succeeded" && <State tone="ok" icon={IconCheck} label={t("operationStates.succeeded")} />}
        {operation.state === "cancelled" && <State tone="warn" icon={IconCircleMinus} label={t("operationStates.cancelled")} />}
        <span className="dim">{timeOfDay(operation.startedAtMs, now)} · {duration((operation.endedAtMs ?? now) - operation.startedAtMs)}</span>
        <span className="spacer" />
        {operation.state === "running" && <Button size="compact-xs" variant="default" loading={cancel.busy} onClick={() => void cancel.run()}>{t("common.cancel")}</Button>}
      </div>
      {cancel.error && <ErrorNote error={cancel.error} onClose={cancel.clear} />}
      <ul className={css.parts}>
        {operation.nodes.map((part) => <NodePart key={part.nodeId} part={part} single={operation.nodes.length === 1} />)}
      </ul>
    </section>
  );
}

/** What is being done to the nodes, newest first: one line a node, its steps on demand, failures open by themselves. */
export function WorkDock() {
  const { t } = useTranslation();
  const { operations } = useConsole();
  const items = useItems(operations);
  const open = useUi((s) => s.work);
  const set = useUi((s) => s.set);
  const list = useMemo(
    () => [...items.values()].filter((op) => op.kind !== "diagnose").sort((a, b) => b.startedAtMs - a.startedAtMs).slice(0, KEPT), [items],
  );
  if (list.length === 0) return null;
  const running = list.filter((op) => op.state === "running").length;
  return (
    <section className={`panel ${css.dock}`} data-open={open || undefined} aria-label={t("work.title")} data-testid="work-dock">
      <div className={css.dockHead}>
        <UnstyledButton className={css.dockTitle} aria-expanded={open} onClick={() => set({ work: !open })}>
          {open ? <IconChevronDown size={14} aria-hidden /> : <IconChevronRight size={14} aria-hidden />} {t("work.title")}
          {running > 0 && <State tone="info" icon={IconLoader2} spin label={t("work.running", { count: running })} />}
        </UnstyledButton>
        <span className="spacer" />
        {open && <ActionIcon size="sm" aria-label={t("common.close")} onClick={() => set({ work: false })}><IconX size={14} /></ActionIcon>}
      </div>
      {open && <div className={css.dockBody}>{list.map((operation) => <Operation key={operation.id} operation={operation} />)}</div>}
    </section>
  );
}
