import { Button, Checkbox, SegmentedControl, TextInput } from "@mantine/core";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconStack2 from "@tabler/icons-react/icons/IconStack2";
import IconSearch from "@tabler/icons-react/icons/IconSearch";
import { hrefOf } from "../app/router.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { bytes } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { EmptyState } from "../shared/small.js";
import { useConsole, useItems, useLoaded } from "../store/console-hooks.js";
import { HostTable } from "./HostTable.js";
import { PoolDetail } from "./PoolDetail.js";
import { PoolTable } from "./PoolTable.js";
import { rowIdsOf, rowOf, useMemory, useMemoryUi, type MemoryTab } from "./store.js";
import css from "./memory.module.css";

/** Nodes beyond these are counted in a notice, not named. */
const LISTED = 3;

/** The memory of the fleet: what GPUs' pools hold and how it lies, and what the hosts have. */
export function MemoryPage() {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const fleet = useItems(nodes);
  const nodesLoaded = useLoaded(nodes);
  const memory = useMemory();
  const items = useItems(memory);
  const loaded = useLoaded(memory);
  const error = useStore(memory.api, (s) => s.error);
  const ui = useMemoryUi();
  const { tab, selected, text, busyOnly } = useStore(ui);
  const views = [...items.values()];
  const processes = views.flatMap((view) => view.processes);
  const rows = rowIdsOf(items);
  const firstBusy = rows.find((id) => rowOf(items, id)?.process) ?? null;
  // The first pool stands open by itself, so that the page shows one without a click.
  useEffect(() => {
    if (selected === null && firstBusy !== null) ui.setState({ selected: firstBusy });
  }, [selected, firstBusy, ui]);
  const nameOf = (nodeId: string): string => oneLine(fleet.get(nodeId)?.name ?? nodeId, 40);
  const names = (ids: readonly { nodeId: string }[]): string => ids.slice(0, LISTED).map((view) => nameOf(view.nodeId)).join(", ") + (ids.length > LISTED ? ` +${ids.length - LISTED}` : "");
  const failed = views.filter((view) => view.error !== null);
  const old = views.filter((view) => !view.supported);
  const partly = views.filter((view) => view.damaged + view.omitted > 0);
  if (nodesLoaded && ![...fleet.values()].some((node) => node.facts !== null)) {
    return (
      <div className={`panel ${css.page}`}>
        <EmptyState icon={IconStack2} title={t("memory.empty.title")} action={<Button component="a" href={hrefOf("nodes")}>{t("pages.nodes")}</Button>}>{t("memory.empty.text")}</EmptyState>
      </div>
    );
  }
  const held = processes.reduce((sum, process) => sum + (process.pool.heldBytes ?? 0), 0);
  const used = processes.reduce((sum, process) => sum + (process.pool.usedBytes ?? 0), 0);
  return (
    <div className={css.page}>
      <div className="toolbar">
        <SegmentedControl size="xs" aria-label={t("memory.tab")} value={tab} onChange={(value) => ui.setState({ tab: value as MemoryTab })} data={[{ value: "gpus", label: t("memory.tabs.gpus") }, { value: "host", label: t("memory.tabs.host") }]} />
        <TextInput size="xs" className={css.filter} data-filter leftSection={<IconSearch size={14} />} placeholder={t("memory.filter")} aria-label={t("memory.filter")} value={text} onChange={(event) => ui.setState({ text: event.currentTarget.value })} />
        {tab === "gpus" && <Checkbox size="xs" label={t("memory.busyOnly")} checked={busyOnly} onChange={() => ui.setState({ busyOnly: !busyOnly })} />}
        <span className="spacer" />
        {tab === "gpus" && <span className="dim" data-testid="memory-sum">{t("memory.sum", { count: processes.length, held: bytes(held), used: bytes(used) })}</span>}
      </div>
      {error && <ErrorNote error={error} />}
      {failed.length > 0 && (
        <details className={css.notice} data-tone="bad" data-testid="memory-failed">
          <summary>{t("memory.failed", { count: failed.length, names: names(failed) })}</summary>
          {failed.slice(0, LISTED).map((view) => view.error && <div key={view.nodeId}><strong>{nameOf(view.nodeId)}</strong> <ErrorNote error={view.error} compact /></div>)}
        </details>
      )}
      {old.length > 0 && <p className={css.notice}>{t("memory.tooOld", { names: names(old) })}</p>}
      {partly.length > 0 && <p className={css.notice}>{t("memory.partly", { names: names(partly) })}</p>}
      {tab === "host" ? <div className={`panel ${css.table}`}><HostTable ui={ui} /></div> : loaded && rows.length === 0 && views.every((view) => view.readAtMs !== null) ? (
        <div className={`panel ${css.table}`}>
          <EmptyState icon={IconStack2} title={t("memory.noGpu.title")} action={<Button variant="default" onClick={() => ui.setState({ tab: "host" })}>{t("memory.tabs.host")}</Button>}>{t("memory.noGpu.text")}</EmptyState>
        </div>
      ) : (
        <>
          <div className={`panel ${css.table}`}><PoolTable memory={memory} ui={ui} /></div>
          <PoolDetail memory={memory} selected={selected} anyProcess={processes.length > 0 ? true : loaded && views.some((view) => view.readAtMs !== null) ? false : null} />
        </>
      )}
    </div>
  );
}
