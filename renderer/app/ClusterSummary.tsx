import { UnstyledButton } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import { useConsole, useHost, useItems } from "../store/console-hooks.js";
import { go } from "./router.js";
import { useUi } from "./ui.js";
import css from "./app.module.css";

/** The header's few facts: how many nodes are up, the cluster's epoch, and what is running now on any page. */
export function ClusterSummary() {
  const { t } = useTranslation();
  const { nodes, operations, runs, topology } = useConsole();
  const items = useItems(nodes);
  const ops = useItems(operations);
  const allRuns = useItems(runs);
  const epoch = useStore(topology, (s) => s.epoch);
  const hello = useHost((s) => s.hello);
  const set = useUi((s) => s.set);
  const up = useMemo(() => [...items.values()].filter((node) => node.phase === "up").length, [items]);
  const working = [...ops.values()].filter((op) => op.state === "running");
  const running = [...allRuns.values()].filter((run) => run.state === "running" || run.state === "starting");
  const parts = working.flatMap((op) => op.nodes);
  const done = parts.filter((part) => part.state !== "pending" && part.state !== "running").length;
  return (
    <div className={css.summary} data-testid="cluster-summary">
      {items.size > 0 && <span>{t("app.nodesUp", { up, count: items.size })}</span>}
      {epoch > 0 && <span className="dim">{t("app.epoch", { epoch })}</span>}
      {working.length > 0 && (
        <UnstyledButton className={css.chip} onClick={() => { go("nodes"); set({ work: true }); }}>
          <IconLoader2 size={13} className="icon-spin" aria-hidden /> {t("app.working", { done, total: parts.length })}
        </UnstyledButton>
      )}
      {running.length > 0 && (
        <UnstyledButton className={css.chip} onClick={() => go("collectives")}>
          <IconLoader2 size={13} className="icon-spin" aria-hidden /> {t("app.runsRunning", { count: running.length })}
        </UnstyledButton>
      )}
      {hello && <span className={css.version}>v{hello.version}</span>}
    </div>
  );
}
