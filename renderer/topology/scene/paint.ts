import { rate } from "../../shared/format.js";
import { rateWidth, type Segment } from "./geometry.js";
import type { SceneLane, SceneNode, SceneStyle, Selection } from "./model.js";
import { CARD, rackOf, type Box, type Placement } from "./placement.js";

export interface Scope {
  context: CanvasRenderingContext2D;
  style: SceneStyle;
  placement: Placement;
  scale: number;
  selection: Selection;
  hover: Selection;
  /** Time for moving dots; null = stand still and show arrows. */
  seconds: number | null;
  visible: Box;
}

const is = (selection: Selection, kind: "node" | "lane", id: string): boolean => selection?.kind === kind && selection.id === id;

function phaseColour(node: SceneNode, style: SceneStyle): string {
  if (node.stale && node.phase === "up") return style.idle;
  switch (node.phase) {
    case "up": return style.ok;
    case "degraded": case "needs_host_key": return style.warn;
    case "failed": case "unreachable": return style.bad;
    case "reachable": case "bringing_up": return style.info;
    case "new": return style.idle;
  }
}

/** The mark of a phase has its own shape, so that it is told without colour: disc, ring, triangle, cross. */
function phaseMark(scope: Scope, node: SceneNode, x: number, y: number, r: number): void {
  const { context } = scope;
  context.fillStyle = context.strokeStyle = phaseColour(node, scope.style);
  context.lineWidth = r * 0.45;
  context.beginPath();
  switch (node.phase) {
    case "up":
      context.arc(x, y, r, 0, 7);
      context.fill();
      return;
    case "degraded": case "needs_host_key":
      context.moveTo(x, y - r);
      context.lineTo(x + r, y + r * 0.8);
      context.lineTo(x - r, y + r * 0.8);
      context.closePath();
      context.fill();
      return;
    case "failed": case "unreachable":
      context.moveTo(x - r * 0.8, y - r * 0.8);
      context.lineTo(x + r * 0.8, y + r * 0.8);
      context.moveTo(x + r * 0.8, y - r * 0.8);
      context.lineTo(x - r * 0.8, y + r * 0.8);
      context.stroke();
      return;
    default:
      context.arc(x, y, r * 0.8, 0, 7);
      context.stroke();
  }
}

function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  const chars = [...text];
  while (chars.length > 1 && context.measureText(`${chars.join("")}…`).width > width) chars.pop();
  return `${chars.join("")}…`;
}

/** A frame around what breaks a rule, outside of the frame of a selection, with a cross at its corner. */
function frameMarked(scope: Scope, box: Box, gap: number, width: number): void {
  const { context, style } = scope;
  context.strokeStyle = style.bad;
  context.lineWidth = width;
  context.beginPath();
  context.roundRect(box.x - gap, box.y - gap, box.width + 2 * gap, box.height + 2 * gap, 6 + gap);
  context.stroke();
  badge(scope, box.x + box.width, box.y, 8);
}

/** A cross on a disc: read without colour. */
function badge(scope: Scope, x: number, y: number, r: number): void {
  const { context, style } = scope;
  context.fillStyle = style.bad;
  context.beginPath();
  context.arc(x, y, r, 0, 7);
  context.fill();
  context.strokeStyle = style.panel;
  context.lineWidth = r * 0.28;
  context.beginPath();
  for (const [dx, dy] of [[1, 1], [1, -1]] as const) {
    context.moveTo(x - dx * r * 0.4, y - dy * r * 0.4);
    context.lineTo(x + dx * r * 0.4, y + dy * r * 0.4);
  }
  context.stroke();
}

export function drawCards(scope: Scope, nodes: readonly SceneNode[]): void {
  const { context, style, placement } = scope;
  for (const node of nodes) {
    const box = placement.boxes.get(node.id);
    if (!box) continue;
    const chosen = is(scope.selection, "node", node.id);
    context.globalAlpha = 1;
    context.beginPath();
    context.roundRect(box.x, box.y, CARD.width, CARD.height, 6);
    context.fillStyle = style.panel;
    context.fill();
    context.lineWidth = chosen ? 2.5 : 1.2;
    context.strokeStyle = chosen ? style.focus : is(scope.hover, "node", node.id) ? style.text : style.line;
    context.stroke();
    if (node.marked) frameMarked(scope, box, 4, 3);
    phaseMark(scope, node, box.x + 15, box.y + 17, 5);
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = style.text;
    context.font = `600 13px ${style.font}`;
    context.fillText(cut(context, node.name, CARD.width - 38), box.x + 27, box.y + 17.5);
    context.font = `11px ${style.font}`;
    context.fillStyle = node.age === null ? style.dim : style.warn;
    const word = style.phaseWord(node.phase);
    context.fillText(cut(context, node.age === null ? word : `${word} · ${style.ago(node.age)}`, CARD.width - 38), box.x + 27, box.y + 34);
    if (node.stale) context.globalAlpha = 0.55;
    node.ports.slice(0, 2).forEach((port, index) => {
      const y = box.y + 52 + index * 16;
      if (node.marked?.port === port.name) {
        context.strokeStyle = style.bad;
        context.lineWidth = 1.5;
        context.strokeRect(box.x + 6, y - 8, CARD.width - 12, 16);
      }
      context.fillStyle = port.up ? style.ok : style.bad;
      context.fillRect(box.x + 11, y - 4, 8, 8);
      if (!port.up) {
        context.fillStyle = style.panel;
        context.fillRect(box.x + 13, y - 2, 4, 4);
      }
      context.font = `11px ${style.mono}`;
      context.fillStyle = style.text;
      context.fillText(cut(context, port.name, 62), box.x + 27, y);
      context.fillStyle = style.dim;
      context.textAlign = "right";
      context.fillText(cut(context, port.label, CARD.width - 104), box.x + CARD.width - 10, y);
      context.textAlign = "left";
    });
    context.globalAlpha = 1;
  }
}

/** One cell a node: fill by what it sends, frame and mark by its phase; names when there is room for them. */
export function drawCells(scope: Scope, nodes: readonly SceneNode[]): void {
  const { context, style, placement, visible } = scope;
  const titles = scope.scale >= 0.55;
  for (const rack of placement.racks) {
    if (!titles) break;
    context.font = `600 10px ${style.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = style.dim;
    context.fillText(cut(context, rack.name, rack.width), rack.x, rack.y + 6);
  }
  const names = scope.scale >= 2;
  for (const node of nodes) {
    const box = placement.boxes.get(node.id);
    if (!box || box.x > visible.x + visible.width || box.y > visible.y + visible.height || box.x + box.width < visible.x || box.y + box.height < visible.y) continue;
    const total = node.txBytesPerSecond + node.rxBytesPerSecond;
    const colour = phaseColour(node, style);
    context.fillStyle = style.panel;
    context.fillRect(box.x, box.y, box.width, box.height);
    context.globalAlpha = node.stale ? 0.12 : total <= 0 ? 0.16 : Math.min(0.75, 0.25 + Math.max(0, Math.log10(total / 1e6)) * 0.11);
    context.fillStyle = colour;
    context.fillRect(box.x, box.y, box.width, box.height);
    context.globalAlpha = 1;
    if (node.marked) frameMarked(scope, box, 3, 2.5);
    const chosen = is(scope.selection, "node", node.id);
    const hovered = is(scope.hover, "node", node.id);
    if (chosen || hovered) {
      context.strokeStyle = chosen ? style.focus : style.text;
      context.lineWidth = 2.5;
      context.strokeRect(box.x, box.y, box.width, box.height);
    }
    if (node.phase !== "up") phaseMark(scope, node, box.x + box.width / 2, box.y + (names ? 8 : box.height / 2), names ? 3 : 6);
    if (names) {
      context.font = `4.5px ${style.font}`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillStyle = style.text;
      // The rack stands above: a cell says only what is its own.
      const rack = rackOf(node.name);
      context.fillText(cut(context, rack === null ? node.name : node.name.slice(rack.length + 1), box.width - 2), box.x + box.width / 2, box.y + 16);
      if (total > 0) context.fillText(rate(total), box.x + box.width / 2, box.y + 22);
    }
  }
}

/** Above this many lanes, only those that carry something or are pointed at get a label. */
const LABEL_ALL_UP_TO = 12;
/** Above this many, labels would be a carpet: only what is pointed at has one. */
const LABEL_BUSY_UP_TO = 80;

export function drawLanes(scope: Scope, segments: ReadonlyArray<{ lane: SceneLane; segment: Segment }>): void {
  const { context, style } = scope;
  const cells = scope.placement.mode === "cells";
  const unit = cells ? 1 / scope.scale : 1;
  const focus = new Set([scope.selection, scope.hover].flatMap((each) => (each ? [each.id] : [])));
  const pointed = (lane: SceneLane) => focus.has(lane.id) || focus.has(lane.a) || focus.has(lane.b);
  for (const { lane, segment } of segments) {
    const total = lane.rate.forward + lane.rate.backward;
    const chosen = is(scope.selection, "lane", lane.id);
    const hot = chosen || is(scope.hover, "lane", lane.id);
    const quiet = cells && !pointed(lane);
    if (lane.marked) underlayMarked(scope, segment, unit);
    context.globalAlpha = lane.stale ? 0.4 : quiet ? 0.45 : 1;
    context.lineWidth = ((quiet ? 0.35 : 1) * rateWidth(total) + (hot ? 1.5 : 0)) * unit;
    context.strokeStyle = chosen ? style.focus : lane.state === "down" ? style.bad : lane.state === "unknown" || lane.stale ? style.idle : style.transport[lane.transport];
    context.setLineDash(lane.state === "down" ? [3 * unit, 5 * unit] : lane.state === "unknown" ? [7 * unit, 5 * unit] : []);
    context.beginPath();
    context.moveTo(segment.x1, segment.y1);
    context.lineTo(segment.x2, segment.y2);
    context.stroke();
    context.setLineDash([]);
    if (!lane.stale && !quiet && total > 0) drawFlow(scope, lane, segment, unit);
    context.globalAlpha = 1;
  }
  const wanted = segments.filter(({ lane }) =>
    pointed(lane) || (!cells && (segments.length <= LABEL_ALL_UP_TO || (segments.length <= LABEL_BUSY_UP_TO && lane.rate.forward + lane.rate.backward > 0))));
  const weight = ({ lane }: { lane: SceneLane }) => (pointed(lane) ? 1e15 : 0) + (lane.state === "up" ? 1 : 0) + lane.rate.forward + lane.rate.backward;
  const taken: Array<readonly [number, number]> = [];
  for (const each of [...wanted].sort((x, y) => weight(y) - weight(x))) drawLabel(scope, each.lane, each.segment, unit, taken);
}

/** Under the lane that breaks a rule: a broad band, and the cross where the label leaves room. */
function underlayMarked(scope: Scope, segment: Segment, unit: number): void {
  const { context, style } = scope;
  context.save();
  context.globalAlpha = 0.32;
  context.strokeStyle = style.bad;
  context.lineWidth = 14 * unit;
  context.lineCap = "round";
  context.beginPath();
  context.moveTo(segment.x1, segment.y1);
  context.lineTo(segment.x2, segment.y2);
  context.stroke();
  context.restore();
  badge(scope, segment.x1 + (segment.x2 - segment.x1) * 0.12, segment.y1 + (segment.y2 - segment.y1) * 0.12, 8 * unit);
}

/** Dots that move with the bytes (three a direction), or an arrow head where nothing may move. */
function drawFlow(scope: Scope, lane: SceneLane, segment: Segment, unit: number): void {
  const { context, style } = scope;
  for (const [bytesPerSecond, from, to] of [
    [lane.rate.forward, [segment.x1, segment.y1], [segment.x2, segment.y2]], [lane.rate.backward, [segment.x2, segment.y2], [segment.x1, segment.y1]],
  ] as const) {
    if (bytesPerSecond <= 0) continue;
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const length = Math.hypot(dx, dy);
    if (length < 1) continue;
    context.fillStyle = style.text;
    if (scope.seconds === null) {
      const [x, y] = [from[0] + dx * 0.82, from[1] + dy * 0.82];
      const [ux, uy] = [(dx / length) * 9 * unit, (dy / length) * 9 * unit];
      context.beginPath();
      context.moveTo(x + ux, y + uy);
      context.lineTo(x - uy * 0.55, y + ux * 0.55);
      context.lineTo(x + uy * 0.55, y - ux * 0.55);
      context.fill();
      continue;
    }
    const speed = 40 + 25 * Math.max(0, Math.log10(bytesPerSecond / 1e6));
    const [sx, sy] = [(-dy / length) * 3 * unit, (dx / length) * 3 * unit];
    for (let dot = 0; dot < 3; dot++) {
      const t = ((scope.seconds * speed * unit) / length + dot / 3) % 1;
      context.beginPath();
      context.arc(from[0] + dx * t + sx, from[1] + dy * t + sy, 2.4 * unit, 0, 7);
      context.fill();
    }
  }
}

/** Transport and both rates on the lane's middle, read from left to right; left out where another label or a card stands already. */
function drawLabel(scope: Scope, lane: SceneLane, segment: Segment, unit: number, taken: Array<readonly [number, number]>): void {
  const { context, style } = scope;
  const rightward = segment.x2 >= segment.x1;
  const [toRight, toLeft] = rightward ? [lane.rate.forward, lane.rate.backward] : [lane.rate.backward, lane.rate.forward];
  const word = lane.transport.toUpperCase().replace("_", " ");
  const length = Math.hypot(segment.x2 - segment.x1, segment.y2 - segment.y1);
  context.font = `${11 * unit}px ${style.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  let text = lane.state === "up" && lane.rate.sampledAtMs !== null ? `${word}  → ${rate(toRight)}  ← ${rate(toLeft)}` : word;
  let width = context.measureText(text).width + 10 * unit;
  if (width > length) {
    text = word;
    width = context.measureText(text).width + 10 * unit;
  }
  const [x, y] = [(segment.x1 + segment.x2) / 2, (segment.y1 + segment.y2) / 2];
  const angle = Math.atan2(segment.y2 - segment.y1, segment.x2 - segment.x1);
  const half = Math.max(0, width / 2 - 9 * unit);
  const points = Array.from({ length: 7 }, (_, index) => [x + Math.cos(angle) * half * (index / 3 - 1), y + Math.sin(angle) * half * (index / 3 - 1)] as const);
  const free = width <= length && points.every(([px, py]) => taken.every(([tx, ty]) => Math.hypot(px - tx, py - ty) >= 19 * unit) && (scope.placement.mode === "cells" || scope.placement.nodeAt(px, py) === null));
  if (!free) return;
  taken.push(...points);
  context.save();
  context.translate(x, y);
  context.rotate(rightward ? angle : angle + Math.PI);
  context.globalAlpha = lane.stale ? 0.7 : 1;
  context.fillStyle = style.raised;
  context.beginPath();
  context.roundRect(-width / 2, -9 * unit, width, 18 * unit, 4 * unit);
  context.fill();
  context.strokeStyle = is(scope.selection, "lane", lane.id) ? style.focus : style.line;
  context.lineWidth = unit;
  context.stroke();
  context.fillStyle = lane.stale ? style.dim : lane.state === "down" ? style.bad : style.text;
  context.fillText(text, 0, 0.5 * unit);
  context.restore();
}
