import { toShownError } from "../client/page-error.js";
import { useUiStore } from "../app/ui.js";
import { useAction } from "../shared/use-action.js";
import { useConsole } from "../store/console-hooks.js";

const useNodeOperation = (method: "nodes.bringUp" | "nodes.takeDown") => {
  const { client } = useConsole();
  const ui = useUiStore();
  // The dialog that starts an operation closes at once: what was asked for goes on without it and is ended by its own Cancel.
  return useAction(async (_signal, nodeIds: readonly string[]) => {
    const { set } = ui.getState();
    if (nodeIds.length === 0) return;
    try {
      await client.request(method, { nodeIds: [...nodeIds] });
      set({ work: true });
    } catch (thrown) {
      set({ notice: toShownError(thrown) });
      throw thrown;
    }
  });
};

/** Starts the bring-up of these nodes and opens the dock with its steps. */
export const useBringUp = () => useNodeOperation("nodes.bringUp");
export const useTakeDown = () => useNodeOperation("nodes.takeDown");
