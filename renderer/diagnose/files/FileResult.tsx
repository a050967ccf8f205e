import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { FileDiagnosisView, FindingView } from "../../../electron/contract/index.js";
import { bytes, duration } from "../../shared/format.js";
import { oneLine } from "../../shared/printable.js";
import { CannotTell } from "../CannotTell.js";
import { Findings } from "../Findings.js";
import { VerdictLine } from "../Verdict.js";
import css from "./files.module.css";
import page from "../diagnose.module.css";

/** Files of many machines: each machine's findings under its name, the one with the first cause first. */
function byHost(findings: readonly FindingView[]): Array<[string | null, FindingView[]]> {
  const hosts = new Map<string | null, FindingView[]>();
  for (const finding of findings) hosts.set(finding.host, [...(hosts.get(finding.host) ?? []), finding]);
  return [...hosts];
}

/** What the engine makes of files. There is no node behind them: commands are shown, none can be applied. */
export function FileResult({ result }: { result: FileDiagnosisView }) {
  const { t } = useTranslation();
  const hosts = useMemo(() => byHost(result.findings), [result.findings]);
  return (
    <section className={page.result} data-testid="file-result" data-verdict={result.verdict}>
      <div className="toolbar"><h2><VerdictLine verdict={result.verdict} /></h2></div>
      <div className={css.facts}>
        <span>{t("files.read", { count: result.files.length, size: bytes(result.files.reduce((sum, file) => sum + file.sizeBytes, 0)) })}</span>
        <span>{t("files.lines", { count: result.lines })}</span>
        <span>{t("diagnose.took")} {duration(result.durationMs)}</span>
        {result.inputs.length > 0 && <span>{t("files.recognised", { what: oneLine(result.inputs.join(", "), 200) })}</span>}
        {result.droppedChars > 0 && <span style={{ color: "var(--c-warn)" }}>{t("files.dropped", { count: result.droppedChars })}</span>}
      </div>
      {result.verdict === "not_in_this_log" && <p>{t("files.notInThisLog")}</p>}
      {hosts.map(([host, findings]) => (
        <div key={host ?? ""} className={page.result}>
          {hosts.length > 1 && <h3 className={page.host}>{host === null ? t("files.noHost") : oneLine(host, 80)}</h3>}
          <Findings findings={findings} nodeId={null} />
        </div>
      ))}
      <CannotTell items={result.cannotTell} />
    </section>
  );
}
