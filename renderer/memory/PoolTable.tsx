import { useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import type { StoreApi } from "zustand/vanilla";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import IconCircleCheck from "@tabler/icons-react/icons/IconCircleCheck";
import IconCircleMinus from "@tabler/icons-react/icons/IconCircleMinus";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import type { GpuProcessView, NodeMemoryView } from "../../electron/contract/index.js";
import { byName } from "../nodes/filter.js";
import { DataGrid, type Column, type Sort } from "../shared/DataGrid.js";
import { bytes, duration } from "../shared/format.js";
import { Age, NodeText, State, useStale } from "../shared/small.js";
import { useConsole, useItem, useItems } from "../store/console-hooks.js";
import type { KeyedStore } from "../store/keyed.js";
import { rowIdsOf, rowOf, type MemoryUi, type PoolRow } from "./store.js";
import { gpuText, percent, processText } from "./words.js";
import css from "./memory.module.css";

const NO_SELECTION: ReadonlySet<string> = new Set();
const same = (a: readonly string[], b: readonly string[]): boolean => a.length === b.length && a.every((id, i) => id === b[i]);

function Name({ id }: { id: string }) {
  const { nodes } = useConsole();
  return <NodeText text={useItem(nodes, id)?.name ?? id} />;
}

/** A cell that renders with its own row alone; grey where the process has not written for a while. */
function Cell({ memory, id, show }: { memory: KeyedStore<NodeMemoryView>; id: string; show(row: PoolRow): React.ReactNode }) {
  const view = useStore(memory.api, (s) => s.items.get(id.slice(0, id.indexOf("/"))));
  const row = useMemo(() => (view ? rowOf(new Map([[view.nodeId, view]]), id) : undefined), [view, id]);
  const stale = useStale(row?.process ? row.process.updatedAtMs : (row?.view.readAtMs ?? null));
  return <span className={`${css.cell} ${stale && row?.process ? "stale" : ""}`}>{row ? show(row) : null}</span>;
}

const size = (value: number | null | undefined): string => (value === null || value === undefined ? "–" : bytes(value));

function Fragmentation({ permille }: { permille: number | null }) {
  if (permille === null) return <>–</>;
  return <span className={css.share}><span className={css.shareBar} aria-hidden><span style={{ width: `${Math.min(100, permille / 10)}%` }} /></span><span>{percent(permille)}</span></span>;
}

/** Whether the pool is compacted now; in words and a sign. */
export function DefragState({ process }: { process: GpuProcessView }) {
  const { t } = useTranslation();
  const { intervalMs, blocked } = process.defrag;
  if (process.errorCode !== null) return <State tone="bad" icon={IconCircleX} label={t("memory.ended", { code: process.errorCode })} />;
  if (intervalMs === null) return <>–</>;
  if (intervalMs === 0) return <State tone="idle" icon={IconCircleMinus} label={t("memory.defragOff")} />;
  if (blocked !== null) return <span title={t(`memory.why.${blocked}`)} className="ellipsis"><State tone="warn" icon={IconAlertTriangle} label={t("memory.defragWaits")} /></span>;
  return <State tone="ok" icon={IconCircleCheck} label={t("memory.defragEvery", { interval: intervalMs < 1000 ? `${intervalMs} ms` : duration(intervalMs) })} />;
}

const ORDER: Record<string, (row: PoolRow) => number | string | null> = {
  gpu: (row) => row.gpu?.index ?? row.process?.gpuIndex ?? null, process: (row) => (row.process ? processText(row.process) : null), capacity: (row) => row.process?.pool.capacityBytes ?? null,
  held: (row) => row.process?.pool.heldBytes ?? null, used: (row) => row.process?.pool.usedBytes ?? null, largest: (row) => row.process?.pool.largestFreeBytes ?? null,
  fragmentation: (row) => row.process?.pool.fragmentationPermille ?? null, defrag: (row) => row.process?.defrag.intervalMs ?? null, age: (row) => (row.process ? -row.process.updatedAtMs : null),
};
/** What is not known stands last, whichever way the order goes. */
const compare = (a: number | string | null, b: number | string | null, sign: number): number => {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : byName(String(a), String(b)));
};

/** The fleet's GPUs, a row for each process on each; those that none uses stand in it too. */
export function PoolTable({ memory, ui }: { memory: KeyedStore<NodeMemoryView>; ui: StoreApi<MemoryUi> }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const names = useItems(nodes);
  const items = useItems(memory);
  const { selected, text, busyOnly } = useStore(ui);
  const [sort, setSort] = useState<Sort>({ key: "node", descending: false });
  const kept = useRef<readonly string[]>([]);
  const all = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const ids = rowIdsOf(items).filter((id) => {
      const row = rowOf(items, id)!;
      if (busyOnly && !row.process) return false;
      if (words.length === 0) return true;
      const haystack = [names.get(row.view.nodeId)?.name ?? "", gpuText(row), row.process ? processText(row.process) : ""].join("\n").toLowerCase();
      return words.every((word) => haystack.includes(word));
    });
    return (kept.current = same(kept.current, ids) ? kept.current : ids);
  }, [items, names, text, busyOnly]);
  // A live order would make rows dance under the hand: figures are sorted as they were when the order was asked for.
  const ids = useMemo(() => {
    const now = memory.api.getState().items;
    const sign = sort.descending ? -1 : 1;
    const rows = all.flatMap((id) => { const row = rowOf(now, id); return row ? [{ id, row, name: names.get(row.view.nodeId)?.name ?? row.view.nodeId }] : []; });
    const by = ORDER[sort.key];
    return rows.sort((a, b) => (by ? compare(by(a.row), by(b.row), sign) : sign * byName(a.name, b.name)) || byName(a.name, b.name) || compare(ORDER.gpu!(a.row), ORDER.gpu!(b.row), 1) || byName(a.id, b.id)).map((each) => each.id);
  }, [all, memory, names, sort]);
  const columns = useMemo<Column[]>(() => {
    const column = (key: string, width: string, show: (row: PoolRow) => React.ReactNode, more: Partial<Column> = {}): Column => ({
      key, header: t(`memory.columns.${key}`), width, sortable: true, ...more, cell: (id) => <Cell memory={memory} id={id} show={show} />,
    });
    const figure = { align: "end" } as const;
    return [
      column("node", "minmax(80px, 1fr)", (row) => <Name id={row.view.nodeId} />),
      column("gpu", "52px", (row) => <span title={gpuText(row)}>{row.gpu?.index ?? row.process?.gpuIndex ?? "?"}</span>, figure),
      column("process", "minmax(140px, 1.9fr)", (row) => (row.process ? <NodeText text={processText(row.process)} /> : <span className="dim ellipsis">{row.gpu ? t("memory.idleGpu", { used: bytes(row.gpu.usedBytes), total: bytes(row.gpu.totalBytes) }) : t("memory.noProcess")}</span>)),
      column("capacity", "82px", (row) => size(row.process?.pool.capacityBytes), { ...figure, title: t("memory.about.capacity") }),
      column("held", "78px", (row) => size(row.process?.pool.heldBytes), { ...figure, title: t("memory.about.held") }),
      column("used", "78px", (row) => size(row.process?.pool.usedBytes), { ...figure, title: t("memory.about.used") }),
      column("largest", "102px", (row) => size(row.process?.pool.largestFreeBytes), { ...figure, title: t("memory.about.largest") }),
      column("fragmentation", "116px", (row) => (row.process ? <Fragmentation permille={row.process.pool.fragmentationPermille} /> : "–"), { ...figure, title: t("memory.about.fragmentation") }),
      column("defrag", "136px", (row) => (row.process ? <DefragState process={row.process} /> : "–")),
      column("async", "66px", (row) => (row.process?.asyncLevel ? <span title={row.process.asyncReason ?? undefined}>{t(`memory.async.${row.process.asyncLevel}`)}</span> : "–"), { sortable: false }),
      column("age", "72px", (row) => (row.process ? <Age atMs={row.process.updatedAtMs} always /> : "–"), figure),
    ];
  }, [t, memory]);
  const chosen = useMemo(() => (selected === null ? NO_SELECTION : new Set([selected])), [selected]);
  return (
    <>
      <DataGrid
        label={t("memory.table")} columns={columns} ids={ids} selected={chosen} follow testId="memory-table" sort={sort}
        onSort={(key) => setSort((before) => ({ key, descending: before.key === key ? !before.descending : key !== "node" && key !== "gpu" && key !== "process" }))}
        onSelect={(next) => ui.setState({ selected: [...next][0] ?? null })} toneOf={(id) => (rowOf(items, id)?.process?.errorCode ? "bad" : undefined)}
      />
      {ids.length === 0 && <div className={css.noMatch}>{t("memory.noMatch")}</div>}
    </>
  );
}
