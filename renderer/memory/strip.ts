import type { PoolRange } from "../../electron/contract/index.js";

export interface Break { x: number; width: number; bytes: number }
export interface Axis {
  /** Where an offset lies, in px. */
  x(offset: number): number;
  /** Where a stretch without memory was cut short. */
  breaks: Break[];
  endBytes: number;
}

/** A stretch without memory is drawn no longer than this share of what is drawn. */
const GAP_SHARE = 0.03;

/**
 * An axis of addresses for maps that are to be compared: one scale for all memory, stretches that have none in any of them cut
 * short. Addresses are plentiful and memory is not: on a plain scale the pool would be a few hairlines.
 */
export function axisOf(maps: readonly (readonly PoolRange[])[], width: number): Axis {
  const parts: { from: number; to: number }[] = [];
  for (const { offset, bytes } of maps.flat().sort((a, b) => a.offset - b.offset)) {
    const last = parts.at(-1);
    if (last && offset <= last.to) last.to = Math.max(last.to, offset + bytes);
    else parts.push({ from: offset, to: offset + bytes });
  }
  const backed = parts.reduce((sum, part) => sum + part.to - part.from, 0);
  const longest = Math.max(1, backed * GAP_SHARE);
  const stops: { at: number; weight: number }[] = [{ at: 0, weight: 0 }];
  const cuts: { from: number; to: number; bytes: number }[] = [];
  let at = 0;
  let weight = 0;
  for (const part of parts) {
    const gap = part.from - at;
    if (gap > 0) {
      const shown = Math.min(gap, longest);
      if (shown < gap) cuts.push({ from: weight, to: weight + shown, bytes: gap });
      weight += shown;
      stops.push({ at: part.from, weight });
    }
    weight += part.to - part.from;
    stops.push({ at: part.to, weight });
    at = part.to;
  }
  const scale = weight > 0 ? width / weight : 0;
  return {
    endBytes: at,
    breaks: cuts.map((cut) => ({ x: cut.from * scale, width: (cut.to - cut.from) * scale, bytes: cut.bytes })),
    x: (offset) => {
      let low = 0;
      let high = stops.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (stops[middle]!.at <= offset) low = middle;
        else high = middle - 1;
      }
      const from = stops[low]!;
      const to = stops[low + 1];
      if (!to) return from.weight * scale;
      return (from.weight + ((offset - from.at) / (to.at - from.at)) * (to.weight - from.weight)) * scale;
    },
  };
}

/** An address as programmers read it: 0x4000000. */
export const hex = (offset: number): string => `0x${offset.toString(16)}`;
