import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import type { StoreApi } from "zustand/vanilla";
import { byName } from "../nodes/filter.js";
import { DataGrid, type Column } from "../shared/DataGrid.js";
import { bytes } from "../shared/format.js";
import { Age, NodeText, useStale } from "../shared/small.js";
import { useConsole, useItem, useItems, useTelemetryVersion } from "../store/console-hooks.js";
import type { MemoryUi } from "./store.js";
import { percent } from "./words.js";
import css from "./memory.module.css";

interface HostMemory { totalBytes: number | null; availableBytes: number | null; daemonRssKib: number | null; atMs: number | null }

/** One figure of one node, renewed once a second from the telemetry; from its facts while there is none. */
function Figure({ id, show }: { id: string; show(memory: HostMemory): React.ReactNode }) {
  const { nodes, telemetry } = useConsole();
  useTelemetryVersion(1);
  const node = useItem(nodes, id);
  const sample = telemetry.nodes.get(id);
  const memory: HostMemory = {
    totalBytes: node?.facts?.memoryTotalBytes ?? null, availableBytes: sample?.memoryAvailableBytes ?? node?.facts?.memoryAvailableBytes ?? null,
    daemonRssKib: sample?.daemonRssKib ?? node?.agent.rssKib ?? null, atMs: sample?.sampledAtMs ?? node?.facts?.collectedAtMs ?? null,
  };
  const stale = useStale(memory.atMs);
  return <span className={`${css.cell} ${stale ? "stale" : ""}`}>{show(memory)}</span>;
}

const size = (value: number | null): string => (value === null ? "–" : bytes(value));

/** The host memory of each node that is up or was. */
export function HostTable({ ui }: { ui: StoreApi<MemoryUi> }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const text = useStore(ui, (s) => s.text);
  const ids = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return [...items.values()].filter((node) => node.facts !== null && words.every((word) => node.name.toLowerCase().includes(word))).sort((a, b) => byName(a.name, b.name) || byName(a.id, b.id)).map((node) => node.id);
  }, [items, text]);
  const columns = useMemo<Column[]>(() => {
    const column = (key: string, width: string, show: (memory: HostMemory) => React.ReactNode): Column => ({ key, header: t(`memory.hostColumns.${key}`), width, align: "end", cell: (id) => <Figure id={id} show={show} /> });
    return [
      { key: "node", header: t("memory.hostColumns.node"), width: "minmax(120px, 1.4fr)", cell: (id) => <Name id={id} /> },
      column("total", "minmax(90px, 1fr)", (memory) => size(memory.totalBytes)),
      column("available", "minmax(90px, 1fr)", (memory) => size(memory.availableBytes)),
      column("used", "minmax(150px, 1.4fr)", ({ totalBytes, availableBytes }) => {
        if (totalBytes === null || availableBytes === null || totalBytes <= 0) return "–";
        const permille = Math.max(0, Math.min(1000, 1000 * (1 - availableBytes / totalBytes)));
        return <span className={css.share}><span className={css.shareBar} aria-hidden><span style={{ width: `${permille / 10}%` }} /></span><span>{percent(permille)}</span></span>;
      }),
      column("daemon", "minmax(90px, 1fr)", (memory) => (memory.daemonRssKib === null ? "–" : bytes(memory.daemonRssKib * 1024))),
      column("age", "90px", (memory) => <Age atMs={memory.atMs} always />),
    ];
  }, [t]);
  return (
    <>
      <DataGrid label={t("memory.hostTable")} columns={columns} ids={ids} testId="host-memory-table" />
      {ids.length === 0 && <div className={css.noMatch}>{t("memory.noMatch")}</div>}
    </>
  );
}

function Name({ id }: { id: string }) {
  const { nodes } = useConsole();
  return <NodeText text={useItem(nodes, id)?.name ?? id} />;
}
