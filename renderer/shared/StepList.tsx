import { Progress } from "@mantine/core";
import { useRef } from "react";
import { useTranslation } from "react-i18next";
import IconArrowBackUp from "@tabler/icons-react/icons/IconArrowBackUp";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleDashed from "@tabler/icons-react/icons/IconCircleDashed";
import IconCircleMinus from "@tabler/icons-react/icons/IconCircleMinus";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconLoader2 from "@tabler/icons-react/icons/IconLoader2";
import type { StepView } from "../../electron/contract/index.js";
import { useNow } from "../store/console.js";
import { ErrorNote } from "./ErrorNote.js";
import { bytes, duration, rate } from "./format.js";
import { NodeText, type Icon } from "./small.js";
import css from "./shared.module.css";

const ICONS: Record<StepView["state"], Icon> = {
  pending: IconCircleDashed, running: IconLoader2, done: IconCircleCheck, skipped: IconCircleMinus, failed: IconCircleX, rolled_back: IconArrowBackUp,
};

/** Bytes a second over the last seconds, from the progress values as they come; null until two differ. */
function useRate(step: StepView): number | null {
  const points = useRef<Array<{ atMs: number; done: number }>>([]);
  const progress = step.state === "running" && step.progress?.unit === "bytes" ? step.progress : null;
  if (!progress) {
    points.current = [];
    return null;
  }
  const list = points.current;
  const now = performance.now();
  if (list.at(-1)?.done !== progress.done) list.push({ atMs: now, done: progress.done });
  while (list.length > 2 && now - list[0]!.atMs > 4000) list.shift();
  const first = list[0]!;
  const last = list.at(-1)!;
  const span = (now - first.atMs) / 1000;
  return list.length < 2 || span < 0.2 ? null : (last.done - first.done) / span;
}

function Step({ step }: { step: StepView }) {
  const { t, i18n } = useTranslation();
  const now = useNow();
  const bytesPerSecond = useRate(step);
  const IconOf = ICONS[step.state];
  const name = i18n.exists(`steps.${step.id}`) ? t(`steps.${step.id}`) : step.id;
  const { progress } = step;
  const percent = progress && progress.total > 0 ? Math.min(100, (progress.done / progress.total) * 100) : 0;
  const elapsed = step.startedAtMs === null ? null : (step.endedAtMs ?? now) - step.startedAtMs;
  const amount = progress && (progress.unit === "bytes" ? `${bytes(progress.done)} / ${bytes(progress.total)}` : `${progress.done} / ${progress.total}`);
  return (
    <li>
      <div className={css.step} data-state={step.state} data-testid={`step-${step.id}`}>
        <span className={css.stepIcon} data-state={step.state}>
          <IconOf size={15} aria-hidden className={step.state === "running" ? "icon-spin" : undefined} />
        </span>
        <span className="ellipsis">{name}<span className="sr-only"> {t(`stepStates.${step.state}`)}</span></span>
        {progress && step.state === "running" ? (
          <span className={css.stepProgress}>
            <Progress value={percent} size="sm" aria-label={name} />
            <span className="dim" style={{ whiteSpace: "nowrap" }}>{amount}</span>
          </span>
        ) : (
          <NodeText text={step.detail ?? ""} />
        )}
        <span className="dim num">{bytesPerSecond !== null ? rate(bytesPerSecond) : step.state === "running" ? "" : step.state === "pending" ? "" : t(`stepStates.${step.state}`)}</span>
        <span className="dim num">{elapsed === null ? "" : duration(elapsed)}</span>
      </div>
      {step.error && <div className={css.stepError}><ErrorNote error={step.error} /></div>}
    </li>
  );
}

/** The steps of one node's part of an operation, in order. */
export function StepList({ steps }: { steps: readonly StepView[] }) {
  return <ol className={css.steps}>{steps.map((step) => <Step key={step.id} step={step} />)}</ol>;
}
