import { distanceToSegment, laneSegment, type Segment } from "./geometry.js";
import type { SceneLane, SceneModel, SceneStyle, Selection } from "./model.js";
import { drawCards, drawCells, drawLanes } from "./paint.js";
import { neighbour, place, type Placement } from "./placement.js";

export interface View { scale: number; x: number; y: number }
export interface SceneCallbacks {
  onSelect(selection: Selection): void;
  onHover(selection: Selection): void;
  onOpen(nodeId: string): void;
}

/** 30 frames a second at most. */
const FRAME_MS = 33;
const LANE_SPACING = 26;
/** Lanes drawn at once in the cell view: the busiest, and over them those of the chosen node. */
const MAX_LANES = 400;
/** Of the busiest, in the cell view: more would hide the cells, whose fill tells the rate anyway. */
const BUSIEST = 48;
/** px; `words` of the style sheet. */
const WORDS_HEIGHT = 26;
const MIN_SCALE = 0.05;
const MAX_SCALE = 4;

/**
 * The fabric on a 2D canvas. It draws only when data, view or selection changed, at most 30 times a second; moving dots keep it
 * drawing while bytes flow, unless the person asked for reduced motion or the page is hidden.
 */
export class Scene {
  readonly #canvas: HTMLCanvasElement;
  readonly #context: CanvasRenderingContext2D;
  readonly #callbacks: SceneCallbacks;
  #model: SceneModel = { nodes: [], lanes: [] };
  #placement: Placement = place([]);
  #placed = "";
  #segments: Array<{ lane: SceneLane; segment: Segment }> = [];
  #style: SceneStyle;
  #view: View = { scale: 1, x: 0, y: 0 };
  #fitted = true;
  #selection: Selection = null;
  #hover: Selection = null;
  #width = 0;
  #height = 0;
  #dirty = false;
  #frame: number | null = null;
  #lastDrawMs = 0;
  #still: boolean;
  #ended = false;
  /** Drawing time of the last frame in ms, for the performance test. */
  lastPaintMs = 0;

  constructor(canvas: HTMLCanvasElement, style: SceneStyle, callbacks: SceneCallbacks, reducedMotion: boolean) {
    const context = canvas.getContext("2d");
    if (!context) throw new Error("This browser gives no 2D canvas");
    this.#canvas = canvas;
    this.#context = context;
    this.#style = style;
    this.#callbacks = callbacks;
    this.#still = reducedMotion;
  }

  get placement(): Placement {
    return this.#placement;
  }
  get view(): View {
    return this.#view;
  }

  setStyle(style: SceneStyle): void {
    this.#style = style;
    this.invalidate();
  }
  setReducedMotion(still: boolean): void {
    this.#still = still;
    this.invalidate();
  }
  setSelection(selection: Selection): void {
    this.#selection = selection;
    this.#chooseLanes();
    this.invalidate();
  }

  setModel(model: SceneModel): void {
    this.#model = model;
    const placed = model.nodes.map((node) => `${node.id}\u0000${node.name}`).join("\u0001");
    if (placed !== this.#placed) {
      this.#placed = placed;
      this.#placement = place(model.nodes);
      if (this.#fitted) this.fit();
    }
    this.#chooseLanes();
    this.invalidate();
  }

  /** `width` and `height` in CSS px; the backing store follows the device's pixel ratio. */
  resize(width: number, height: number, pixelRatio: number): void {
    this.#width = width;
    this.#height = height;
    this.#canvas.width = Math.max(1, Math.round(width * pixelRatio));
    this.#canvas.height = Math.max(1, Math.round(height * pixelRatio));
    if (this.#fitted) this.fit();
    this.invalidate();
  }

  /** All nodes in view. Later resizes and new nodes keep fitting until the person moves the view. */
  fit(): void {
    const margin = this.#placement.mode === "cards" ? 44 : 24;
    const { width, height } = this.#placement;
    const limit = this.#placement.mode === "cards" ? 1.25 : 1.6;
    // The sentence about what is pointed at stands over the foot of the map.
    const free = Math.max(0, this.#height - WORDS_HEIGHT);
    const scale = Math.max(MIN_SCALE, Math.min(limit, (this.#width - 2 * margin) / Math.max(1, width), (free - 2 * margin) / Math.max(1, height)));
    this.#view = { scale, x: (this.#width - width * scale) / 2, y: (free - height * scale) / 2 };
    this.#fitted = true;
    this.invalidate();
  }

  /** Zooms about a point of the canvas (its middle where absent). */
  zoom(factor: number, atX = this.#width / 2, atY = this.#height / 2): void {
    const scale = Math.max(MIN_SCALE, Math.min(MAX_SCALE, this.#view.scale * factor));
    const ratio = scale / this.#view.scale;
    this.#view = { scale, x: atX - (atX - this.#view.x) * ratio, y: atY - (atY - this.#view.y) * ratio };
    this.#fitted = false;
    this.invalidate();
  }
  pan(dx: number, dy: number): void {
    this.#view = { ...this.#view, x: this.#view.x + dx, y: this.#view.y + dy };
    this.#fitted = false;
    this.invalidate();
  }

  /** What lies under a point of the canvas, nodes before lanes. */
  pick(x: number, y: number): Selection {
    const { scale } = this.#view;
    const [sx, sy] = [(x - this.#view.x) / scale, (y - this.#view.y) / scale];
    const node = this.#placement.nodeAt(sx, sy);
    if (node !== null) return { kind: "node", id: node };
    let best: { id: string; distance: number } | null = null;
    for (const { lane, segment } of this.#segments) {
      const distance = distanceToSegment(sx, sy, segment) * scale;
      if (distance <= 8 && (!best || distance < best.distance)) best = { id: lane.id, distance };
    }
    return best && { kind: "lane", id: best.id };
  }

  hoverAt(x: number, y: number): void {
    const next = this.pick(x, y);
    if (next?.kind === this.#hover?.kind && next?.id === this.#hover?.id) return;
    this.#hover = next;
    this.#canvas.style.cursor = next ? "pointer" : "grab";
    this.#callbacks.onHover(next);
    this.#chooseLanes();
    this.invalidate();
  }
  leave(): void {
    if (this.#hover === null) return;
    this.#hover = null;
    this.#callbacks.onHover(null);
    this.#chooseLanes();
    this.invalidate();
  }
  clickAt(x: number, y: number): void {
    this.#callbacks.onSelect(this.pick(x, y));
  }

  /** True when the key was the map's own. */
  key(key: string): boolean {
    const direction = ({ ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" } as const)[key];
    if (direction) {
      const from = this.#selection?.kind === "node" ? this.#selection.id : null;
      const next = neighbour(this.#placement, from, direction);
      if (next !== null) {
        this.#callbacks.onSelect({ kind: "node", id: next });
        this.#reveal(next);
      }
      return true;
    }
    switch (key) {
      case "+": case "=": this.zoom(1.25); return true;
      case "-": this.zoom(0.8); return true;
      case "0": this.fit(); return true;
      case "Escape": this.#callbacks.onSelect(null); return true;
      case "Enter":
        if (this.#selection?.kind === "node") this.#callbacks.onOpen(this.#selection.id);
        return true;
      default: return false;
    }
  }

  invalidate(): void {
    this.#dirty = true;
    this.#schedule();
  }
  end(): void {
    this.#ended = true;
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
  }

  #reveal(id: string): void {
    const box = this.#placement.boxes.get(id);
    if (!box) return;
    const { scale, x, y } = this.#view;
    const [left, top, right, bottom] = [box.x * scale + x, box.y * scale + y, (box.x + box.width) * scale + x, (box.y + box.height) * scale + y];
    const dx = left < 0 ? 16 - left : right > this.#width ? this.#width - right - 16 : 0;
    const dy = top < 0 ? 16 - top : bottom > this.#height ? this.#height - bottom - 16 : 0;
    if (dx !== 0 || dy !== 0) this.pan(dx, dy);
  }

  /** Which lanes are drawn, and where. Cards show all; cells those of the node in question and the busiest. */
  #chooseLanes(): void {
    const { boxes, mode } = this.#placement;
    let lanes: readonly SceneLane[] = this.#model.lanes;
    if (mode === "cells") {
      const focus = [this.#hover, this.#selection].flatMap((each) => (each?.kind === "node" ? [each.id] : []));
      const own = lanes.filter((lane) => focus.includes(lane.a) || focus.includes(lane.b) || lane.id === this.#selection?.id);
      const busy = lanes.filter((lane) => lane.rate.forward + lane.rate.backward > 0 || lane.state === "down");
      const marked = lanes.filter((lane) => lane.marked);
      busy.sort((a, b) => b.rate.forward + b.rate.backward - a.rate.forward - a.rate.backward);
      lanes = [...new Set([...busy.slice(0, BUSIEST), ...own, ...marked])].slice(-MAX_LANES);
    }
    const perPair = new Map<string, SceneLane[]>();
    for (const lane of lanes) {
      const pair = `${lane.a}|${lane.b}`;
      const list = perPair.get(pair);
      if (list) list.push(lane);
      else perPair.set(pair, [lane]);
    }
    this.#segments = [];
    for (const list of perPair.values()) {
      const [a, b] = [boxes.get(list[0]!.a), boxes.get(list[0]!.b)];
      if (!a || !b) continue;
      list.forEach((lane, index) => this.#segments.push({ lane, segment: laneSegment(a, b, index, list.length, mode === "cards" ? LANE_SPACING : 4) }));
    }
  }

  #moving(): boolean {
    return !this.#still && !document.hidden && this.#segments.some(({ lane }) => !lane.stale && lane.rate.forward + lane.rate.backward > 0);
  }

  #schedule(): void {
    if (this.#frame !== null || this.#ended) return;
    this.#frame = requestAnimationFrame((now) => {
      this.#frame = null;
      if (this.#ended) return;
      if (now - this.#lastDrawMs < FRAME_MS - 2) {
        this.#schedule();
        return;
      }
      this.#lastDrawMs = now;
      this.#dirty = false;
      this.#paint(now);
      if (this.#dirty || this.#moving()) this.#schedule();
    });
  }

  #paint(now: number): void {
    const started = performance.now();
    const context = this.#context;
    const ratio = this.#width === 0 ? 1 : this.#canvas.width / this.#width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.#width, this.#height);
    context.translate(this.#view.x, this.#view.y);
    context.scale(this.#view.scale, this.#view.scale);
    const scope = {
      context, style: this.#style, placement: this.#placement, scale: this.#view.scale, selection: this.#selection, hover: this.#hover,
      seconds: this.#still ? null : now / 1000,
      visible: { x: -this.#view.x / this.#view.scale, y: -this.#view.y / this.#view.scale, width: this.#width / this.#view.scale, height: this.#height / this.#view.scale },
    };
    if (this.#placement.mode === "cards") {
      drawLanes(scope, this.#segments);
      drawCards(scope, this.#model.nodes);
    } else {
      drawCells(scope, this.#model.nodes);
      drawLanes(scope, this.#segments);
    }
    this.lastPaintMs = performance.now() - started;
  }
}
