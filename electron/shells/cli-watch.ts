import type { DiagnosisView, GuideRunView, MendRunView, OperationView, PairTestView, RunView } from "../contract/index.js";
import type { Host } from "../gate.js";

/** Waits for things that go on in the host, and tells each change once. */

interface Keyed<T> {
  kind: "snapshot" | "patch";
  items?: T[];
  upsert?: T[];
}
const itemsOf = <T>(event: Keyed<T>): T[] => event.items ?? event.upsert ?? [];

/** Follows one item of a keyed stream until `over`; `onChange` gets every state on the way. Aborting rejects with the signal's reason. */
function follow<T>(
  subscribe: (listener: (event: Keyed<T>) => void) => () => void, mine: (item: T) => boolean, over: (item: T) => boolean,
  onChange: (item: T) => void, signal: AbortSignal,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let leave = (): void => {};
    let ended = false;
    const end = (then: () => void): void => {
      if (ended) return;
      ended = true;
      queueMicrotask(() => leave());
      signal.removeEventListener("abort", onAbort);
      then();
    };
    const onAbort = (): void => end(() => reject(signal.reason instanceof Error ? signal.reason : new Error("aborted")));
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    leave = subscribe((event) => {
      for (const item of itemsOf(event)) {
        if (ended || !mine(item)) continue;
        onChange(item);
        if (over(item)) end(() => resolve(item));
      }
    });
  });
}

export const followOperation = (host: Host, operationId: string, onChange: (operation: OperationView) => void, signal: AbortSignal): Promise<OperationView> =>
  follow<OperationView>((listener) => host.subscribe("operations", listener), (item) => item.id === operationId, (item) => item.state !== "running", onChange, signal);

export const followRun = (host: Host, runId: string, onChange: (run: RunView) => void, signal: AbortSignal): Promise<RunView> =>
  follow<RunView>((listener) => host.subscribe("runs", listener), (item) => item.id === runId, (item) => item.endedAtMs !== null, onChange, signal);

/** What guides, mends and pair tests have in common: an id, and when they ended. */
interface Ended {
  guides: GuideRunView;
  mends: MendRunView;
  pairs: PairTestView;
}
export const followEnded = <S extends keyof Ended>(host: Host, stream: S, id: string, onChange: (item: Ended[S]) => void, signal: AbortSignal): Promise<Ended[S]> =>
  follow<Ended[S]>((listener) => host.subscribe(stream, listener as never), (item) => item.id === id, (item) => item.endedAtMs !== null, onChange, signal);

export async function diagnosesOf(host: Host, nodeIds: readonly string[]): Promise<DiagnosisView[]> {
  const all = await host.request("diagnose.list", {});
  return nodeIds.flatMap((nodeId) => all.filter((diagnosis) => diagnosis.nodeId === nodeId).slice(0, 1));
}
