import { Button, Checkbox, NativeSelect, NumberInput, SegmentedControl, TextInput } from "@mantine/core";
import { useMemo, useState, type FormEvent } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconPlayerPlay from "@tabler/icons-react/icons/IconPlayerPlay";
import { COLLECTIVE_TAKES, DataType, RedOp, type RunSpecInput } from "../../electron/contract/index.js";
import { matches } from "../app/fuzzy.js";
import { byName } from "../nodes/filter.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { parseSize } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import { OFFERED_COLLECTIVES, OFFERED_TRANSPORTS, sizeCount, specOf, type Draft, type DraftProblem } from "./draft.js";
import { transportWord } from "./run-words.js";
import { useCollectivesUi } from "./store.js";
import { useAlgorithms } from "./use-algorithms.js";
import css from "./collectives.module.css";

const FILTER_ABOVE = 10;
const SHOWN = 200;

function RankChoice({ draft, up, change }: { draft: Draft; up: ReadonlyArray<{ id: string; name: string }>; change(part: Partial<Draft>): void }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const total = useItems(nodes).size;
  const [filter, setFilter] = useState("");
  const shown = useMemo(() => up.filter((node) => matches(filter, node.name)).slice(0, SHOWN), [up, filter]);
  const chosen = (id: string) => draft.nodeIds === null || draft.nodeIds.has(id);
  const count = up.filter((node) => chosen(node.id)).length;
  const toggle = (id: string) => {
    const next = new Set(draft.nodeIds ?? up.map((node) => node.id));
    if (!next.delete(id)) next.add(id);
    change({ nodeIds: next });
  };
  return (
    <fieldset className={css.choice}>
      <legend>{t("form.nodes")}</legend>
      <div className="toolbar">
        <Checkbox label={t("form.allUp", { count: up.length })} checked={up.length > 0 && count === up.length} indeterminate={count > 0 && count < up.length} onChange={() => change({ nodeIds: count === up.length ? new Set() : null })} />
        <span className="spacer" />
        {up.length > FILTER_ABOVE && <TextInput w={110} placeholder={t("form.filter")} aria-label={t("form.filter")} value={filter} onChange={(event) => setFilter(event.currentTarget.value)} />}
      </div>
      <div className={css.choiceList}>
        {shown.map((node) => <Checkbox key={node.id} label={oneLine(node.name, 40)} checked={chosen(node.id)} onChange={() => toggle(node.id)} />)}
        {up.length === 0 && <span className="dim">{t("form.noneUp")}</span>}
      </div>
      {total > up.length && <span className="dim">{t("form.notUp", { count: total - up.length })}</span>}
    </fieldset>
  );
}

/** More ranks than this are not listed one by one: a root among them is that of the first ones, or the one chosen before. */
const ROOTS_SHOWN = 256;

/** "5 · gpu-03" for each rank, node-major as the host plans them. */
function rootChoices(names: readonly string[], ranksPerNode: number, chosen: number): { value: string; label: string }[] {
  const count = Number.isInteger(ranksPerNode) && ranksPerNode > 0 ? names.length * ranksPerNode : 0;
  const ranks = Array.from({ length: Math.min(count, ROOTS_SHOWN) }, (_, rank) => rank);
  if (!ranks.includes(chosen)) ranks.push(chosen);
  return ranks.map((rank) => ({ value: String(rank), label: rank < count ? `${rank} · ${oneLine(names[Math.floor(rank / ranksPerNode)] ?? "", 24)}` : String(rank) }));
}

export function RunForm() {
  const { t } = useTranslation();
  const { client, nodes, runs } = useConsole();
  const ui = useCollectivesUi();
  const draft = useStore(ui, (s) => s.draft);
  const items = useItems(nodes);
  const up = useMemo(() => [...items.values()].filter((node) => node.phase === "up").map(({ id, name }) => ({ id, name })).sort((a, b) => byName(a.name, b.name)), [items]);
  const change = (part: Partial<Draft>) => ui.setState({ draft: { ...draft, ...part } });
  const checked = specOf(draft, up.map((node) => node.id));
  const wrong = (problem: DraftProblem) => ((checked.problems as DraftProblem[]).includes(problem) ? t(`form.problems.${problem}`) : undefined);
  const start = useAction(async (_signal, spec: RunSpecInput) => {
    const run = await client.request("runs.start", spec);
    runs.upsert(run);
    ui.setState({ shown: run.id });
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (checked.spec) void start.run(checked.spec);
  };
  const number = (key: "ranksPerNode" | "stepFactor" | "iterations" | "warmup" | "timeoutSeconds", problem: DraftProblem) => ({
    label: t(`form.${key}`), value: draft[key], error: wrong(problem), allowDecimal: key === "timeoutSeconds", allowNegative: false, hideControls: true, onChange: (value: number | string) => change({ [key]: value }),
  });
  const [min, max] = [parseSize(draft.minSize), parseSize(draft.maxSize)];
  const sizes = min !== null && max !== null ? sizeCount(min, max, Number(draft.stepFactor)) : 0;
  const takes = COLLECTIVE_TAKES[draft.collective];
  const selected = up.filter((node) => draft.nodeIds === null || draft.nodeIds.has(node.id));
  const worldSize = selected.length * Number(draft.ranksPerNode);
  const roots = takes.root ? rootChoices(selected.map((node) => node.name), Number(draft.ranksPerNode), draft.root) : [];
  const known = useAlgorithms(worldSize)[draft.collective] ?? [];
  const algorithms = ["auto", ...new Set([...known, draft.algorithm].filter((name) => name !== "auto"))];
  const rankProblem = wrong("noNodes") ?? wrong("ranks") ?? wrong("shmOneNode") ?? wrong("root");
  return (
    <form className={`panel ${css.form}`} onSubmit={submit} aria-label={t("form.title")} noValidate>
      <div className={css.fields}>
        <NativeSelect label={t("form.operation")} value={draft.collective} onChange={(event) => change({ collective: event.currentTarget.value as Draft["collective"] })} data={OFFERED_COLLECTIVES.map((value) => ({ value, label: t(`ops.${value}`) }))} />
        <RankChoice draft={draft} up={up} change={change} />
        <div className={css.pair}>
          <NumberInput {...number("ranksPerNode", "ranksPerNode")} min={1} max={64} />
          <div className={css.total}><span>{t("form.ranks")}</span><output>{worldSize || "–"}</output></div>
        </div>
        <div>
          <div id="run-transport" className={css.label}>{t("form.transport")}</div>
          <SegmentedControl aria-labelledby="run-transport" fullWidth value={draft.transport} onChange={(value) => change({ transport: value as Draft["transport"] })} data={OFFERED_TRANSPORTS.map((value) => ({ value, label: transportWord(value, t) }))} />
        </div>
        <div className={css.pair}>
          <NativeSelect
            label={t("form.algorithm")} value={draft.algorithm} onChange={(event) => change({ algorithm: event.currentTarget.value })}
            data={algorithms.map((value) => ({ value, label: value === "auto" ? t("form.algorithmAuto") : value.replaceAll("_", " ") }))}
          />
          {takes.root && (
            <NativeSelect label={t("form.root")} value={draft.root} error={wrong("root")} onChange={(event) => change({ root: Number(event.currentTarget.value) })} data={roots} data-testid="run-root" />
          )}
        </div>
        {takes.sized && (
          <div className={css.pair}>
            <NativeSelect label={t("form.datatype")} value={draft.datatype} onChange={(event) => change({ datatype: event.currentTarget.value as Draft["datatype"] })} data={[...DataType.options]} />
            {takes.redop && <NativeSelect label={t("form.redop")} value={draft.redop} onChange={(event) => change({ redop: event.currentTarget.value as Draft["redop"] })} data={[...RedOp.options]} />}
          </div>
        )}
        {takes.sized && <div className={css.triple}>
          <TextInput label={t("form.minSize")} value={draft.minSize} error={wrong("minSize") ?? wrong("order")} onChange={(event) => change({ minSize: event.currentTarget.value })} />
          <TextInput label={t("form.maxSize")} value={draft.maxSize} error={wrong("maxSize")} onChange={(event) => change({ maxSize: event.currentTarget.value })} />
          <NumberInput {...number("stepFactor", "stepFactor")} min={2} max={1024} />
        </div>}
        <div className={css.triple}>
          <NumberInput {...number("iterations", "iterations")} min={1} />
          <NumberInput {...number("warmup", "warmup")} min={0} />
          <NumberInput {...number("timeoutSeconds", "timeout")} min={0.1} />
        </div>
        {takes.sized && <Checkbox label={t("form.check")} checked={draft.check} onChange={() => change({ check: !draft.check })} />}
      </div>
      <div className={css.formFoot}>
        {start.error && <ErrorNote error={start.error} onClose={start.clear} />}
        <span className="dim" aria-live="polite">{rankProblem ?? (takes.sized ? t("form.summary", { sizes, iterations: draft.iterations }) : t("form.summaryUnsized", { iterations: draft.iterations }))}</span>
        <Button type="submit" fullWidth size="sm" leftSection={<IconPlayerPlay size={15} />} disabled={checked.spec === null} loading={start.busy} data-testid="run-start">{t("form.run")}</Button>
      </div>
    </form>
  );
}
