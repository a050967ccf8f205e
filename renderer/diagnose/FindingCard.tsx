import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { FindingView } from "../../electron/contract/index.js";
import { timeOfDay } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { useNow } from "../store/console-hooks.js";
import { Evidence, type SourceLinks } from "./Evidence.js";
import { GuideLinks } from "./guides/GuideLinks.js";
import { Mends } from "./mends/Mends.js";
import { SeverityState, toneOf } from "./severity.js";
import { useSay } from "./words.js";
import css from "./diagnose.module.css";

export interface FindingCardProps {
  finding: FindingView;
  /** The node that it was found on; null = it stands in files, and there is nothing to apply a mend to. */
  nodeId: string | null;
  /** Shown where cards of several nodes stand together. */
  nodeName?: string;
  links?: SourceLinks;
  /** Findings that follow from this one. */
  children?: ReactNode;
}

/** A row of the card; nothing where there is nothing to say. */
function Row({ label, show, children }: { label: string; show: boolean; children: ReactNode }) {
  if (!show) return null;
  return <><dt>{label}</dt><dd>{children}</dd></>;
}

/** When it was logged first and last, where the log's clock and the console's are tied. */
function Seen({ first, last }: Pick<FindingView, "first" | "last">) {
  const { t } = useTranslation();
  const now = useNow();
  if (first?.atMs == null || last?.atMs == null) return null;
  const [from, to] = [timeOfDay(first.atMs, now), timeOfDay(last.atMs, now)];
  return <span className={css.seen} title={`${new Date(first.atMs).toISOString()} – ${new Date(last.atMs).toISOString()}`}>{from === to ? from : t("diagnose.seen", { from, to })}</span>;
}

/** One fault: what it is, the lines that prove it, what speaks against it, likely causes in order, and the commands that mend it. */
export function FindingCard({ finding, nodeId, nodeName, links, children }: FindingCardProps) {
  const { t } = useTranslation();
  const say = useSay();
  const place = [nodeName, finding.host, ...finding.devices.slice(0, 4)].filter((part): part is string => part !== undefined && part !== null);
  return (
    <article className={css.finding} data-tone={toneOf(finding.severity)} data-testid="finding" data-class={finding.class} aria-label={say(finding.title)}>
      <header>
        <SeverityState severity={finding.severity} />
        <h3>{say(finding.title)}</h3>
        {place.length > 0 && <span className={css.place}>{oneLine(place.join(" · "), 80)}</span>}
        {finding.count > 1 && <span className={css.count}>{t("diagnose.times", { count: finding.count })}</span>}
        <Seen first={finding.first} last={finding.last} />
        <span className="spacer" />
        <code className={css.code} title={finding.class}>{finding.code}</code>
      </header>
      <p>{say(finding.explanation)}</p>
      <dl className={css.rows}>
        <Row label={t("diagnose.proof")} show={finding.evidence.length > 0}><Evidence pieces={finding.evidence} {...(links ? { links } : {})} /></Row>
        <Row label={t("diagnose.against")} show={finding.against.length > 0}><Evidence pieces={finding.against} {...(links ? { links } : {})} /></Row>
        <Row label={t("diagnose.causes")} show={finding.causes.length > 0}>
          <ol className={css.causes}>{finding.causes.map((cause, index) => <li key={index}>{say(cause)}</li>)}</ol>
        </Row>
        <Row label={t("diagnose.checked")} show={finding.checked.length > 0}>
          <ul className={css.plainList}>{finding.checked.map((what, index) => <li key={index}>{say(what)}</li>)}</ul>
        </Row>
        <Row label={t("diagnose.mend")} show={finding.mend.length > 0}><Mends finding={finding} nodeId={nodeId} /></Row>
        <GuideLinks finding={finding} nodeId={nodeId} />
      </dl>
      {children}
    </article>
  );
}
