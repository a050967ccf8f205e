import { Loader, UnstyledButton } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconClock from "@tabler/icons-react/icons/IconClock";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import IconShieldX from "@tabler/icons-react/icons/IconShieldX";
import IconX from "@tabler/icons-react/icons/IconX";
import { say, type DiagnosisView, type SourceView } from "../../electron/contract/index.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { bytes, duration } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { Age, NodeText, State, type Icon } from "../shared/small.js";
import { Finding } from "./Finding.js";
import { bySeverity, unread } from "./severity.js";
import css from "./diagnose.module.css";

const SOURCES: Record<SourceView["state"], ["ok" | "warn" | "bad" | "idle", Icon]> = {
  ok: ["ok", IconCircleCheck], missing: ["idle", IconX], not_permitted: ["bad", IconShieldX], timeout: ["warn", IconClock], failed: ["bad", IconAlertTriangle],
};

function Sources({ diagnosis, onSource }: { diagnosis: DiagnosisView; onSource(id: string, line: number | null): void }) {
  const { t } = useTranslation();
  return (
    <section className={css.block}>
      <h3>{t("diagnose.sources")}</h3>
      <table className={css.sources}>
        <thead><tr><th>{t("diagnose.source")}</th><th>{t("diagnose.command")}</th><th>{t("diagnose.state")}</th><th className={css.n}>{t("diagnose.size")}</th><th className={css.n}>{t("diagnose.took")}</th><th>{t("diagnose.read")}</th></tr></thead>
        <tbody>
          {diagnosis.sources.map((source) => (
            <tr key={source.id} data-testid={`source-${source.id}`}>
              <td><UnstyledButton className={css.link} onClick={() => onSource(source.id, null)}>{oneLine(source.id, 60)}</UnstyledButton></td>
              <td className={css.command}><NodeText text={source.command} mono /></td>
              <td><State tone={SOURCES[source.state][0]} icon={SOURCES[source.state][1]} label={t(`sourceStates.${source.state}`)} /></td>
              <td className={css.n}>{bytes(source.text.length)}</td><td className={css.n}>{duration(source.durationMs)}</td><td><Age atMs={source.collectedAtMs} always /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** What the checks of one node say: findings, then what could not be told, then what was read. */
export function NodeReport({ diagnosis, name, onSource }: { diagnosis: DiagnosisView; name: string; onSource(id: string, line: number | null): void }) {
  const { t, i18n } = useTranslation();
  const findings = useMemo(() => bySeverity(diagnosis.findings), [diagnosis.findings]);
  const known = useMemo(() => new Set(diagnosis.sources.map((source) => source.id)), [diagnosis.sources]);
  const missing = unread(diagnosis) + diagnosis.cannotTell.length;
  return (
    <div className={css.report} data-testid="node-report" data-state={diagnosis.state}>
      <div className="toolbar">
        <h2>{name}</h2>
        {diagnosis.state === "running" && <span className="dim"><Loader size={12} /> {t("diagnose.running", { count: diagnosis.sources.length })}</span>}
        {diagnosis.state === "done" && findings.length === 0 && missing === 0 && <State tone="ok" icon={IconCircleCheck} label={t("diagnose.nothing")} />}
        {diagnosis.state === "done" && findings.length === 0 && missing > 0 && <State tone="warn" icon={IconHelpCircle} label={t("diagnose.nothingButUnread")} />}
        {findings.length > 0 && <span>{t("diagnose.findings", { count: findings.length })}</span>}
        <span className="spacer" />
        {diagnosis.endedAtMs !== null && <span className="dim">{t("diagnose.took")} {duration(diagnosis.endedAtMs - diagnosis.startedAtMs)} · <Age atMs={diagnosis.endedAtMs} always /></span>}
      </div>
      {diagnosis.error && <ErrorNote error={diagnosis.error} />}
      {findings.map((finding) => <Finding key={finding.id} finding={finding} onSource={onSource} hasSource={(id) => known.has(id)} />)}
      {diagnosis.cannotTell.length > 0 && (
        <section className={css.block} data-testid="cannot-tell">
          <h3>{t("diagnose.cannotTell")}</h3>
          <p className="dim">{t("diagnose.cannotTellText")}</p>
          <ul className={css.plainList}>
            {diagnosis.cannotTell.map((each) => <li key={each.class}><IconHelpCircle size={13} aria-hidden /> {say(each.title, i18n.language)} <span className="dim">{t("diagnose.missing", { what: oneLine(each.missing.join(", ")) })}</span></li>)}
          </ul>
        </section>
      )}
      {diagnosis.sources.length > 0 && <Sources diagnosis={diagnosis} onSource={onSource} />}
    </div>
  );
}
