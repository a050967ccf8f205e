import { useEffect, useState } from "react";
import type { Result } from "../../electron/contract/index.js";
import { useConsole } from "../store/console-hooks.js";

/** The schedules of each collective among `worldSize` ranks, as the host's runtime has them; empty until it has answered. */
export function useAlgorithms(worldSize: number): Partial<Result<"runs.algorithms">> {
  const { client } = useConsole();
  const [known, setKnown] = useState<Partial<Result<"runs.algorithms">>>({});
  useEffect(() => {
    if (!Number.isInteger(worldSize) || worldSize < 2 || worldSize > 65_536) return;
    const abort = new AbortController();
    // Without an answer "auto" is what can be chosen; why there is none shows with the first run.
    client.request("runs.algorithms", { worldSize }, { signal: abort.signal }).then(setKnown, () => setKnown({}));
    return () => abort.abort();
  }, [client, worldSize]);
  return known;
}
