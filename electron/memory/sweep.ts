/** How a sweep paces itself; times in ms. */
export interface SweepPace {
  /** Reads that run at once. */
  atOnce: number;
  /** Between the beginnings of two reads. */
  spacingMs: number;
}

/**
 * Asks many in turn: each when it is due, the longest due first, a few at a time. Cost is bounded by the pace, not by how many
 * there are: five hundred that are all due are asked over some seconds. Rests while it is stopped; stopping ends what runs.
 */
export class Sweep {
  readonly #due = new Map<string, number>();
  readonly #running = new Set<string>();
  #stop: AbortController | null = null;
  #timer: NodeJS.Timeout | undefined;
  #lastStartMs = Number.NEGATIVE_INFINITY;

  /**
   * @param ids those to ask now; others are forgotten
   * @param read asks one and gives the wait in ms until it is due again; it must not reject
   */
  constructor(private readonly pace: SweepPace, private readonly ids: () => readonly string[], private readonly read: (id: string, signal: AbortSignal) => Promise<number>) {}

  /** All are due, whatever their waits were. */
  start(): void {
    if (this.#stop) return;
    this.#stop = new AbortController();
    this.#due.clear();
    this.#pump();
  }
  stop(): void {
    this.#stop?.abort();
    this.#stop = null;
    clearTimeout(this.#timer);
  }
  /** These are due now; what else changed is looked at too. */
  wake(ids: readonly string[] = []): void {
    for (const id of ids) this.#due.delete(id);
    this.#pump();
  }

  #pump(): void {
    clearTimeout(this.#timer);
    if (!this.#stop) return;
    const wanted = new Set(this.ids());
    for (const id of this.#due.keys()) if (!wanted.has(id)) this.#due.delete(id);
    while (this.#running.size < this.pace.atOnce) {
      let next: string | null = null;
      let dueMs = Number.POSITIVE_INFINITY;
      for (const id of wanted) {
        const at = this.#due.get(id) ?? 0;
        if (at < dueMs && !this.#running.has(id)) [next, dueMs] = [id, at];
      }
      if (next === null) return;
      const nowMs = performance.now();
      const waitMs = Math.max(dueMs, this.#lastStartMs + this.pace.spacingMs) - nowMs;
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.#pump(), Math.ceil(waitMs));
        this.#timer.unref();
        return;
      }
      this.#lastStartMs = nowMs;
      void this.#run(next, this.#stop.signal);
    }
  }
  async #run(id: string, signal: AbortSignal): Promise<void> {
    this.#running.add(id);
    // Asked for again meanwhile: then it is due at once.
    this.#due.set(id, Number.POSITIVE_INFINITY);
    const waitMs = await this.read(id, signal);
    this.#running.delete(id);
    if (this.#due.has(id)) this.#due.set(id, performance.now() + waitMs);
    this.#pump();
  }
}
