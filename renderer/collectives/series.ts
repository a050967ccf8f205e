import type { RunView } from "../../electron/contract/index.js";

/** Recharts draws at most 8 series of 300 points well (measured: about 36 ms an update). */
export const MAX_RUNS = 5;
const MAX_POINTS = 300;

export type Place = "outOfPlace" | "inPlace";
export interface CurvePoint { bytes: number; timeUs: number | null; algbwGBps: number | null; busbwGBps: number | null; expectedTimeUs: number | null }

/** The points of one run. A log axis has no place for zero: such a value is left out, never drawn as something else. */
export function curveOf(run: RunView, place: Place): CurvePoint[] {
  const positive = (value: number | null): number | null => (value !== null && Number.isFinite(value) && value > 0 ? value : null);
  const points = run.rows.filter((row) => row.bytes > 0).flatMap((row) => {
    const timing = row[place];
    if (timing === null) return [];
    return { bytes: row.bytes, timeUs: positive(timing.timeUs), algbwGBps: timing.algbwGBps, busbwGBps: timing.busbwGBps, expectedTimeUs: positive(row.expectedTimeUs) };
  });
  if (points.length <= MAX_POINTS) return points;
  const stride = points.length / MAX_POINTS;
  return Array.from({ length: MAX_POINTS }, (_, index) => points[Math.floor(index * stride)]!);
}

/** Powers of ten around the values, so that a log axis begins and ends on a line. */
export function decades(values: Iterable<number>): { domain: [number, number]; ticks: number[] } | null {
  let low = Infinity;
  let high = 0;
  for (const value of values) {
    if (!(value > 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (high === 0) return null;
  const first = Math.floor(Math.log10(low));
  const last = Math.max(first + 1, Math.ceil(Math.log10(high)));
  const ticks = Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
  return { domain: [10 ** first, 10 ** last], ticks };
}

/** At most `most` powers of two times the smallest size, evenly spaced in the logarithm. */
export function sizeTicks(min: number, max: number, most = 6): number[] {
  if (!(min > 0) || max <= min) return min > 0 ? [min] : [];
  const doublings = Math.log2(max / min);
  const step = Math.max(1, Math.ceil(doublings / (most - 1)));
  const ticks: number[] = [];
  for (let power = 0; power <= doublings + 1e-9; power += step) ticks.push(min * 2 ** power);
  return ticks;
}

/** 10 -> "10 µs", 1000 -> "1 ms". */
export function timeTick(us: number): string {
  if (us >= 1e6) return `${us / 1e6} s`;
  if (us >= 1000) return `${us / 1000} ms`;
  return `${Number(us.toPrecision(3))} µs`;
}

/** A linear axis from 0 over `value` in four or five steps of 1, 2 or 5 times a power of ten. */
export function niceTop(value: number): { domain: [number, number]; ticks: number[] } {
  if (!(value > 0)) return { domain: [0, 1], ticks: [0, 1] };
  const raw = value / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= raw * 0.999)!;
  const count = Math.ceil(value / step - 1e-9);
  const ticks = Array.from({ length: count + 1 }, (_, index) => Number((index * step).toPrecision(6)));
  return { domain: [0, ticks.at(-1)!], ticks };
}
