import { Button, Loader, UnstyledButton } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconClock from "@tabler/icons-react/icons/IconClock";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconShieldX from "@tabler/icons-react/icons/IconShieldX";
import IconX from "@tabler/icons-react/icons/IconX";
import type { DiagnosisView, SourceView } from "../../electron/contract/index.js";
import type { ShownDiagnosis } from "../store/diagnoses.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { age, bytes, duration } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { Age, ago, NodeText, State, type Icon } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItems, useNow } from "../store/console-hooks.js";
import { CannotTell } from "./CannotTell.js";
import type { SourceLinks } from "./Evidence.js";
import { Findings } from "./Findings.js";
import { FRESH_MS } from "./fleet/plan.js";
import { Fold } from "./Fold.js";
import { SettledMends } from "./mends/SettledMends.js";
import { unread } from "./severity.js";
import { VerdictLine } from "./Verdict.js";
import css from "./diagnose.module.css";

const SOURCES: Record<SourceView["state"], ["ok" | "warn" | "bad" | "idle", Icon]> = {
  ok: ["ok", IconCircleCheck], missing: ["idle", IconX], not_permitted: ["bad", IconShieldX], timeout: ["warn", IconClock], failed: ["bad", IconAlertTriangle],
};

function Sources({ diagnosis, onSource }: { diagnosis: DiagnosisView; onSource(id: string, line: number | null): void }) {
  const { t } = useTranslation();
  return (
    <table className={css.sources}>
      <thead><tr><th>{t("diagnose.source")}</th><th>{t("diagnose.command")}</th><th>{t("diagnose.state")}</th><th className={css.n}>{t("diagnose.size")}</th><th className={css.n}>{t("diagnose.took")}</th><th>{t("diagnose.read")}</th></tr></thead>
      <tbody>
        {diagnosis.sources.map((source) => (
          <tr key={source.id} data-testid={`source-${source.id}`}>
            <td><UnstyledButton className={css.link} onClick={() => onSource(source.id, null)}>{oneLine(source.id, 60)}</UnstyledButton></td>
            <td className={css.command}><NodeText text={source.command} mono /></td>
            <td><State tone={SOURCES[source.state][0]} icon={SOURCES[source.state][1]} label={t(`sourceStates.${source.state}`)} /></td>
            <td className={css.n}>{bytes(source.text.length)}</td><td className={css.n}>{duration(source.durationMs)}</td><td><Age atMs={source.collectedAtMs} event /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export interface NodeReportProps {
  diagnosis: ShownDiagnosis;
  name: string;
  /** False where the diagnosis stands in a support bundle: nothing can be applied there. */
  live?: boolean;
  onSource(id: string, line: number | null): void;
}

/** What the checks of one node say: mends that are done, findings by blame, what could not be told, what was read. */
export function NodeReport({ diagnosis, name, live = true, onSource }: NodeReportProps) {
  const { t } = useTranslation();
  const links = useMemo<SourceLinks>(() => {
    const known = new Set(diagnosis.sources.map((source) => source.id));
    return { has: (id) => known.has(id), open: onSource };
  }, [diagnosis.sources, onSource]);
  const missing = unread(diagnosis);
  const { client, operations } = useConsole();
  const now = useNow();
  const operation = [...useItems(operations).values()].find((op) => op.kind === "diagnose" && op.state === "running" && op.nodes.some((node) => node.nodeId === diagnosis.nodeId));
  const progress = operation?.nodes.find((node) => node.nodeId === diagnosis.nodeId)?.steps.find((each) => each.id === "collect")?.progress;
  const again = useAction(async () => { await client.request("diagnose.start", { nodeIds: [diagnosis.nodeId] }); });
  return (
    <div className={css.report} data-testid="node-report" data-state={diagnosis.state} data-node={diagnosis.nodeId}>
      <div className="toolbar">
        <h2>{name}</h2>
        {diagnosis.state === "running"
          ? <span className="dim" role="status"><Loader size={12} /> {progress ? t("diagnose.running", { count: progress.done, total: progress.total }) : t("diagnose.checking")}</span>
          : diagnosis.verdict !== null && (diagnosis.verdict === "healthy" && missing > 0
            ? <State tone="warn" icon={IconHelpCircle} label={t("diagnose.nothingButUnread", { count: missing })} />
            : <VerdictLine verdict={diagnosis.verdict} />)}
        <span className="spacer" />
        {live && diagnosis.findings.length > 0 && diagnosis.endedAtMs !== null && now - diagnosis.endedAtMs > FRESH_MS && <span className={css.warning}>{t("diagnose.stale")}</span>}
        {diagnosis.endedAtMs !== null && <span className="dim">{t("diagnose.took")} {duration(diagnosis.endedAtMs - diagnosis.startedAtMs)} · <Age atMs={diagnosis.endedAtMs} event /></span>}
        {live && diagnosis.state !== "running" && <Button size="compact-sm" variant="default" loading={again.busy} onClick={() => void again.run()} data-testid="check-again">{t("diagnose.again")}</Button>}
      </div>
      {again.error && <ErrorNote error={again.error} onClose={again.clear} />}
      {diagnosis.error && <ErrorNote error={diagnosis.error} />}
      {diagnosis.earlierMs !== undefined && <p className="dim">{t("diagnose.earlier", { age: ago(age(now - diagnosis.earlierMs), t) })}</p>}
      {live && <SettledMends diagnosis={diagnosis} />}
      <Findings findings={diagnosis.findings} nodeId={live ? diagnosis.nodeId : null} links={links} />
      {live && <SettledMends diagnosis={diagnosis} earlier />}
      <CannotTell items={diagnosis.cannotTell} />
      {diagnosis.sources.length > 0 && (
        <Fold label={<>{t("diagnose.sources")} <span className="dim">{missing > 0 ? t("diagnose.sourcesUnread", { count: diagnosis.sources.length, missing }) : t("diagnose.sourcesRead", { count: diagnosis.sources.length })}</span></>} testId="sources" open={diagnosis.findings.length === 0}>
          <Sources diagnosis={diagnosis} onSource={onSource} />
        </Fold>
      )}
    </div>
  );
}
