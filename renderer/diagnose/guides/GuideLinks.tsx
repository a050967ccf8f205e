import { Button } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { FindingView, GuideView } from "../../../electron/contract/index.js";
import { go } from "../../app/router.js";
import { useSay } from "../words.js";
import { useGuideList, useGuidesFor } from "./use-guides.js";
import css from "../diagnose.module.css";

/** The card's row of what to look at when it alone does not explain what is wrong: other classes by name, and the guides that fit. */
export function GuideLinks({ finding, nodeId }: { finding: FindingView; nodeId: string | null }) {
  const { t } = useTranslation();
  const say = useSay();
  const guides = useGuideList().guides;
  const fitting = useGuidesFor(nodeId === null ? null : finding.class);
  const shown = fitting.flatMap((id) => guides.find((guide): guide is GuideView => guide.id === id) ?? []);
  if (finding.candidates.length === 0 && shown.length === 0) return null;
  return (
    <>
      <dt>{t("diagnose.lookNext")}</dt>
      <dd className={css.nextLinks}>
        {finding.candidates.map((candidate) => <span key={candidate.class} title={candidate.class}>{say(candidate.title)}</span>)}
        {nodeId !== null && shown.map((guide) => (
          <Button key={guide.id} size="compact-xs" variant="default" onClick={() => go("diagnose", { view: "guides", guide: guide.id, nodes: nodeId })}>{say(guide.title)}</Button>
        ))}
      </dd>
    </>
  );
}
