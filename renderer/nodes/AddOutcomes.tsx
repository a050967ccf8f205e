import { useTranslation } from "react-i18next";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import { ErrorNote } from "../shared/ErrorNote.js";
import { NodeText, State } from "../shared/small.js";
import type { AddOutcome } from "./use-add.js";
import css from "./nodes.module.css";

/** What became of each node that was to be added; shown when not all went well. */
export function AddOutcomes({ outcomes }: { outcomes: readonly AddOutcome[] }) {
  const { t } = useTranslation();
  if (outcomes.every((outcome) => outcome.error === null)) return null;
  return (
    <div className={css.stack} aria-live="polite">
      {outcomes.map((outcome) => (
        <div key={outcome.label}>
          <div className={css.result}>
            <NodeText text={outcome.label} mono />
            {outcome.error === null && <State tone="ok" icon={IconCircleCheck} label={t("add.added")} />}
          </div>
          {outcome.error && <ErrorNote error={outcome.error} compact />}
        </div>
      ))}
    </div>
  );
}
