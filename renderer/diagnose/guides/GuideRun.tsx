import { Button } from "@mantine/core";
import { useRef } from "react";
import { useTranslation } from "react-i18next";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleDashed from "@tabler/icons-react/icons/IconCircleDashed";
import IconCircleMinus from "@tabler/icons-react/icons/IconCircleMinus";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import type { GuideRunView, GuideStepView, GuideView } from "../../../electron/contract/index.js";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { duration } from "../../shared/format.js";
import { oneLine } from "../../shared/printable.js";
import { Age, State, type Icon } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { Evidence } from "../Evidence.js";
import { FindingCard } from "../FindingCard.js";
import { Fold } from "../Fold.js";
import { useSay } from "../words.js";
import { PathStrip } from "./PathStrip.js";
import css from "../diagnose.module.css";

type Tone = "ok" | "warn" | "bad" | "info" | "idle";
const STEPS: Record<GuideStepView["state"], [Tone, Icon]> = {
  pending: ["idle", IconCircleDashed], running: ["info", IconLoader2], ok: ["ok", IconCircleCheck], fault: ["bad", IconCircleX], cannot_tell: ["warn", IconHelpCircle], skipped: ["idle", IconCircleMinus],
};
const VERDICTS: Record<NonNullable<GuideRunView["conclusion"]>["verdict"], [Tone, Icon]> = {
  cause_found: ["bad", IconCircleX], not_found: ["ok", IconCircleCheck], cannot_tell: ["warn", IconHelpCircle],
};

function Step({ step, many }: { step: GuideStepView; many: boolean }) {
  const { t } = useTranslation();
  const say = useSay();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const [tone, IconOf] = STEPS[step.state];
  return (
    <li className={css.guideStep} data-state={step.state} data-tone={tone} data-testid="guide-step">
      <IconOf size={16} aria-hidden className={step.state === "running" ? "icon-spin" : undefined} />
      <div>
        <div className={css.question}>
          <span>{say(step.question)}</span>
          <span className="sr-only">{t(`guides.steps.${step.state}`)}</span>
          {many && step.nodeId !== null && <span className="dim">{oneLine(items.get(step.nodeId)?.name ?? step.nodeId, 40)}</span>}
          <span className="spacer" />
          {step.startedAtMs !== null && step.endedAtMs !== null && <span className="dim">{duration(step.endedAtMs - step.startedAtMs)}</span>}
        </div>
        {step.answer && <div className={css.answer}>{say(step.answer)}</div>}
        {step.evidence.length > 0 && (step.state === "fault"
          ? <Evidence pieces={step.evidence} />
          : <Fold label={t("guides.evidence", { count: step.evidence.length })}><Evidence pieces={step.evidence} /></Fold>)}
      </div>
    </li>
  );
}

/** One line that is there from the start: what is asked now, and in the end what it came to. */
function Conclusion({ run, onCause }: { run: GuideRunView; onCause(): void }) {
  const { t } = useTranslation();
  const say = useSay();
  const { conclusion } = run;
  if (!conclusion) {
    const step = run.steps.find((each) => each.state === "running");
    if (run.state === "failed") return null;
    return (
      <div className={css.conclusion} role="status">
        {run.state === "cancelled" ? <span className="dim">{t("guides.cancelled")}</span> : <><State tone="info" icon={IconLoader2} spin label={t("guides.states.running")} />{step && <span>{say(step.question)}</span>}</>}
      </div>
    );
  }
  const [tone, icon] = VERDICTS[conclusion.verdict];
  return (
    <div className={css.conclusion} data-tone={tone} role="status">
      <State tone={tone} icon={icon} label={t(`guides.verdicts.${conclusion.verdict}`)} />
      <span>{say(conclusion.text)}</span>
      {conclusion.cards.length > 0 && <><span className="spacer" /><Button size="compact-xs" variant="default" onClick={onCause}>{t("guides.showCause", { count: conclusion.cards.length })}</Button></>}
    </div>
  );
}

/** A guide as it runs: its checks one after the other, the path that it walked, and the card or cards that it ends in. */
export function GuideRun({ run, guide, onAgain }: { run: GuideRunView; guide: GuideView; onAgain(): void }) {
  const { t } = useTranslation();
  const say = useSay();
  const { client, nodes } = useConsole();
  const items = useItems(nodes);
  const cause = useRef<HTMLDivElement>(null);
  const cancel = useAction(async () => { await client.request("guides.cancel", { guideRunId: run.id }); });
  const name = (id: string) => oneLine(items.get(id)?.name ?? id, 40);
  const done = run.steps.filter((step) => step.state !== "pending" && step.state !== "running").length;
  return (
    <div className={css.report} data-testid="guide-run" data-state={run.state} data-verdict={run.conclusion?.verdict}>
      <div className="toolbar">
        <h2>{say(guide.title)}</h2>
        <span className="dim">{oneLine(run.nodeIds.map(name).join(", "), 120)}</span>
        <span className="spacer" />
        {run.endedAtMs !== null && <span className="dim">{t("diagnose.took")} {duration(run.endedAtMs - run.startedAtMs)} · <Age atMs={run.endedAtMs} event /></span>}
        {run.state === "running"
          ? <><span className="dim">{t("guides.progress", { done, total: run.steps.length })}</span><Button size="compact-sm" variant="default" loading={cancel.busy} onClick={() => void cancel.run()}>{t("common.cancel")}</Button></>
          : <Button size="compact-sm" variant="default" onClick={onAgain}>{t("guides.again")}</Button>}
      </div>
      {cancel.error && <ErrorNote error={cancel.error} onClose={cancel.clear} />}
      {run.error && <ErrorNote error={run.error} />}
      <Conclusion run={run} onCause={() => cause.current?.focus()} />
      {/* What comes with the conclusion stands below what was there before it: nothing that is read moves away. */}
      <section className={css.block}>
        <h3>{t("guides.checks")}</h3>
        <ol className={css.guideSteps}>{run.steps.map((step, index) => <Step key={`${step.id}/${index}`} step={step} many={run.nodeIds.length > 1} />)}</ol>
      </section>
      {run.paths.map((path, index) => <PathStrip key={index} path={path} />)}
      {run.conclusion && run.conclusion.cards.length > 0 && (
        <div ref={cause} tabIndex={-1} className={css.result} role="region" aria-label={t("guides.causes")}>
          {run.conclusion.cards.map((card) => <FindingCard key={`${card.nodeId}/${card.finding.id}`} finding={card.finding} nodeId={card.nodeId} nodeName={name(card.nodeId)} />)}
        </div>
      )}
    </div>
  );
}
