import { useCallback, useState } from "react";
import type { Params } from "../../electron/contract/index.js";
import { isCancelled, toShownError, type ShownError } from "../client/page-error.js";
import { useAction } from "../shared/use-action.js";
import { useConsole } from "../store/console-hooks.js";

export interface AddOutcome {
  label: string;
  nodeId: string | null;
  error: ShownError | null;
}

/** Adds nodes one after another; one that fails does not stop the others. Returns what became of each. */
export function useAddMany() {
  const { client, nodes } = useConsole();
  const [outcomes, setOutcomes] = useState<AddOutcome[]>([]);
  const action = useAction(async (signal, inputs: ReadonlyArray<Params<"nodes.add">>, onAdded: (ids: string[]) => void) => {
    const results: AddOutcome[] = [];
    setOutcomes([]);
    for (const input of inputs) {
      const label = `${input.user}@${input.host}:${input.port ?? 22}`;
      try {
        const node = await client.request("nodes.add", input, { signal });
        nodes.upsert(node);
        results.push({ label, nodeId: node.id, error: null });
      } catch (thrown) {
        if (isCancelled(thrown)) throw thrown;
        results.push({ label, nodeId: null, error: toShownError(thrown) });
      }
      setOutcomes([...results]);
    }
    onAdded(results.flatMap((result) => (result.nodeId === null ? [] : [result.nodeId])));
  });
  const reset = useCallback(() => setOutcomes([]), []);
  return { ...action, outcomes, reset };
}
