import { Button, SegmentedControl } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconRefresh from "@tabler/icons-react/icons/IconRefresh";
import IconTopologyStar3 from "@tabler/icons-react/icons/IconTopologyStar3";
import { hrefOf } from "../app/router.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { oneLine } from "../shared/printable.js";
import { EmptyState } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useIds, useItem, useLoaded } from "../store/console-hooks.js";
import { FabricMap } from "./FabricMap.js";
import { lanesOf, type Lane, type LaneTransport } from "./lanes.js";
import { LinkTable } from "./LinkTable.js";
import { Marked } from "./Marked.js";
import { useTopologyUi, type TopologyUi } from "./store.js";
import type { StoreApi } from "zustand/vanilla";
import css from "./topology.module.css";

const KEY_COLOURS: Record<LaneTransport, string> = { tcp: css.tcp!, rdma: css.rdma!, dma: css.dma!, gpu_peer: css.peer! };

/** The filter that a chosen node puts on the table, with the way out of it. */
function NodeFilter({ ui }: { ui: StoreApi<TopologyUi> }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const selection = useStore(ui, (s) => s.selection);
  const node = useItem(nodes, selection?.kind === "node" ? selection.id : null);
  if (!node) return null;
  return <Button size="compact-xs" variant="light" onClick={() => ui.setState({ selection: null })}>{t("topology.linksOf", { name: oneLine(node.name, 40) })} ×</Button>;
}

/** Over the empty table of a chosen node that nothing reaches. */
function NoLinks({ ui, lanes }: { ui: StoreApi<TopologyUi>; lanes: readonly Lane[] }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const selection = useStore(ui, (s) => s.selection);
  const node = useItem(nodes, selection?.kind === "node" ? selection.id : null);
  if (!node || lanes.some((lane) => lane.a === node.id || lane.b === node.id)) return null;
  return <div className={css.noLinks}>{t("topology.noLinksOf", { name: oneLine(node.name, 40) })}</div>;
}

export function TopologyPage() {
  const { t } = useTranslation();
  const { client, nodes, topology } = useConsole();
  const ids = useIds(nodes);
  const loaded = useLoaded(nodes);
  const links = useStore(topology, (s) => s.links);
  const ui = useTopologyUi();
  const transport = useStore(ui, (s) => s.transport);
  const probe = useAction(async (signal) => {
    const view = await client.request("topology.probe", {}, { signal });
    topology.setState({ ...view, loaded: true });
  });
  const all = useMemo(() => lanesOf(links), [links]);
  const present = useMemo(() => [...new Set(all.map((lane) => lane.transport))].sort(), [all]);
  const lanes = useMemo(() => (transport === "all" ? all : all.filter((lane) => lane.transport === transport)), [all, transport]);
  if (loaded && ids.length === 0) {
    return (
      <div className={`panel ${css.page}`}>
        <EmptyState icon={IconTopologyStar3} title={t("topology.empty.title")} action={<Button component="a" href={hrefOf("nodes")}>{t("topology.empty.action")}</Button>}>{t("topology.empty.text")}</EmptyState>
      </div>
    );
  }
  return (
    <div className={css.page}>
      <div className="toolbar">
        <SegmentedControl
          aria-label={t("topology.transport")} value={transport} onChange={(value) => ui.setState({ transport: value as LaneTransport | "all" })}
          data={[{ value: "all", label: t("topology.all") }, ...present.map((value) => ({ value, label: value.toUpperCase().replace("_", " ") }))]}
        />
        <span className={css.legend}>
          {present.map((each) => <span key={each}><i className={KEY_COLOURS[each]} aria-hidden /> {each.toUpperCase().replace("_", " ")}</span>)}
          {present.length > 0 && <span className="dim">{t("topology.widthIsRate")}</span>}
        </span>
        <span className="spacer" />
        <NodeFilter ui={ui} />
        {probe.busy
          ? <Button variant="default" onClick={probe.cancel}>{t("topology.cancelProbe")}</Button>
          : <Button variant="default" leftSection={<IconRefresh size={14} />} onClick={() => void probe.run()}>{t("topology.probe")}</Button>}
      </div>
      <Marked />
      {probe.error && <ErrorNote error={probe.error} onClose={probe.clear} />}
      <div className={`panel ${css.mapPanel}`}><FabricMap ui={ui} lanes={lanes} /></div>
      <div className={`panel ${css.tablePanel}`}>
        {all.length === 0 ? <EmptyState icon={IconTopologyStar3} title={t("topology.noLinks.title")}>{t("topology.noLinks.text")}</EmptyState> : <><LinkTable ui={ui} lanes={lanes} /><NoLinks ui={ui} lanes={lanes} /></>}
      </div>
    </div>
  );
}
