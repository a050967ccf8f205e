import type { Box } from "./placement.js";

export interface Segment { x1: number; y1: number; x2: number; y2: number }

/** Where the line from a box's centre towards (tx, ty) leaves the box. */
export function edgePoint(box: Box, tx: number, ty: number): { x: number; y: number } {
  const cx = box.x + box.width / 2;
  const cy = box.y + box.height / 2;
  const dx = tx - cx;
  const dy = ty - cy;
  if (dx === 0 && dy === 0) return { x: cx, y: cy };
  const scale = Math.min(dx === 0 ? Infinity : box.width / 2 / Math.abs(dx), dy === 0 ? Infinity : box.height / 2 / Math.abs(dy));
  return { x: cx + dx * scale, y: cy + dy * scale };
}

/** The line of a lane: between the edges of both boxes, moved sideways so that lanes of one pair lie side by side. */
export function laneSegment(a: Box, b: Box, index: number, count: number, spacing: number): Segment {
  const [ax, ay, bx, by] = [a.x + a.width / 2, a.y + a.height / 2, b.x + b.width / 2, b.y + b.height / 2];
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const offset = (index - (count - 1) / 2) * spacing;
  const [ox, oy] = [(-(by - ay) / length) * offset, ((bx - ax) / length) * offset];
  const from = edgePoint(a, bx, by);
  const to = edgePoint(b, ax, ay);
  return { x1: from.x + ox, y1: from.y + oy, x2: to.x + ox, y2: to.y + oy };
}

export function distanceToSegment(x: number, y: number, s: Segment): number {
  const dx = s.x2 - s.x1;
  const dy = s.y2 - s.y1;
  const squared = dx * dx + dy * dy;
  const t = squared === 0 ? 0 : Math.max(0, Math.min(1, ((x - s.x1) * dx + (y - s.y1) * dy) / squared));
  return Math.hypot(x - (s.x1 + t * dx), y - (s.y1 + t * dy));
}

/** Line width in px for a rate: 1.5 at rest, then one step for each tenfold from 1 MB/s to 100 GB/s. */
export function rateWidth(bytesPerSecond: number): number {
  if (bytesPerSecond < 1e5) return 1.5;
  return Math.min(8, 2 + Math.max(0, Math.log10(bytesPerSecond / 1e6)) * 1.3);
}
