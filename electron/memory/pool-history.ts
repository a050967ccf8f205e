import type { GpuProcessView, PoolMapView } from "../contract/index.js";
import type { RangeList } from "./view.js";

/** Points of one pool that are kept: two minutes while somebody looks at it. */
export const POINTS = 120;
/** A description that is younger than the last by less is the same one: ages are told in whole ms. */
const SAME_MS = 20;

/** How one pool was: its curve, its map, and the map before the last epoch of defragmentation. */
export class PoolHistory {
  readonly #points: PoolMapView["history"] = [];
  #map: RangeList = { ranges: [], omitted: 0 };
  #seenAtMs = 0;
  #compactedBytes: number | null = null;
  #before: PoolMapView["before"] = null;

  add(view: GpuProcessView, map: RangeList): void {
    const last = this.#points.at(-1);
    if (last && view.updatedAtMs - last.atMs < SAME_MS) return;
    const { movedBytes, releasedBytes } = view.defrag;
    const compacted = movedBytes === null || releasedBytes === null ? null : movedBytes + releasedBytes;
    if (last && compacted !== null && this.#compactedBytes !== null && compacted !== this.#compactedBytes) this.#before = { seenAtMs: this.#seenAtMs, ...this.#map };
    this.#compactedBytes = compacted;
    this.#map = map;
    this.#seenAtMs = view.updatedAtMs;
    const { fragmentationPermille, heldBytes, usedBytes } = view.pool;
    this.#points.push({ atMs: view.updatedAtMs, fragmentationPermille, heldBytes, usedBytes });
    if (this.#points.length > POINTS) this.#points.shift();
  }

  view(): PoolMapView {
    return { ...this.#map, before: this.#before, history: [...this.#points] };
  }
}
