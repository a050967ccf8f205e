import { Button } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import IconTool from "@tabler/icons-react/icons/IconTool";
import type { FindingView } from "../../../electron/contract/index.js";
import { CopyButton } from "../../shared/CopyButton.js";
import { printable } from "../../shared/printable.js";
import { useConsole, useItem, useItems } from "../../store/console-hooks.js";
import { useSay } from "../words.js";
import { ApplyDialog } from "./ApplyDialog.js";
import { MendRun } from "./MendRun.js";
import { newestRun } from "./runs.js";
import css from "../diagnose.module.css";

/** The commands that mend a finding, exactly; those that the console may run for the person have a button. Nothing runs without consent. */
export function Mends({ finding, nodeId }: { finding: FindingView; nodeId: string | null }) {
  const { t } = useTranslation();
  const say = useSay();
  const { mends, diagnoses } = useConsole();
  const items = useItems(mends);
  const checking = useItem(diagnoses, nodeId)?.state === "running";
  const [chosen, setChosen] = useState<readonly string[] | null>(null);
  const run = useMemo(() => (nodeId === null ? null : newestRun(items.values(), nodeId, finding.id)), [items, nodeId, finding.id]);
  // While the node is read again the console offers nothing of what it found before.
  const busy = (run !== null && run.endedAtMs === null) || checking;
  return (
    <>
      {finding.mend.map((mend, index) => (
        <div key={index} className={css.mend} data-risk={mend.risk}>
          <div className={css.quote}>
            <code>{printable(mend.command)}</code>
            <CopyButton text={mend.command} label={t("diagnose.copyCommand")} />
            {mend.id !== null && nodeId !== null && (
              <Button size="compact-xs" variant="light" disabled={busy} leftSection={<IconTool size={12} />} onClick={() => setChosen([mend.id!])}>{t("mends.apply")}</Button>
            )}
          </div>
          <div className={css.meaning}>
            <span>{say(mend.explanation)}</span>
            <strong className={css.risk}>{t(`risks.${mend.risk}`)}</strong>
          </div>
        </div>
      ))}
      {run && <MendRun run={run} />}
      {chosen && nodeId !== null && <ApplyDialog nodeId={nodeId} finding={finding} first={chosen} onClose={() => setChosen(null)} />}
    </>
  );
}
