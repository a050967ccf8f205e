import { useMemo, type ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { FindingView } from "../../electron/contract/index.js";
import type { SourceLinks } from "./Evidence.js";
import { FindingCard } from "./FindingCard.js";
import { Fold } from "./Fold.js";
import { foldFindings } from "./tree.js";

export interface FindingsProps {
  findings: readonly FindingView[];
  nodeId: string | null;
  links?: SourceLinks;
}

/** Causes first, each with its consequences folded under it; what is known as harmless folded at the end. */
export function Findings({ findings, nodeId, links }: FindingsProps) {
  const { t } = useTranslation();
  const tree = useMemo(() => foldFindings(findings), [findings]);
  const card = (finding: FindingView, children?: ReactNode) => <FindingCard key={finding.id} finding={finding} nodeId={nodeId} {...(links ? { links } : {})}>{children}</FindingCard>;
  return (
    <>
      {tree.roots.map(({ finding, consequences }) => card(finding, consequences.length > 0 && (
        <Fold label={t("diagnose.follows", { count: consequences.length })} testId="consequences">{consequences.map((each) => card(each))}</Fold>
      )))}
      {tree.notes.length > 0 && <Fold label={t("diagnose.notes", { count: tree.notes.length })} testId="notes">{tree.notes.map((each) => card(each))}</Fold>}
    </>
  );
}
