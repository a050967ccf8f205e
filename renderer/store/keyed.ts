import { createStore, type StoreApi } from "zustand/vanilla";
import { useStore } from "zustand";
import type { ShownError } from "../client/page-error.js";

export interface KeyedState<T> {
  /** False until the first snapshot, so that "empty" and "not known yet" look different. */
  loaded: boolean;
  ids: readonly string[];
  items: ReadonlyMap<string, T>;
  error: ShownError | null;
}
export type KeyedEvent<T> = { kind: "snapshot"; items: T[] } | { kind: "patch"; upsert: T[]; remove: string[] };
export interface KeyedStore<T> {
  api: StoreApi<KeyedState<T>>;
  apply(event: KeyedEvent<T>): void;
  /** One item from the answer of a request, which may come before its event. */
  upsert(item: T): void;
  fail(error: ShownError): void;
}

/**
 * A list by id. Lists render from `ids` alone and each row subscribes to its own item, so an event for one node
 * renders one row. `ids` keeps its identity while membership does not change. `merge` says what an item becomes by a new one.
 */
export function createKeyedStore<T>(idOf: (item: T) => string, merge: (before: T | undefined, next: T) => T = (_, next) => next): KeyedStore<T> {
  const api = createStore<KeyedState<T>>()(() => ({ loaded: false, ids: [], items: new Map(), error: null }));
  const apply = (event: KeyedEvent<T>) => {
    if (event.kind === "snapshot") {
      const before = api.getState();
      const items = new Map(event.items.map((item) => [idOf(item), merge(before.items.get(idOf(item)), item)]));
      const ids = [...items.keys()];
      api.setState({ loaded: true, error: null, items, ids: same(before.ids, ids) ? before.ids : ids });
      return;
    }
    const before = api.getState();
    const items = new Map(before.items);
    let membership = false;
    for (const id of event.remove) membership = items.delete(id) || membership;
    for (const item of event.upsert) {
      const id = idOf(item);
      membership ||= !items.has(id);
      items.set(id, merge(items.get(id), item));
    }
    api.setState({ items, ids: membership ? [...items.keys()] : before.ids });
  };
  return { api, apply, upsert: (item) => apply({ kind: "patch", upsert: [item], remove: [] }), fail: (error) => api.setState({ error }) };
}

const same = (a: readonly string[], b: readonly string[]): boolean => a.length === b.length && a.every((id, i) => id === b[i]);

export const useIds = <T>(store: KeyedStore<T>): readonly string[] => useStore(store.api, (s) => s.ids);
export const useItem = <T>(store: KeyedStore<T>, id: string | null): T | undefined =>
  useStore(store.api, (s) => (id === null ? undefined : s.items.get(id)));
export const useLoaded = <T>(store: KeyedStore<T>): boolean => useStore(store.api, (s) => s.loaded);
/** The whole map: for filters, sums and small lists only. */
export const useItems = <T>(store: KeyedStore<T>): ReadonlyMap<string, T> => useStore(store.api, (s) => s.items);
