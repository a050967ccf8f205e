import { useMemo } from "react";
import type { DiagnosisView } from "../../../electron/contract/index.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { useSay } from "../words.js";
import { MendRun } from "./MendRun.js";
import { settledRuns } from "./runs.js";
import css from "../diagnose.module.css";

/** Mends whose fault is gone from this diagnosis: their card is no longer there to hold them. They stay until the next day's work. */
const KEPT_MS = 12 * 3_600_000;

export function SettledMends({ diagnosis }: { diagnosis: DiagnosisView }) {
  const say = useSay();
  const { mends } = useConsole();
  const items = useItems(mends);
  const runs = useMemo(
    () => settledRuns(items.values(), diagnosis.nodeId, new Set(diagnosis.findings.map((finding) => finding.id)), diagnosis.startedAtMs - KEPT_MS),
    [items, diagnosis],
  );
  return (
    <>
      {runs.map((run) => (
        <article key={run.id} className={css.finding} data-tone={run.state === "mended" ? "ok" : "info"} data-testid="settled-mend" data-class={run.class} data-state={run.state}>
          <header><h3>{say(run.title)}</h3><span className="spacer" /><code className={css.code}>{run.class}</code></header>
          <MendRun run={run} />
        </article>
      ))}
    </>
  );
}
