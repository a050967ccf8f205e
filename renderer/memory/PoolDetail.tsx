import { Button } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconStack2 from "@tabler/icons-react/icons/IconStack2";
import type { GpuProcessView, NodeMemoryView, NodeSettingsView, PoolMapView } from "../../electron/contract/index.js";
import { hrefOf } from "../app/router.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { age, bytes, duration } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { ago, EmptyState, useStale } from "../shared/small.js";
import { useAction } from "../shared/use-action.js";
import { useConsole, useItem, useNow } from "../store/console-hooks.js";
import type { KeyedStore } from "../store/keyed.js";
import { Acks } from "./Acks.js";
import { PoolMap } from "./PoolMap.js";
import { Spark } from "./Spark.js";
import { rowOf, type PoolRow } from "./store.js";
import { gpuText, percent, processText } from "./words.js";
import css from "./memory.module.css";

const LOOK_MS = 1000;

/** The pool of one process in full, looked at once a second while it is shown. */
function useMap(memory: KeyedStore<NodeMemoryView>, nodeId: string, process: string): { map: PoolMapView | null } {
  const { client } = useConsole();
  const [read, setRead] = useState<{ of: string; map: PoolMapView | null } | null>(null);
  const of = `${nodeId}/${process}`;
  useEffect(() => {
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      client.request("memory.map", { nodeId, process }, { signal: gone.signal, timeoutMs: 15_000 }).then(({ node, map }) => {
        memory.upsert(node);
        // What is gone from the node stays as it was seen last.
        if (map) setRead({ of, map });
      }, () => undefined).finally(() => {
        if (!gone.signal.aborted) timer = setTimeout(look, LOOK_MS);
      });
    };
    look();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [client, memory, nodeId, process, of]);
  return { map: read?.of === of ? read.map : null };
}

/** Capacity as a bar: what is used, what is held and free, and what the pool may still take. */
function CapacityBar({ pool }: { pool: GpuProcessView["pool"] }) {
  const { t } = useTranslation();
  const { capacityBytes, heldBytes, usedBytes } = pool;
  if (capacityBytes === null || heldBytes === null || usedBytes === null || capacityBytes <= 0) return null;
  const share = (value: number): string => `${Math.max(0, Math.min(100, (100 * value) / Math.max(capacityBytes, heldBytes)))}%`;
  return (
    <div className={css.capacity}>
      <div className={css.capacityBar} role="img" aria-label={t("memory.capacityText", { used: bytes(usedBytes), held: bytes(heldBytes), capacity: bytes(capacityBytes) })}>
        <span className={css.capacityUsed} style={{ width: share(usedBytes) }} /><span className={css.capacityFree} style={{ width: share(heldBytes - usedBytes) }} />
      </div>
      <span>{t("memory.capacityText", { used: bytes(usedBytes), held: bytes(heldBytes), capacity: bytes(capacityBytes) })}</span>
    </div>
  );
}

function Epoch({ defrag }: { defrag: GpuProcessView["defrag"] }) {
  const { t } = useTranslation();
  const now = useNow();
  const { last, movedBytes, releasedBytes } = defrag;
  const told = (permille: number | null): string => (permille === null ? "–" : percent(permille));
  return (
    <>
      <dt>{t("memory.lastEpoch")}</dt>
      <dd>{last === null ? t("memory.noEpoch") : `${told(last.beforePermille)} → ${told(last.afterPermille)} · ${ago(age(now - last.atMs), t)}`}{last !== null && last.heldBackUs !== null && <span className="dim"> · {t("memory.heldBack", { us: last.heldBackUs })}</span>}</dd>
      <dt>{t("memory.epochs")}</dt>
      <dd>{defrag.epochs ?? "–"}{movedBytes !== null && releasedBytes !== null && <span className="dim"> · {t("memory.movedReleased", { moved: bytes(movedBytes), released: bytes(releasedBytes) })}</span>}</dd>
      {defrag.blocked !== null && <><dt>{t("memory.blocked")}</dt><dd className={css.warn}>{t(`memory.why.${defrag.blocked}`)}</dd></>}
    </>
  );
}

function DefragSwitch({ row, name }: { row: PoolRow & { process: GpuProcessView }; name: string }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const [refused, setRefused] = useState<NodeSettingsView["error"]>(null);
  const ack = row.process.settings.find((each) => each.setting === "hbm_defrag");
  const isOn = (ack && ack.state !== "own" ? ack.wanted : ack?.inForce) === true;
  const change = useAction(async () => {
    setRefused(null);
    const [answer] = await client.request("settings.set", { nodeIds: [row.view.nodeId], changes: { hbm_defrag: !isOn } });
    setRefused(answer?.error ?? null);
  });
  const error = change.error ?? refused;
  return (
    <>
      <Button size="compact-xs" variant="default" loading={change.busy} data-testid="defrag-switch" onClick={() => void change.run()}>{t(isOn ? "memory.turnOff" : "memory.turnOn", { name })}</Button>
      <Button size="compact-xs" variant="subtle" component="a" href={hrefOf("settings", { node: row.view.nodeId })}>{t("memory.toSettings")}</Button>
      {error && <ErrorNote error={error} compact onClose={() => { change.clear(); setRefused(null); }} />}
    </>
  );
}

function Detail({ memory, row }: { memory: KeyedStore<NodeMemoryView>; row: PoolRow & { process: GpuProcessView } }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const now = useNow();
  const { process } = row;
  const name = oneLine(useItem(nodes, row.view.nodeId)?.name ?? row.view.nodeId, 40);
  const { map } = useMap(memory, row.view.nodeId, process.key);
  const stale = useStale(process.updatedAtMs);
  const points = map?.history ?? [];
  const spanMs = points.length > 1 ? points.at(-1)!.atMs - points[0]!.atMs : null;
  const known = (value: number | null, zero?: string): string => (value === null ? "–" : value === 0 && zero !== undefined ? zero : String(value));
  return (
    <section className={`panel ${css.detail}`} aria-label={t("memory.pool")} data-testid="pool-detail" data-row={`${row.view.nodeId}/${process.key}`}>
      <div className={`toolbar ${css.detailHead}`}>
        <h2 className="panel-title ellipsis">{name} · {gpuText(row)} · {processText(process)}</h2>
        <span className={css.detailAge}>{stale && t("memory.silent", { age: ago(age(now - process.updatedAtMs), t) })}</span>
        <span className="spacer" />
        <DefragSwitch row={row} name={name} />
      </div>
      <div className={`${css.detailBody} ${stale ? "stale" : ""}`}>
        <div className={css.left}>
          <CapacityBar pool={process.pool} />
          {map ? <PoolMap map={map} before={map.before && t("memory.mapBefore", { age: ago(age(now - map.before.seenAtMs), t) })} /> : <div className={`${css.map} ${css.noMap}`}>{t("common.loading")}</div>}
          <dl className="kv">
            <Epoch defrag={process.defrag} />
            <dt>{t("memory.buffers")}</dt><dd>{known(process.pool.buffers)}{process.pool.stagingBytes !== null && <span className="dim"> · {t("memory.staging", { bytes: bytes(process.pool.stagingBytes) })}</span>}</dd>
            <dt>{t("memory.device")}</dt><dd>{process.device.freeBytes === null || process.device.totalBytes === null ? "–" : t("memory.deviceText", { free: bytes(process.device.freeBytes), total: bytes(process.device.totalBytes) })}</dd>
            <dt>{t("memory.columns.async")}</dt><dd>{process.asyncLevel === null ? "–" : t(`memory.async.${process.asyncLevel}`)}{process.asyncReason !== null && <span className="dim"> · {oneLine(process.asyncReason, 200)}</span>}</dd>
            <dt>{t("memory.blocks")}</dt><dd>{known(process.smBudget, t("memory.bySize"))}{process.multiprocessors !== null && <span className="dim"> · {t("memory.ofSms", { count: process.multiprocessors })}</span>}</dd>
            <dt>{t("memory.graphs")}</dt><dd>{known(process.lanesInUse)} / {known(process.graphLanes)}</dd>
          </dl>
        </div>
        <div className={css.right}>
          <h3>{t("memory.curve")} {process.pool.fragmentationPermille !== null && percent(process.pool.fragmentationPermille)} <span className={css.span}>{spanMs !== null && t("memory.curveSpan", { span: duration(spanMs) })}</span></h3>
          <Spark points={points} />
          <h3>{t("memory.acksTitle")}{!process.settingsCurrent && <span className={css.warn}> · {t("memory.acksBehind")}</span>}</h3>
          <Acks settings={process.settings} className={css.acks} />
        </div>
      </div>
    </section>
  );
}

/** The chosen row's pool; what to do where there is none. `anyProcess`: null while no node has answered yet. */
export function PoolDetail({ memory, selected, anyProcess }: { memory: KeyedStore<NodeMemoryView>; selected: string | null; anyProcess: boolean | null }) {
  const { t } = useTranslation();
  const row = useStore(memory.api, (s) => rowOf(s.items, selected)?.process ? s.items : null);
  const found = row === null ? undefined : rowOf(row, selected);
  if (found?.process) return <Detail key={selected} memory={memory} row={found as PoolRow & { process: GpuProcessView }} />;
  return (
    <section className={`panel ${css.detail}`} aria-label={t("memory.pool")}>
      {anyProcess === null ? <div className={css.noMap}>{t("common.loading")}</div> : anyProcess
        ? <EmptyState icon={IconStack2} title={t("memory.choose.title")}>{t("memory.choose.text")}</EmptyState>
        : <EmptyState icon={IconStack2} title={t("memory.quiet.title")}>{t("memory.quiet.text")} <code className="mono">{'torch.distributed.init_process_group("stepccl")'}</code></EmptyState>}
    </section>
  );
}
