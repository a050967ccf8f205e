/**
 * What feeds the contract's streams. Changes are merged for each subscription: at most one event per `MIN_INTERVAL_MS`,
 * and none while the listener's carrier is behind. Memory is bounded by the number of items, never by the rate of changes.
 */
export const MIN_INTERVAL_MS = 100;
/** Serialised size at which a keyed event is cut into several; one event stays under the wire's limit this way. */
const EVENT_BYTES = 384 * 1024;

export interface SubscribeOptions {
  /** False while the listener's carrier is behind: the change is kept and merged with the next. */
  ready?: () => boolean;
}
export interface Topic {
  subscribe(listener: (event: unknown) => void, options?: SubscribeOptions): () => void;
}

export type KeyedEvent<T> = { kind: "snapshot"; items: T[] } | { kind: "patch"; upsert: T[]; remove: string[] };

/** One subscription's clock: `poke()` runs `flush` now, or as soon as the interval and the carrier allow it. */
class Pacer {
  #timer: NodeJS.Timeout | undefined;
  #lastAt = Number.NEGATIVE_INFINITY;
  #ended = false;
  constructor(private readonly flush: () => void, private readonly ready: () => boolean) {}

  poke(): void {
    if (this.#ended || this.#timer) return;
    const wait = this.#lastAt + MIN_INTERVAL_MS - performance.now();
    if (wait <= 0 && this.ready()) this.#run();
    else this.#later(Math.max(wait, 1));
  }
  end(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }
  #later(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.ready()) this.#run();
      else this.#later(MIN_INTERVAL_MS);
    }, ms);
  }
  #run(): void {
    this.#lastAt = performance.now();
    this.flush();
  }
}

/** A list that is kept by id. `source` is read when an event is made, so that a burst of changes costs one look. */
export class KeyedTopic<T> implements Topic {
  readonly #subscriptions = new Set<(ids: Iterable<string>) => void>();
  constructor(private readonly source: { list(): readonly T[]; get(id: string): T | undefined }) {}

  changed(...ids: string[]): void {
    for (const mark of [...this.#subscriptions]) mark(ids);
  }

  subscribe(listener: (event: KeyedEvent<T>) => void, options: SubscribeOptions = {}): () => void {
    const dirty = new Set<string>();
    let snapshotDue = true;
    const flush = (): void => {
      if (snapshotDue) {
        snapshotDue = false;
        const [first = [], ...rest] = cut(this.source.list());
        listener({ kind: "snapshot", items: first });
        for (const upsert of rest) listener({ kind: "patch", upsert, remove: [] });
      } else {
        const upsert: T[] = [];
        const remove: string[] = [];
        for (const id of dirty) {
          const item = this.source.get(id);
          if (item !== undefined) upsert.push(item);
          else remove.push(id);
        }
        const parts = cut(upsert);
        for (let i = 0; i < Math.max(parts.length, 1); i++) listener({ kind: "patch", upsert: parts[i] ?? [], remove: i === 0 ? remove : [] });
      }
      dirty.clear();
    };
    const pacer = new Pacer(flush, options.ready ?? (() => true));
    const mark = (ids: Iterable<string>): void => {
      for (const id of ids) dirty.add(id);
      pacer.poke();
    };
    this.#subscriptions.add(mark);
    pacer.poke();
    return () => {
      this.#subscriptions.delete(mark);
      pacer.end();
    };
  }
}

/** One value as a whole; what lies between two events is skipped. */
export class LatestTopic<T> implements Topic {
  readonly #subscriptions = new Set<() => void>();
  constructor(private readonly current: () => T) {}

  changed(): void {
    for (const mark of [...this.#subscriptions]) mark();
  }
  /** How many look at it; a source may rest while nobody does. */
  get listeners(): number {
    return this.#subscriptions.size;
  }
  subscribe(listener: (event: T) => void, options: SubscribeOptions = {}): () => void {
    const pacer = new Pacer(() => listener(this.current()), options.ready ?? (() => true));
    const mark = (): void => pacer.poke();
    this.#subscriptions.add(mark);
    pacer.poke();
    return () => {
      this.#subscriptions.delete(mark);
      pacer.end();
    };
  }
}

function cut<T>(items: readonly T[]): T[][] {
  const parts: T[][] = [];
  let size = EVENT_BYTES;
  for (const item of items) {
    const bytes = JSON.stringify(item).length;
    if (size + bytes > EVENT_BYTES) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1)!.push(item);
    size += bytes;
  }
  return parts;
}
