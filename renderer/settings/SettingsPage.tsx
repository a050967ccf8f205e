import { Button, NativeSelect } from "@mantine/core";
import { useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import IconAdjustments from "@tabler/icons-react/icons/IconAdjustments";
import IconRefresh from "@tabler/icons-react/icons/IconRefresh";
import { SettingName, type NodeSettingsView, type SettingChangeView, type SettingValue } from "../../electron/contract/index.js";
import { hrefOf, useRoute } from "../app/router.js";
import { useMemory } from "../memory/store.js";
import { byName } from "../nodes/filter.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { oneLine } from "../shared/printable.js";
import { EmptyState } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import { acksOf, type ProcessAck } from "./Acknowledged.js";
import { History } from "./History.js";
import { SettingRow, type Edit } from "./SettingRow.js";
import { valueText } from "./words.js";
import css from "./settings.module.css";

type Edits = Partial<Record<SettingName, Edit>>;
const ALL = "";
const NO_ACKS: readonly ProcessAck[] = [];

/** The switches: of one node or of all, with what is recommended and why, and who changed what. */
export function SettingsPage() {
  const { t } = useTranslation();
  const { client, nodes } = useConsole();
  const items = useItems(nodes);
  const [views, setViews] = useState<readonly NodeSettingsView[] | null>(null);
  const [history, setHistory] = useState<readonly SettingChangeView[]>([]);
  const { query } = useRoute();
  const [chosen, setScope] = useState(query.get("node") ?? ALL);
  const [edits, setEdits] = useState<Edits>({});
  const [refused, setRefused] = useState<readonly NodeSettingsView[]>([]);
  const nameOf = (nodeId: string): string => items.get(nodeId)?.name ?? nodeId;
  // The node that a link named may not be up.
  const scope = views === null || views.some((view) => view.nodeId === chosen) ? chosen : ALL;
  const upIds = [...items.values()].filter((node) => node.phase === "up" || node.phase === "degraded").map((node) => node.id).sort().join();
  const load = useAction(async (signal) => {
    const [read, log] = await Promise.all([client.request("settings.get", {}, { signal }), client.request("settings.history", {}, { signal })]);
    setViews(read);
    setHistory(log);
  });
  const reload = load.run;
  useEffect(() => void reload(), [reload, upIds]);
  const apply = useAction(async (_signal, nodeIds: string[], changes: Partial<Record<SettingName, SettingValue>>) => {
    const answers = await client.request("settings.set", { nodeIds, changes });
    const failed = answers.filter((answer) => answer.error !== null);
    setRefused(failed);
    if (failed.length === 0) setEdits({});
    await reload();
  });
  const shown = useMemo(() => (views ?? []).filter((view) => view.values !== null && (scope === ALL || view.nodeId === scope)), [views, scope]);
  const memory = useItems(useMemory());
  const acks = useMemo(() => acksOf(shown.flatMap((view) => { const told = memory.get(view.nodeId); return told ? [told] : []; }), (nodeId) => items.get(nodeId)?.name ?? nodeId), [shown, memory, items]);
  const silent = (views ?? []).filter((view) => view.error !== null);
  const staged = SettingName.options.flatMap((name) => (edits[name] ? [[name, edits[name]] as const] : []));
  const ready = staged.length > 0 && staged.every(([, edit]) => edit.value !== undefined) && shown.length > 0;
  const choices = [...(views ?? [])].map((view) => ({ value: view.nodeId, label: oneLine(nameOf(view.nodeId), 40) })).sort((a, b) => byName(a.label, b.label));
  if (views !== null && views.length === 0) {
    return (
      <div className={`panel ${css.none}`}>
        <EmptyState icon={IconAdjustments} title={t("settings.empty.title")} action={<Button component="a" href={hrefOf("nodes")}>{t("pages.nodes")}</Button>}>{t("settings.empty.text")}</EmptyState>
      </div>
    );
  }
  return (
    <div className={css.page}>
      <section className={`panel ${css.switches}`} aria-label={t("pages.settings")}>
        <div className={`toolbar ${css.bar}`}>
          <NativeSelect size="xs" aria-label={t("settings.scope")} value={scope} onChange={(event) => { setScope(event.currentTarget.value); setEdits({}); }} data={[{ value: ALL, label: t("settings.all", { count: choices.length }) }, ...choices]} />
          <Button size="xs" variant="default" leftSection={<IconRefresh size={14} />} loading={load.busy} onClick={() => void reload()}>{t("settings.read")}</Button>
          <span className="spacer" />
          <span className="dim">{t("settings.when")}</span>
        </div>
        {load.error && <ErrorNote error={load.error} onClose={load.clear} />}
        {silent.map((view) => view.error && <div key={view.nodeId}><strong>{oneLine(nameOf(view.nodeId))}</strong> <ErrorNote error={view.error} compact /></div>)}
        <div className={css.scroll}>
          <table className={css.table} data-testid="settings-table">
            <thead><tr><th scope="col">{t("settings.setting")}</th><th scope="col">{t("settings.now")}</th><th scope="col">{t("settings.change")}</th><th scope="col">{t("settings.recommended")}</th></tr></thead>
            <tbody>
              {SettingName.options.map((name) => (
                <SettingRow key={name} name={name} views={shown} nameOf={nameOf} acks={acks.get(name) ?? NO_ACKS} edit={edits[name]} onEdit={(edit) => setEdits(({ [name]: _, ...rest }) => (edit ? { ...rest, [name]: edit } : rest))} />
              ))}
            </tbody>
          </table>
        </div>
        {(staged.length > 0 || apply.error !== null || refused.length > 0) && (
          <div className={css.foot} data-testid="settings-staged">
            {apply.error && <ErrorNote error={apply.error} onClose={apply.clear} />}
            {refused.map((view) => view.error && <div key={view.nodeId}><strong>{t("settings.unchanged", { name: oneLine(nameOf(view.nodeId)) })}</strong> <ErrorNote error={view.error} /></div>)}
            {staged.length > 0 && (
              <div className="toolbar">
                <span>{staged.map(([name, edit]) => `${t(`settings.names.${name}`)}: ${edit.value === undefined ? "?" : valueText(name, edit.value, t)}`).join(" · ")}</span>
                <span className="spacer" />
                <Button size="xs" variant="default" onClick={() => { setEdits({}); setRefused([]); }}>{t("common.cancel")}</Button>
                <Button
                  size="xs" disabled={!ready} loading={apply.busy} data-testid="settings-apply"
                  onClick={() => void apply.run(shown.map((view) => view.nodeId), Object.fromEntries(staged.map(([name, edit]) => [name, edit.value!])))}
                >{scope === ALL ? t("settings.applyAll", { count: shown.length }) : t("settings.applyOne", { name: oneLine(nameOf(scope), 40) })}</Button>
              </div>
            )}
          </div>
        )}
      </section>
      <History entries={history} />
    </div>
  );
}
