import { Button } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import type { FindingView, GuideId, GuideView } from "../../../electron/contract/index.js";
import { go } from "../../app/router.js";
import { useConsole } from "../../store/console-hooks.js";
import { useSay } from "../words.js";
import { useGuideList } from "./use-guides.js";
import css from "../diagnose.module.css";

/** What to look at when a finding alone does not explain what is wrong: other classes by name, and the guides that fit it. */
export function GuideLinks({ finding, nodeId }: { finding: FindingView; nodeId: string | null }) {
  const { t } = useTranslation();
  const say = useSay();
  const { client } = useConsole();
  const guides = useGuideList().guides;
  const [fitting, setFitting] = useState<readonly GuideId[]>([]);
  useEffect(() => {
    if (nodeId === null) return;
    const abort = new AbortController();
    // A card without these links is still whole: a refusal here has nothing to tell.
    client.request("guides.for", { class: finding.class }, { signal: abort.signal }).then(setFitting, () => setFitting([]));
    return () => abort.abort();
  }, [client, finding.class, nodeId]);
  const shown = fitting.flatMap((id) => guides.find((guide): guide is GuideView => guide.id === id) ?? []);
  return (
    <div className={css.nextLinks}>
      {finding.candidates.map((candidate) => <span key={candidate.class} title={candidate.class}>{say(candidate.title)}</span>)}
      {nodeId !== null && shown.map((guide) => (
        <Button key={guide.id} size="compact-xs" variant="default" onClick={() => go("diagnose", { view: "guides", guide: guide.id, nodes: nodeId })}>{say(guide.title)}</Button>
      ))}
      {finding.candidates.length === 0 && shown.length === 0 && <span className="dim">{t("diagnose.nothingNext")}</span>}
    </div>
  );
}
