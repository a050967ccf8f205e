import { ActionIcon, Tooltip, useComputedColorScheme } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useEffect, useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import type { StoreApi } from "zustand/vanilla";
import IconFocus2 from "@tabler/icons-react/icons/IconFocus2";
import IconZoomIn from "@tabler/icons-react/icons/IconZoomIn";
import IconZoomOut from "@tabler/icons-react/icons/IconZoomOut";
import { useUi } from "../app/ui.js";
import { rate } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { Shortcut } from "../shared/small.js";
import { useConsole, useItems, useNow } from "../store/console-hooks.js";
import { buildModel } from "./build-model.js";
import { laneRate, type Lane } from "./lanes.js";
import { Scene } from "./scene/scene.js";
import { sceneStyle } from "./scene-style.js";
import type { TopologyUi } from "./store.js";
import css from "./topology.module.css";

const DRAG_PX = 4;

/** The canvas and what feeds it. Samples go to the scene past React. */
export function FabricMap({ ui, lanes }: { ui: StoreApi<TopologyUi>; lanes: readonly Lane[] }) {
  const { t } = useTranslation();
  const { nodes, telemetry, clock } = useConsole();
  const items = useItems(nodes);
  const set = useUi((s) => s.set);
  const selection = useStore(ui, (s) => s.selection);
  const dark = useComputedColorScheme("light") === "dark";
  const still = useMediaQuery("(prefers-reduced-motion: reduce)", false, { getInitialValueInEffect: false }) ?? false;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scene = useRef<Scene | null>(null);
  const mark = useStore(ui, (s) => s.mark);
  const latest = useRef({ items, lanes, mark });
  latest.current = { items, lanes, mark };

  useEffect(() => {
    const element = canvas.current!;
    const made = new Scene(element, sceneStyle(document.documentElement, dark, t), {
      onSelect: (next) => ui.setState({ selection: next }),
      onHover: (next) => ui.setState({ hover: next }),
      onOpen: (id) => set({ nodeDetail: id }),
    }, still);
    scene.current = made;
    let fedMs = 0;
    const feed = () => {
      fedMs = performance.now();
      made.setModel(buildModel(latest.current.items.values(), latest.current.lanes, telemetry, clock.now(), latest.current.mark));
    };
    feed();
    const observer = new ResizeObserver(() => made.resize(element.clientWidth, element.clientHeight, window.devicePixelRatio));
    observer.observe(element);
    made.resize(element.clientWidth, element.clientHeight, window.devicePixelRatio);
    const stop = telemetry.subscribe(feed);
    // Ages grow without any news: that is when they matter.
    const timer = setInterval(() => {
      if (performance.now() - fedMs > 900) feed();
    }, 1000);
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const rect = element.getBoundingClientRect();
      made.zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - rect.left, event.clientY - rect.top);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => {
      element.removeEventListener("wheel", onWheel);
      clearInterval(timer);
      stop();
      observer.disconnect();
      made.end();
      scene.current = null;
    };
    // The scene is made once; theme, language and motion are set below.
  }, [ui, telemetry, clock, set]);

  useEffect(() => scene.current?.setStyle(sceneStyle(document.documentElement, dark, t)), [dark, t]);
  useEffect(() => scene.current?.setReducedMotion(still), [still]);
  useEffect(() => scene.current?.setSelection(selection), [selection]);
  useEffect(() => scene.current?.setModel(buildModel(items.values(), lanes, telemetry, clock.now(), mark)), [items, lanes, telemetry, clock, mark]);

  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const point = (event: { clientX: number; clientY: number }) => {
    const rect = canvas.current!.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top] as const;
  };
  return (
    <div className={css.map}>
      <canvas
        ref={canvas} className={css.canvas} tabIndex={0} role="application" aria-label={t("topology.mapLabel")} aria-describedby="map-said" data-testid="fabric-map"
        onKeyDown={(event) => {
          if (!event.ctrlKey && !event.metaKey && !event.altKey && scene.current?.key(event.key)) event.preventDefault();
        }}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (!from) {
            scene.current?.hoverAt(...point(event));
            return;
          }
          const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
          if (!from.moved && Math.hypot(dx, dy) < DRAG_PX) return;
          scene.current?.pan(dx, dy);
          drag.current = { x: event.clientX, y: event.clientY, moved: true };
        }}
        onPointerUp={(event) => {
          if (drag.current && !drag.current.moved) scene.current?.clickAt(...point(event));
          drag.current = null;
        }}
        onPointerCancel={() => { drag.current = null; }}
        onPointerLeave={() => scene.current?.leave()}
        onDoubleClick={(event) => {
          const hit = scene.current?.pick(...point(event));
          if (hit?.kind === "node") set({ nodeDetail: hit.id });
        }}
      />
      <div className={css.mapTools}>
        <Tooltip label={t("topology.zoomIn")}><ActionIcon variant="default" size="sm" aria-label={t("topology.zoomIn")} onClick={() => scene.current?.zoom(1.25)}><IconZoomIn size={15} /></ActionIcon></Tooltip>
        <Tooltip label={t("topology.zoomOut")}><ActionIcon variant="default" size="sm" aria-label={t("topology.zoomOut")} onClick={() => scene.current?.zoom(0.8)}><IconZoomOut size={15} /></ActionIcon></Tooltip>
        <Tooltip label={<>{t("topology.fit")} <Shortcut keys="0" /></>}><ActionIcon variant="default" size="sm" aria-label={t("topology.fit")} onClick={() => scene.current?.fit()}><IconFocus2 size={15} /></ActionIcon></Tooltip>
      </div>
      <MapWords ui={ui} lanes={lanes} />
    </div>
  );
}

/** What is pointed at or chosen, in words: for the eye at the map's foot, and for a screen reader. */
function MapWords({ ui, lanes }: { ui: StoreApi<TopologyUi>; lanes: readonly Lane[] }) {
  const { t } = useTranslation();
  const { nodes, telemetry } = useConsole();
  const items = useItems(nodes);
  useNow();
  const selection = useStore(ui, (s) => s.hover ?? s.selection);
  const byId = useMemo(() => new Map(lanes.map((lane) => [lane.id, lane])), [lanes]);
  const name = (id: string) => oneLine(items.get(id)?.name ?? id, 40);
  let words = "";
  if (selection?.kind === "node") {
    const node = items.get(selection.id);
    const sample = telemetry.nodes.get(selection.id);
    const tx = sample?.nics.reduce((sum, nic) => sum + (nic.kind === "netdev" ? nic.txBytesPerSecond : 0), 0);
    const rx = sample?.nics.reduce((sum, nic) => sum + (nic.kind === "netdev" ? nic.rxBytesPerSecond : 0), 0);
    words = node ? `${name(node.id)} · ${t(`phases.${node.phase}`)}${tx === undefined || rx === undefined ? "" : ` · ↑ ${rate(tx)} ↓ ${rate(rx)}`}` : "";
  } else if (selection?.kind === "lane") {
    const lane = byId.get(selection.id);
    if (lane) {
      const of = laneRate(lane, telemetry.flows, telemetry.nodes);
      words = `${name(lane.a)} ↔ ${name(lane.b)} · ${lane.transport.toUpperCase()} · ${t(`linkStates.${lane.state}`)} · → ${rate(of.forward)} ← ${rate(of.backward)}${lane.reason === null ? "" : ` · ${oneLine(lane.reason)}`}`;
    }
  }
  return <div className={css.words} id="map-said" aria-live="polite">{words === "" ? <span className="dim">{t("topology.hint")}</span> : words}</div>;
}
