import { ConsoleError } from "../contract/index.js";

/** A counting semaphore with a fair queue whose limit may shrink. */
export class Limit {
  #free: number;
  readonly #waiting: { grant: () => void; cancel: (reason: unknown) => void }[] = [];
  #size: number;

  constructor(size: number) {
    this.#size = size;
    this.#free = size;
  }

  get size(): number {
    return this.#size;
  }
  get inUse(): number {
    return this.#size - this.#free;
  }
  get queued(): number {
    return this.#waiting.length;
  }

  /** Fewer from now on, at least one: what is in use stays until it is released. */
  shrink(size: number): void {
    const next = Math.max(1, Math.min(size, this.#size));
    this.#free -= this.#size - next;
    this.#size = next;
  }

  /**
   * Waits for a place. The function that it gives frees the place; calling it again does nothing.
   * @throws ConsoleError H104 aborted while waiting
   */
  async acquire(signal?: AbortSignal): Promise<() => void> {
    if (signal?.aborted) throw ConsoleError.of("H104");
    if (this.#free > 0) this.#free--;
    else {
      await new Promise<void>((resolve, reject) => {
        const entry = { grant: () => done(resolve), cancel: (reason: unknown) => done(() => reject(reason)) };
        const onAbort = (): void => {
          this.#waiting.splice(this.#waiting.indexOf(entry), 1);
          entry.cancel(ConsoleError.of("H104"));
        };
        const done = (settle: () => void): void => {
          signal?.removeEventListener("abort", onAbort);
          settle();
        };
        signal?.addEventListener("abort", onAbort, { once: true });
        this.#waiting.push(entry);
      });
    }
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#free++;
      while (this.#free > 0 && this.#waiting.length > 0) {
        this.#free--;
        this.#waiting.shift()?.grant();
      }
    };
  }

  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const release = await this.acquire(signal);
    try {
      return await work();
    } finally {
      release();
    }
  }
}

/** A semaphore for each key, made when it is needed and dropped when nobody holds it. */
export class KeyedLimit {
  readonly #limits = new Map<string, Limit>();
  readonly #size: number;
  constructor(size: number) {
    this.#size = size;
  }
  async acquire(key: string, signal?: AbortSignal): Promise<() => void> {
    let limit = this.#limits.get(key);
    if (!limit) this.#limits.set(key, (limit = new Limit(this.#size)));
    const release = await limit.acquire(signal);
    const own = limit;
    return () => {
      release();
      if (own.inUse === 0 && own.queued === 0 && this.#limits.get(key) === own) this.#limits.delete(key);
    };
  }
}

/** Exponential back-off with full jitter on the upper half: 1 s, 2 s, … up to `maxMs`. */
export class Backoff {
  #failures = 0;
  constructor(private readonly firstMs = 1_000, private readonly maxMs = 30_000) {}
  /** The wait before the next try. */
  nextMs(): number {
    const whole = Math.min(this.maxMs, this.firstMs * 2 ** Math.min(this.#failures++, 20));
    return whole / 2 + Math.random() * (whole / 2);
  }
  reset(): void {
    this.#failures = 0;
  }
}
