import { Button, Loader, UnstyledButton } from "@mantine/core";
import { useEffect, useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconMap from "@tabler/icons-react/icons/IconMap";
import IconPlayerPlay from "@tabler/icons-react/icons/IconPlayerPlay";
import type { GuideRunView, GuideView } from "../../../electron/contract/index.js";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { oneLine } from "../../shared/printable.js";
import { Age, EmptyState } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useItem, useItems } from "../../store/console-hooks.js";
import { NodePicker } from "../NodePicker.js";
import { useDiagnoseUi } from "../store.js";
import { useSay } from "../words.js";
import { GuideRun } from "./GuideRun.js";
import { useGuideList } from "./use-guides.js";
import css from "../diagnose.module.css";

/** As many as one run of a guide takes. */
const MOST_NODES = 64;
const MAX_NODES: Record<GuideView["takes"], number | undefined> = { node: 1, pair: 2, nodes: undefined };
const enough = (guide: GuideView, count: number): boolean => (guide.takes === "pair" ? count === 2 : guide.takes === "node" ? count === 1 : count >= 1);

/** One guide: what it is for, which nodes it looks at, and the way to start it. */
function StartGuide({ guide }: { guide: GuideView }) {
  const { t } = useTranslation();
  const say = useSay();
  const { client, nodes, guides } = useConsole();
  const items = useItems(nodes);
  const ui = useDiagnoseUi();
  const chosen = useStore(ui, (s) => s.chosen);
  const max = MAX_NODES[guide.takes];
  const picked = useMemo(() => {
    const known = [...chosen].filter((id) => items.has(id));
    return max === undefined ? known : known.slice(-max);
  }, [chosen, items, max]);
  const start = useAction(async () => {
    const run = await client.request("guides.start", { guideId: guide.id, nodeIds: [...picked] });
    guides.upsert(run);
    ui.setState({ guideRun: run.id });
  });
  return (
    <div className={css.report}>
      <h2>{say(guide.title)}</h2>
      <p className={css.lead}>{say(guide.symptom)}</p>
      <NodePicker label={t(`guides.takes.${guide.takes}`)} chosen={picked} onChange={(next) => ui.setState({ chosen: new Set(next) })} {...(max === undefined ? {} : { max })} />
      {start.error && <ErrorNote error={start.error} onClose={start.clear} />}
      <div className="toolbar">
        <Button leftSection={<IconPlayerPlay size={14} />} disabled={!enough(guide, picked.length) || picked.length > MOST_NODES} loading={start.busy} onClick={() => void start.run()} data-testid="guide-start">{t("guides.start")}</Button>
        {picked.length > MOST_NODES ? <span className={css.warning} role="status">{t("guides.tooMany", { most: MOST_NODES })}</span> : <span className="dim">{t("guides.changesNothing")}</span>}
      </div>
    </div>
  );
}

function PastRun({ run, current, onOpen }: { run: GuideRunView; current: boolean; onOpen(): void }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  return (
    <UnstyledButton className={css.pastRun} aria-current={current || undefined} onClick={onOpen}>
      <span className="ellipsis">{oneLine(run.nodeIds.map((id) => items.get(id)?.name ?? id).join(", "), 80)}</span>
      <span className="dim">{run.conclusion ? t(`guides.verdicts.${run.conclusion.verdict}`) : t(`guides.states.${run.state}`)}</span>
      <Age atMs={run.startedAtMs} event />
    </UnstyledButton>
  );
}

/** From a symptom to its cause: a list of symptoms, and the chosen one's checks. */
export function GuidesView() {
  const { t } = useTranslation();
  const say = useSay();
  const { guides: store } = useConsole();
  const { guides, state, error, retry } = useGuideList();
  const runs = useItems(store);
  const ui = useDiagnoseUi();
  const chosen = useStore(ui, (s) => s.guide);
  const runId = useStore(ui, (s) => s.guideRun);
  const guide = guides.find((each) => each.id === chosen) ?? null;
  const run = useItem(store, runId);
  const past = useMemo(() => [...runs.values()].filter((each) => each.guideId === chosen).sort((a, b) => b.startedAtMs - a.startedAtMs).slice(0, 8), [runs, chosen]);
  useEffect(() => {
    if (run && run.guideId !== chosen) ui.setState({ guideRun: null });
  }, [run, chosen, ui]);
  return (
    <>
      <div className={css.side}>
        <nav className={`panel ${css.guideList}`} aria-label={t("guides.list")}>
          {guides.map((each) => (
            <UnstyledButton key={each.id} className={css.guideItem} aria-current={each.id === chosen || undefined} data-testid={`guide-${each.id}`} onClick={() => ui.setState({ guide: each.id, guideRun: null })}>
              <strong>{say(each.title)}</strong>
              <span className="dim">{say(each.symptom)}</span>
            </UnstyledButton>
          ))}
          {state === "asked" && guides.length === 0 && !error && <div className={css.loading}><Loader size="xs" aria-label={t("common.loading")} /></div>}
          {error && <div className={css.loading}><ErrorNote error={error} /><Button size="compact-xs" variant="default" onClick={retry}>{t("common.retry")}</Button></div>}
        </nav>
        {past.length > 0 && (
          <section className={`panel ${css.past}`} aria-label={t("guides.past")}>
            <h3>{t("guides.past")}</h3>
            {past.map((each) => <PastRun key={each.id} run={each} current={each.id === runId} onOpen={() => ui.setState({ guideRun: each.id })} />)}
          </section>
        )}
      </div>
      <div className={`panel ${css.main}`}>
        {run && run.guideId === chosen && guide
          ? <GuideRun run={run} guide={guide} onAgain={() => ui.setState({ guideRun: null, chosen: new Set(run.nodeIds) })} />
          : guide ? <StartGuide key={guide.id} guide={guide} />
          : <EmptyState icon={IconMap} title={t("guides.empty.title")}>{t("guides.empty.text")}</EmptyState>}
      </div>
    </>
  );
}
