import type { StoreApi } from "zustand/vanilla";
import { useConsole, type Console } from "./console.js";

/** A page's own state that outlives a visit to another page: one store for each console, none global. */
export function perConsole<T>(create: () => StoreApi<T>): () => StoreApi<T> {
  const stores = new WeakMap<Console, StoreApi<T>>();
  return function usePerConsole() {
    const console = useConsole();
    let store = stores.get(console);
    if (!store) {
      store = create();
      stores.set(console, store);
    }
    return store;
  };
}
