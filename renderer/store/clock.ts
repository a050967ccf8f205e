/**
 * The console's clock as seen from the page. With the browser on another machine (a forwarded port) the two differ; every
 * message that carries the console's time bounds the difference from above, and the smallest seen is the best estimate.
 */
export class HostClock {
  #skewMs: number | null = null;
  readonly #now: () => number;
  constructor(now: () => number = Date.now) {
    this.#now = now;
  }
  /** `hostMs` was the console's time when it sent what has just come. */
  observe(hostMs: number): void {
    const skew = this.#now() - hostMs;
    if (this.#skewMs === null || skew < this.#skewMs || skew > this.#skewMs + 60_000) this.#skewMs = skew;
  }
  /** Unix time in ms by the console's clock. Differences under 2 s are transport, not clocks. */
  now(): number {
    const skew = this.#skewMs ?? 0;
    return this.#now() - (Math.abs(skew) < 2000 ? 0 : skew);
  }
}
