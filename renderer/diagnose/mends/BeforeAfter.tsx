import { useTranslation } from "react-i18next";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import type { MendRunView } from "../../../electron/contract/index.js";
import { oneLine, printable } from "../../shared/printable.js";
import { Age, State } from "../../shared/small.js";
import { SeverityState } from "../severity.js";
import { useSay } from "../words.js";
import css from "../diagnose.module.css";

type Snapshot = MendRunView["before"];

function Side({ snapshot, title }: { snapshot: Snapshot; title: string }) {
  const { t } = useTranslation();
  const say = useSay();
  return (
    <div className={css.side2} role="group" aria-label={title}>
      <h4>{title} <Age atMs={snapshot.atMs} event /></h4>
      {snapshot.finding
        ? <><SeverityState severity={snapshot.finding.severity} /> {say(snapshot.finding.title)}{snapshot.finding.evidence.slice(0, 2).map((piece, index) => <code key={index} className={css.shortQuote}>{oneLine(piece.line, 300)}</code>)}</>
        : <State tone="ok" icon={IconCircleCheck} label={t("mends.notFound")} />}
      {snapshot.others.length > 0 && <div className="dim">{t("mends.others", { count: snapshot.others.length })} {oneLine(snapshot.others.map((other) => say(other.title)).join("; "), 240)}</div>}
    </div>
  );
}

/** What was found before and what is found now, and the readings under both: only those that changed. */
export function BeforeAfter({ before, after }: { before: Snapshot; after: Snapshot }) {
  const { t } = useTranslation();
  const changed = after.readings.flatMap((reading) => {
    const old = before.readings.find((each) => each.source === reading.source);
    return old && old.text !== reading.text ? [{ source: reading.source, old: old.text, now: reading.text }] : [];
  });
  return (
    <div data-testid="before-after">
      <div className={css.twoSides}>
        <Side snapshot={before} title={t("mends.before")} />
        <Side snapshot={after} title={t("mends.after")} />
      </div>
      {changed.map((reading) => (
        <div key={reading.source} className={css.twoSides}>
          <pre className={css.reading} aria-label={`${t("mends.before")}: ${oneLine(reading.source)}`} tabIndex={0}><span className="dim">{oneLine(reading.source)}</span>{"\n"}{printable(reading.old)}</pre>
          <pre className={css.reading} aria-label={`${t("mends.after")}: ${oneLine(reading.source)}`} tabIndex={0}><span className="dim">{oneLine(reading.source)}</span>{"\n"}{printable(reading.now)}</pre>
        </div>
      ))}
    </div>
  );
}
