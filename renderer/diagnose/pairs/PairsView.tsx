import { Button, Checkbox, NumberInput, SegmentedControl, UnstyledButton } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconArrowsLeftRight from "@tabler/icons-react/icons/IconArrowsLeftRight";
import IconPlayerPlay from "@tabler/icons-react/icons/IconPlayerPlay";
import type { PairTestKind, PairTestView } from "../../../electron/contract/index.js";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { oneLine } from "../../shared/printable.js";
import { Age, EmptyState } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useItem, useItems } from "../../store/console-hooks.js";
import { NodePicker } from "../NodePicker.js";
import { useDiagnoseUi } from "../store.js";
import { PairTest } from "./PairTest.js";
import css from "../diagnose.module.css";

/** As many as the console takes at once. */
const MOST_PAIRS = 2000;
export const PAIR_KINDS = ["verbs", "rdma", "tcp"] as const satisfies readonly PairTestKind[];

/** Pairs that a sampling makes of so many nodes. */
export function pairCount(nodes: number, sampling: PairTestView["sampling"], maxPairs: number): number {
  if (nodes < 2) return 0;
  const all = nodes * (nodes - 1);
  return sampling === "all" ? all : sampling === "ring" ? nodes : Math.min(all, maxPairs);
}

/** Tests between chosen nodes: which pair works, how fast, and which half of a failed one is to blame. */
export function PairsView() {
  const { t } = useTranslation();
  const { client, nodes, pairs } = useConsole();
  const items = useItems(nodes);
  const tests = useItems(pairs);
  const ui = useDiagnoseUi();
  const chosen = useStore(ui, (s) => s.pairNodes);
  const testId = useStore(ui, (s) => s.pairTest);
  const past = useMemo(() => [...tests.values()].sort((a, b) => b.startedAtMs - a.startedAtMs), [tests]);
  const test = useItem(pairs, testId) ?? past[0];
  const [kinds, setKinds] = useState<readonly PairTestKind[]>(["verbs", "tcp"]);
  const [sampling, setSampling] = useState<PairTestView["sampling"]>("all");
  const [maxPairs, setMaxPairs] = useState(256);
  const picked = chosen === null ? [...items.values()].filter((node) => node.phase === "up").map((node) => node.id) : chosen.filter((id) => items.has(id));
  const count = pairCount(picked.length, sampling, maxPairs) * kinds.length;
  const allowed = count > 0 && count <= MOST_PAIRS;
  const start = useAction(async () => {
    const made = await client.request("pairs.start", { nodeIds: picked, kinds: [...kinds], sampling, maxPairs });
    pairs.upsert(made);
    ui.setState({ pairTest: made.id });
  });
  return (
    <>
      <div className={css.side}>
        <form className={`panel ${css.form}`} aria-label={t("pairs.form")} onSubmit={(event) => { event.preventDefault(); if (allowed) void start.run(); }}>
          <NodePicker label={t("pairs.nodes")} chosen={picked} onChange={(next) => ui.setState({ pairNodes: next })} />
          <fieldset className={css.picker}>
            <legend>{t("pairs.kinds")}</legend>
            {PAIR_KINDS.map((kind) => (
              <Checkbox key={kind} label={t(`pairKinds.${kind}`)} checked={kinds.includes(kind)} onChange={() => setKinds((before) => (before.includes(kind) ? before.filter((each) => each !== kind) : PAIR_KINDS.filter((each) => each === kind || before.includes(each))))} />
            ))}
          </fieldset>
          <SegmentedControl fullWidth aria-label={t("pairs.sampling")} value={sampling} onChange={(value) => setSampling(value as PairTestView["sampling"])} data={(["all", "ring", "random"] as const).map((value) => ({ value, label: t(`pairs.samplings.${value}`) }))} />
          {sampling === "random" && <NumberInput label={t("pairs.maxPairs")} min={1} max={MOST_PAIRS} value={maxPairs} onChange={(value) => setMaxPairs(typeof value === "number" ? Math.min(MOST_PAIRS, Math.max(1, Math.trunc(value))) : 256)} />}
          {count > MOST_PAIRS && <p className={css.warning} role="status">{t("pairs.tooMany", { most: MOST_PAIRS })}</p>}
          {start.error && <ErrorNote error={start.error} onClose={start.clear} />}
          <Button type="submit" leftSection={<IconPlayerPlay size={14} />} disabled={!allowed} loading={start.busy} data-testid="pairs-start">{t("pairs.start", { count })}</Button>
        </form>
        {past.length > 1 && (
          <section className={`panel ${css.past}`} aria-label={t("pairs.past")}>
            <h3>{t("pairs.past")}</h3>
            {past.slice(0, 8).map((each) => (
              <UnstyledButton key={each.id} className={css.pastRun} aria-current={each.id === test?.id || undefined} onClick={() => ui.setState({ pairTest: each.id })}>
                <span className="ellipsis">{oneLine(each.nodeIds.map((id) => items.get(id)?.name ?? id).join(", "), 80)}</span>
                <span className="dim">{t(`pairTestStates.${each.state}`)}</span>
                <Age atMs={each.startedAtMs} event />
              </UnstyledButton>
            ))}
          </section>
        )}
      </div>
      <div className={`panel ${css.main}`}>
        {test ? <PairTest key={test.id} test={test} /> : <EmptyState icon={IconArrowsLeftRight} title={t("pairs.empty.title")}>{t("pairs.empty.text")}</EmptyState>}
      </div>
    </>
  );
}
