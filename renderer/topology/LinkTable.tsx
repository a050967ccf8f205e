import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import type { StoreApi } from "zustand/vanilla";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import type { LinkView } from "../../electron/contract/index.js";
import { byName } from "../nodes/filter.js";
import { DataGrid, type Column, type Sort } from "../shared/DataGrid.js";
import { bytes, rate, us } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { Age, NodeText, State, useStale, type Icon } from "../shared/small.js";
import { useConsole, useItem, useItems, useNow, useTelemetryVersion } from "../store/console-hooks.js";
import { laneRate, type Lane, type LaneRate } from "./lanes.js";
import type { TopologyUi } from "./store.js";

const STATES: Record<LinkView["state"], ["ok" | "bad" | "idle", Icon]> = { up: ["ok", IconCircleCheck], down: ["bad", IconCircleX], unknown: ["idle", IconHelpCircle] };
const NO_SELECTION: ReadonlySet<string> = new Set();

function Name({ id }: { id: string }) {
  const { nodes } = useConsole();
  return <NodeText text={useItem(nodes, id)?.name ?? id} />;
}

/** A cell of live figures, renewed once a second from the buffer; grey where the sample is old. */
function Live({ lane, show }: { lane: Lane; show(rate: LaneRate): React.ReactNode }) {
  const { telemetry } = useConsole();
  useTelemetryVersion(1);
  const of = laneRate(lane, telemetry.flows, telemetry.nodes);
  const stale = useStale(of.sampledAtMs);
  return <span className={stale ? "stale" : undefined}>{of.sampledAtMs === null ? "–" : show(of)}</span>;
}
function LaneAge({ lane }: { lane: Lane }) {
  const { telemetry } = useConsole();
  useNow();
  return <Age atMs={laneRate(lane, telemetry.flows, telemetry.nodes).sampledAtMs} always />;
}

/** The map as a table: the same lanes, the same selection; for the keyboard, for a screen reader, for exact numbers. */
export function LinkTable({ ui, lanes }: { ui: StoreApi<TopologyUi>; lanes: readonly Lane[] }) {
  const { t } = useTranslation();
  const { nodes, telemetry } = useConsole();
  const items = useItems(nodes);
  const selection = useStore(ui, (s) => s.selection);
  const [sort, setSort] = useState<Sort>({ key: "from", descending: false });
  const byId = useMemo(() => new Map(lanes.map((lane) => [lane.id, lane])), [lanes]);
  // A live order would make rows dance under the hand: figures are sorted as they were when the order was asked for.
  const ids = useMemo(() => {
    const name = (id: string) => items.get(id)?.name ?? id;
    const total = (lane: Lane) => {
      const of = laneRate(lane, telemetry.flows, telemetry.nodes);
      return of.forward + of.backward;
    };
    const by: Record<string, (x: Lane, y: Lane) => number> = {
      from: (x, y) => byName(name(x.a), name(y.a)) || byName(name(x.b), name(y.b)), to: (x, y) => byName(name(x.b), name(y.b)),
      transport: (x, y) => byName(x.transport, y.transport), state: (x, y) => byName(x.state, y.state), rtt: (x, y) => (x.rttUs ?? Infinity) - (y.rttUs ?? Infinity), tx: (x, y) => total(y) - total(x),
    };
    const compare = by[sort.key] ?? by.from!;
    const focused = selection?.kind === "node" ? lanes.filter((lane) => lane.a === selection.id || lane.b === selection.id) : lanes;
    return [...focused].sort((x, y) => (sort.descending ? -1 : 1) * compare(x, y) || by.from!(x, y) || byName(x.transport, y.transport)).map((lane) => lane.id);
  }, [lanes, items, telemetry, sort, selection]);
  const columns = useMemo<Column[]>(() => {
    const column = (key: string, width: string, render: (lane: Lane) => React.ReactNode, more: Partial<Column> = {}): Column => ({
      key, header: t(`topology.columns.${key}`), width, ...more, cell: (id) => { const lane = byId.get(id); return lane ? render(lane) : null; },
    });
    return [
      column("from", "minmax(100px, 1fr)", (lane) => <Name id={lane.a} />, { sortable: true }),
      column("to", "minmax(100px, 1fr)", (lane) => <Name id={lane.b} />, { sortable: true }),
      column("transport", "84px", (lane) => lane.transport.toUpperCase().replace("_", " "), { sortable: true }),
      column("ports", "minmax(130px, 1fr)", (lane) => <NodeText mono text={`${lane.aPort ?? "?"} ↔ ${lane.bPort ?? "?"}`} />),
      column("state", "96px", (lane) => <span title={lane.reason === null ? undefined : oneLine(lane.reason)} className="ellipsis"><State tone={STATES[lane.state][0]} icon={STATES[lane.state][1]} label={t(`linkStates.${lane.state}`)} /></span>, { sortable: true }),
      column("rtt", "76px", (lane) => (lane.rttUs === null ? "–" : us(lane.rttUs)), { align: "end", sortable: true }),
      column("tx", "94px", (lane) => <Live lane={lane} show={(of) => rate(of.forward)} />, { align: "end", sortable: true }),
      column("rx", "94px", (lane) => <Live lane={lane} show={(of) => rate(of.backward)} />, { align: "end" }),
      column("txTotal", "88px", (lane) => <Live lane={lane} show={(of) => bytes(of.forwardBytes)} />, { align: "end", wide: true }),
      column("rxTotal", "88px", (lane) => <Live lane={lane} show={(of) => bytes(of.backwardBytes)} />, { align: "end", wide: true }),
      column("errors", "66px", (lane) => <Live lane={lane} show={(of) => <span style={of.errors > 0 ? { color: "var(--c-bad)", fontWeight: 600 } : undefined}>{of.errors}</span>} />, { align: "end" }),
      column("age", "76px", (lane) => <LaneAge lane={lane} />, { align: "end" }),
    ];
  }, [t, byId]);
  const selected = useMemo(() => (selection?.kind === "lane" ? new Set([selection.id]) : NO_SELECTION), [selection]);
  return (
    <DataGrid
      label={t("topology.table")} columns={columns} ids={ids} selected={selected} follow testId="link-table" sort={sort}
      onSort={(key) => setSort((before) => ({ key, descending: before.key === key ? !before.descending : false }))}
      onSelect={(chosen) => ui.setState({ selection: chosen.size === 0 ? null : { kind: "lane", id: [...chosen][0]! } })}
      toneOf={(id) => (byId.get(id)?.state === "down" ? "bad" : undefined)}
    />
  );
}
