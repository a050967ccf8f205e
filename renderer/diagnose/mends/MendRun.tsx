import { Button } from "@mantine/core";
import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleDashed from "@tabler/icons-react/icons/IconCircleDashed";
import IconCircleMinus from "@tabler/icons-react/icons/IconCircleMinus";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import type { MendRunView } from "../../../electron/contract/index.js";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { duration } from "../../shared/format.js";
import { printable } from "../../shared/printable.js";
import { State, type Icon } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useNow } from "../../store/console-hooks.js";
import { useDiagnoseUi } from "../store.js";
import { BeforeAfter } from "./BeforeAfter.js";
import css from "../diagnose.module.css";

const STATES: Record<MendRunView["state"], ["ok" | "warn" | "bad" | "info" | "idle", Icon]> = {
  applying: ["info", IconLoader2], retesting: ["info", IconLoader2], mended: ["ok", IconCircleCheck], not_mended: ["bad", IconCircleX], unknown: ["warn", IconHelpCircle],
  failed: ["bad", IconCircleX], cancelled: ["idle", IconCircleMinus],
};
const STEPS: Record<MendRunView["steps"][number]["state"], Icon> = { pending: IconCircleDashed, running: IconLoader2, done: IconCircleCheck, failed: IconCircleX, skipped: IconCircleMinus };

/** The end of an output, kept in view while it grows, unless the person scrolled away from it. */
function Output({ text, label }: { text: string; label: string }) {
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true);
  useEffect(() => {
    const element = box.current;
    if (element && follows.current) element.scrollTop = element.scrollHeight;
  }, [text]);
  return (
    <pre
      ref={box} className={css.output} tabIndex={0} role="log" aria-label={label}
      onScroll={(event) => { const of = event.currentTarget; follows.current = of.scrollHeight - of.scrollTop - of.clientHeight < 24; }}
    >{printable(text)}</pre>
  );
}

export const runElementId = (runId: string): string => `mend-run-${runId}`;

/** A mend as it runs: each command with its output, then what the re-test says, before beside after. */
export function MendRun({ run }: { run: MendRunView }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const now = useNow();
  const ui = useDiagnoseUi();
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    if (ui.getState().followedRun === run.id && document.activeElement === document.body) box.current?.focus();
  }, [ui, run.id]);
  const cancel = useAction(async () => { await client.request("mends.cancel", { mendRunId: run.id }); });
  const [tone, icon] = STATES[run.state];
  const going = run.endedAtMs === null;
  return (
    <section
      ref={box} id={runElementId(run.id)} tabIndex={-1} className={css.mendRun} data-testid="mend-run" data-state={run.state} aria-live="polite" aria-label={t("mends.run")}
      onFocus={() => ui.setState({ followedRun: run.id })} onBlur={(event) => { if (event.relatedTarget !== null) ui.setState({ followedRun: null }); }}
    >
      <div className="toolbar">
        <strong><State tone={tone} icon={icon} spin={going} label={t(`mendStates.${run.state}`)} /></strong>
        <span className="dim">{duration((run.endedAtMs ?? Math.max(now, run.startedAtMs)) - run.startedAtMs)}</span>
        <span className="spacer" />
        {run.state === "applying" && <Button size="compact-xs" variant="default" loading={cancel.busy} onClick={() => void cancel.run()}>{t("mends.cancel")}</Button>}
      </div>
      {cancel.error && <ErrorNote error={cancel.error} onClose={cancel.clear} compact />}
      <ol className={css.runSteps}>
        {run.steps.map((step, index) => {
          const StepIcon = STEPS[step.state];
          return (
            <li key={index} data-state={step.state}>
              <span className={css.runStep}>
                <StepIcon size={14} aria-hidden className={step.state === "running" ? "icon-spin" : undefined} />
                <span className="sr-only">{t(`stepStates.${step.state}`)}</span>
                <code>{printable(step.command)}</code>
                {step.status !== null && <span className="dim">{t("mends.status", { status: step.status })}</span>}
              </span>
              {step.output !== "" && <Output text={step.output} label={t("mends.output")} />}
            </li>
          );
        })}
      </ol>
      {run.error && <ErrorNote error={run.error} />}
      {run.after && <BeforeAfter before={run.before} after={run.after} />}
    </section>
  );
}
