import type { Box } from "./placement.js";

export interface Segment { x1: number; y1: number; x2: number; y2: number }

/** Where a ray from a point inside a box leaves the box; the point itself where it lies outside. */
export function exitPoint(box: Box, x: number, y: number, dx: number, dy: number): { x: number; y: number } {
  const toX = dx > 0 ? (box.x + box.width - x) / dx : dx < 0 ? (box.x - x) / dx : Infinity;
  const toY = dy > 0 ? (box.y + box.height - y) / dy : dy < 0 ? (box.y - y) / dy : Infinity;
  const scale = Math.max(0, Math.min(toX, toY));
  return Number.isFinite(scale) ? { x: x + dx * scale, y: y + dy * scale } : { x, y };
}

/** The line of a lane: between the edges of both boxes, moved sideways so that lanes of one pair lie side by side. */
export function laneSegment(a: Box, b: Box, index: number, count: number, spacing: number): Segment {
  const [ax, ay, bx, by] = [a.x + a.width / 2, a.y + a.height / 2, b.x + b.width / 2, b.y + b.height / 2];
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const [ux, uy] = [(bx - ax) / length, (by - ay) / length];
  const offset = (index - (count - 1) / 2) * spacing;
  const from = exitPoint(a, ax - uy * offset, ay + ux * offset, ux, uy);
  const to = exitPoint(b, bx - uy * offset, by + ux * offset, -ux, -uy);
  return { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
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
