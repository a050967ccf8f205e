import { Button } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { say, type FindingView, type Words } from "../../electron/contract/index.js";
import { CopyButton } from "../shared/CopyButton.js";
import { oneLine, printable } from "../shared/printable.js";
import { SeverityState, toneOf } from "./severity.js";
import css from "./diagnose.module.css";

export interface FindingProps {
  finding: FindingView;
  onSource(sourceId: string, line: number | null): void;
  hasSource(sourceId: string): boolean;
}

/** One finding: what is wrong, the lines that prove it, what was excluded, and the commands that mend it with their risk. */
export function Finding({ finding, onSource, hasSource }: FindingProps) {
  const { t, i18n } = useTranslation();
  const words = (of: Words) => printable(say(of, i18n.language));
  return (
    <article className={css.finding} data-tone={toneOf(finding.severity)} data-testid="finding" data-class={finding.class}>
      <header>
        <SeverityState severity={finding.severity} />
        <h3>{words(finding.title)}</h3>
        {finding.count > 1 && <span className={css.count}>{t("diagnose.times", { count: finding.count })}</span>}
        <span className="spacer" />
        <code className="mono dim">{finding.class}</code>
      </header>
      <p>{words(finding.explanation)}</p>
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
                  {piece.meaning !== null && <> {words(piece.meaning)}</>}
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {finding.checked.length > 0 && (
        <section>
          <h4>{t("diagnose.checked")}</h4>
          <ul className={css.plainList}>{finding.checked.map((what, index) => <li key={index}>{words(what)}</li>)}</ul>
        </section>
      )}
      {finding.mend.length > 0 && (
        <section>
          <h4>{t("diagnose.mend")}</h4>
          {finding.mend.map((mend, index) => (
            <div key={index} className={css.mend} data-risk={mend.risk}>
              <div className={css.quote}><code>{printable(mend.command)}</code><CopyButton text={mend.command} label={t("diagnose.copyCommand")} /></div>
              <span>{words(mend.explanation)} <strong className={css.risk}>{t(`risks.${mend.risk}`)}</strong></span>
            </div>
          ))}
        </section>
      )}
    </article>
  );
}
