/**
 * Where each node stands. No force, no chance: the same nodes always stand in the same places, so an operator learns the floor and
 * a red pattern can be read. Up to 16 nodes stand on an ellipse as cards (every pair sees each other); more stand in racks of cells.
 */
export interface Box { x: number; y: number; width: number; height: number }
export interface RackBox extends Box { name: string }
export interface Placement {
  mode: "cards" | "cells";
  boxes: ReadonlyMap<string, Box>;
  racks: readonly RackBox[];
  width: number;
  height: number;
  /** The node under a point of the scene, by arithmetic; null where there is none. */
  nodeAt(x: number, y: number): string | null;
}

export const CARD = { width: 176, height: 84 };
const CARDS_UP_TO = 16;
const CELL = 26;
const GAP = 4;
const RACK_COLUMNS = 4;
const RACK_GAP = 22;
const RACK_TITLE = 16;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** "rack07-node03" -> "rack07"; "gpu-12" -> null: only a name with two numbers tells its rack. */
export function rackOf(name: string): string | null {
  const match = /^(.*?\d+)[-_.](.*?\d+)(?:\..*)?$/.exec(name);
  return match ? match[1]! : null;
}

export function place(nodes: ReadonlyArray<{ id: string; name: string }>): Placement {
  const sorted = [...nodes].sort((a, b) => collator.compare(a.name, b.name) || (a.id < b.id ? -1 : 1));
  return sorted.length <= CARDS_UP_TO ? cards(sorted) : cells(sorted);
}

function cards(nodes: ReadonlyArray<{ id: string }>): Placement {
  const n = nodes.length;
  const boxes = new Map<string, Box>();
  // Neighbours on the ellipse keep 1.6 card widths between their centres, so a rate label fits on every lane.
  const radiusX = n <= 1 ? 0 : n === 2 ? 250 : Math.max(310, (n * CARD.width * 1.6) / (2 * Math.PI));
  const radiusY = n <= 2 ? 0 : Math.max(165, radiusX * 0.55);
  const height = 2 * radiusY + CARD.height;
  const width = 2 * radiusX + CARD.width;
  const start = n === 2 ? Math.PI : -Math.PI / 2;
  nodes.forEach((node, index) => {
    const angle = start + (index * 2 * Math.PI) / Math.max(1, n);
    boxes.set(node.id, { x: radiusX + radiusX * Math.cos(angle), y: radiusY + radiusY * Math.sin(angle), ...CARD });
  });
  const list = [...boxes];
  return {
    mode: "cards", boxes, racks: [], width, height,
    nodeAt: (x, y) => list.find(([, box]) => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height)?.[0] ?? null,
  };
}

function cells(nodes: ReadonlyArray<{ id: string; name: string }>): Placement {
  const named = new Map<string, Array<{ id: string }>>();
  const loose: Array<{ id: string; name: string }> = [];
  for (const node of nodes) {
    const rack = rackOf(node.name);
    if (rack === null) loose.push(node);
    else named.set(rack, [...(named.get(rack) ?? []), node]);
  }
  const groups = [...named];
  for (let at = 0; at < loose.length; at += 16) {
    const part = loose.slice(at, at + 16);
    groups.push([part.length === 1 ? part[0]!.name : `${part[0]!.name} – ${part.at(-1)!.name}`, part]);
  }
  const deepest = Math.max(...groups.map(([, part]) => Math.ceil(part.length / RACK_COLUMNS)));
  const rackWidth = RACK_COLUMNS * (CELL + GAP) - GAP;
  const rackHeight = RACK_TITLE + deepest * (CELL + GAP) - GAP;
  // As wide as 16:9 asks for.
  const columns = Math.max(1, Math.round(Math.sqrt((groups.length * (rackHeight + RACK_GAP) * 16) / ((rackWidth + RACK_GAP) * 9))));
  const boxes = new Map<string, Box>();
  const racks: RackBox[] = [];
  const grid: string[][] = [];
  groups.forEach(([name, part], index) => {
    const x = (index % columns) * (rackWidth + RACK_GAP);
    const y = Math.floor(index / columns) * (rackHeight + RACK_GAP);
    racks.push({ name, x, y, width: rackWidth, height: rackHeight });
    grid.push(part.map((node) => node.id));
    part.forEach((node, slot) => {
      boxes.set(node.id, {
        x: x + (slot % RACK_COLUMNS) * (CELL + GAP), y: y + RACK_TITLE + Math.floor(slot / RACK_COLUMNS) * (CELL + GAP), width: CELL, height: CELL,
      });
    });
  });
  const rows = Math.ceil(groups.length / columns);
  return {
    mode: "cells", boxes, racks, width: Math.min(columns, groups.length) * (rackWidth + RACK_GAP) - RACK_GAP, height: rows * (rackHeight + RACK_GAP) - RACK_GAP,
    nodeAt: (x, y) => {
      const column = Math.floor(x / (rackWidth + RACK_GAP));
      const row = Math.floor(y / (rackHeight + RACK_GAP));
      if (column < 0 || column >= columns || row < 0) return null;
      const inX = x - column * (rackWidth + RACK_GAP);
      const inY = y - row * (rackHeight + RACK_GAP) - RACK_TITLE;
      if (inX < 0 || inX >= rackWidth || inY < 0) return null;
      if (inX % (CELL + GAP) > CELL || inY % (CELL + GAP) > CELL) return null;
      return grid[row * columns + column]?.[Math.floor(inY / (CELL + GAP)) * RACK_COLUMNS + Math.floor(inX / (CELL + GAP))] ?? null;
    },
  };
}

/** The nearest node from `from` in the direction of an arrow key; null at the edge. */
export function neighbour(placement: Placement, from: string | null, direction: "left" | "right" | "up" | "down"): string | null {
  const boxes = [...placement.boxes];
  const start = from === null ? undefined : placement.boxes.get(from);
  if (!start) return boxes[0]?.[0] ?? null;
  const [cx, cy] = [start.x + start.width / 2, start.y + start.height / 2];
  let best: { id: string; cost: number } | null = null;
  for (const [id, box] of boxes) {
    if (id === from) continue;
    const dx = box.x + box.width / 2 - cx;
    const dy = box.y + box.height / 2 - cy;
    const [along, across] = direction === "left" ? [-dx, dy] : direction === "right" ? [dx, dy] : direction === "up" ? [-dy, dx] : [dy, dx];
    if (along <= 1) continue;
    const cost = along + 2.5 * Math.abs(across);
    if (!best || cost < best.cost) best = { id, cost };
  }
  return best?.id ?? null;
}
