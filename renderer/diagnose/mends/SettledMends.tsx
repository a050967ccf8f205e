import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { DiagnosisView } from "../../../electron/contract/index.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { Fold } from "../Fold.js";
import { useSay } from "../words.js";
import { MendRun } from "./MendRun.js";
import { settledRuns } from "./runs.js";
import css from "../diagnose.module.css";

const KEPT_MS = 12 * 3_600_000;

/**
 * Mends whose fault is gone from this diagnosis: their card is no longer there to hold them. They stay until the next day's work: those
 * that this diagnosis confirmed, or those of `earlier`, which are folded so that they never stand before a fault of now.
 */
export function SettledMends({ diagnosis, earlier = false }: { diagnosis: DiagnosisView; earlier?: boolean }) {
  const { t } = useTranslation();
  const say = useSay();
  const { mends } = useConsole();
  const items = useItems(mends);
  const runs = useMemo(
    () => settledRuns(items.values(), diagnosis.nodeId, new Set(diagnosis.findings.map((finding) => finding.id)), diagnosis.startedAtMs - KEPT_MS)
      .filter((run) => earlier === (run.endedAtMs !== null && run.endedAtMs < diagnosis.startedAtMs)),
    [items, diagnosis, earlier],
  );
  const cards = runs.map((run) => (
    <article key={run.id} className={css.finding} data-tone={run.state === "mended" ? "ok" : "info"} data-testid="settled-mend" data-class={run.class} data-state={run.state}>
      <header><h3>{say(run.title)}</h3><span className="spacer" /><code className={css.code}>{run.class}</code></header>
      <MendRun run={run} />
    </article>
  ));
  if (runs.length === 0) return null;
  return earlier ? <Fold label={t("mends.earlier", { count: runs.length })}>{cards}</Fold> : <>{cards}</>;
}
