import { Button } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { FindingView } from "../../electron/contract/index.js";
import { CopyButton } from "../shared/CopyButton.js";
import { oneLine, printable } from "../shared/printable.js";
import { SeverityState, toneOf } from "./severity.js";
import css from "./diagnose.module.css";

/** The texts of a finding in the chosen language; the host's own where the class has no translation or a value is missing. */
function useFindingText(finding: FindingView): { title: string; explanation: string } {
  const { t, i18n } = useTranslation();
  const params = Object.fromEntries(Object.entries(finding.params).map(([key, value]) => [key, oneLine(String(value))]));
  const text = (part: "title" | "explanation") => {
    const key = `findings.${finding.class}.${part}`;
    if (i18n.language !== "en" && i18n.exists(key)) {
      const translated = t(key, { ...params, interpolation: { skipOnVariables: true } });
      if (!/\{\{\w+\}\}/.test(translated)) return translated;
    }
    return printable(finding[part]);
  };
  return { title: text("title"), explanation: text("explanation") };
}

export interface FindingProps {
  finding: FindingView;
  onSource(sourceId: string, line: number | null): void;
  hasSource(sourceId: string): boolean;
}

/** One finding: what is wrong, the lines that prove it, what was excluded, and the commands that mend it with their risk. */
export function Finding({ finding, onSource, hasSource }: FindingProps) {
  const { t } = useTranslation();
  const { title, explanation } = useFindingText(finding);
  return (
    <article className={css.finding} data-tone={toneOf(finding.severity)} data-testid="finding" data-class={finding.class}>
      <header>
        <SeverityState severity={finding.severity} />
        <h3>{title}</h3>
        {finding.count > 1 && <span className={css.count}>{t("diagnose.times", { count: finding.count })}</span>}
        <span className="spacer" />
        <code className="mono dim">{finding.class}</code>
      </header>
      <p>{explanation}</p>
      {finding.evidence.length > 0 && (
        <section>
          <h4>{t("diagnose.evidence")}</h4>
          <ul className={css.evidence}>
            {finding.evidence.map((piece, index) => (
              <li key={index}>
                <div className={css.quote}>
                  <code>{piece.lineNumber !== null && <span className={css.lineNumber}>{piece.lineNumber}</span>}{printable(piece.line)}</code>
                  <CopyButton text={piece.line} />
                </div>
                <span className="dim">
                  {hasSource(piece.source)
                    ? <Button size="compact-xs" variant="subtle" onClick={() => onSource(piece.source, piece.lineNumber)}>{oneLine(piece.source, 60)}</Button>
                    : oneLine(piece.source, 60)}
                  {piece.meaning !== null && <> {printable(piece.meaning)}</>}
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {finding.checked.length > 0 && (
        <section>
          <h4>{t("diagnose.checked")}</h4>
          <ul className={css.plainList}>{finding.checked.map((what, index) => <li key={index}>{printable(what)}</li>)}</ul>
        </section>
      )}
      {finding.mend.length > 0 && (
        <section>
          <h4>{t("diagnose.mend")}</h4>
          {finding.mend.map((mend, index) => (
            <div key={index} className={css.mend} data-risk={mend.risk}>
              <div className={css.quote}><code>{printable(mend.command)}</code><CopyButton text={mend.command} label={t("diagnose.copyCommand")} /></div>
              <span>{printable(mend.explanation)} <strong className={css.risk}>{t(`risks.${mend.risk}`)}</strong></span>
            </div>
          ))}
        </section>
      )}
    </article>
  );
}
