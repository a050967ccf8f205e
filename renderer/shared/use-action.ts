import { useCallback, useEffect, useRef, useState } from "react";
import { isCancelled, toShownError, type ShownError } from "../client/page-error.js";

export interface Action<A extends unknown[]> {
  run(...args: A): Promise<boolean>;
  busy: boolean;
  error: ShownError | null;
  /** Aborts what runs; the host is told. */
  cancel(): void;
  clear(): void;
}

/**
 * One thing that a person starts: whether it runs, how it failed, and how to end it. The signal aborts with the component: pass it on
 * where the answer is only for this place (a read, a connection attempt), not where the act must go on when the person looks elsewhere.
 */
export function useAction<A extends unknown[]>(work: (signal: AbortSignal, ...args: A) => Promise<void>): Action<A> {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ShownError | null>(null);
  const controller = useRef<AbortController | null>(null);
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => () => controller.current?.abort(), []);
  const run = useCallback(async (...args: A): Promise<boolean> => {
    controller.current?.abort();
    const mine = new AbortController();
    controller.current = mine;
    setBusy(true);
    setError(null);
    try {
      await latest.current(mine.signal, ...args);
      return true;
    } catch (thrown) {
      if (controller.current === mine && !isCancelled(thrown)) setError(toShownError(thrown));
      return false;
    } finally {
      if (controller.current === mine) setBusy(false);
    }
  }, []);
  const cancel = useCallback(() => controller.current?.abort(), []);
  const clear = useCallback(() => setError(null), []);
  return { run, busy, error, cancel, clear };
}
