import { createStore, type StoreApi } from "zustand/vanilla";
import type { GuideId } from "../../electron/contract/index.js";
import { perConsole } from "../store/per-console.js";

export const VIEWS = ["nodes", "guides", "pairs", "hangs", "files", "support"] as const;
export type View = (typeof VIEWS)[number];

export interface DiagnoseUi {
  view: View;
  /** The node whose findings are shown; null = those of all nodes. */
  shown: string | null;
  /** Nodes to work on; empty = all of them. */
  chosen: ReadonlySet<string>;
  /** The source whose text is open. */
  source: { nodeId: string; sourceId: string; line: number | null } | null;
  guide: GuideId | null;
  /** The run of a guide that is shown. */
  guideRun: string | null;
  pairTest: string | null;
  /** The run of a mend that has the focus: it keeps it when its card moves to those that are settled. */
  followedRun: string | null;
  /** Nodes of the next pair tests; null = nobody chose yet, so all that are up. */
  pairNodes: readonly string[] | null;
}
export const createDiagnoseUi = (): StoreApi<DiagnoseUi> =>
  createStore<DiagnoseUi>()(() => ({ view: "nodes", shown: null, chosen: new Set(), source: null, guide: null, guideRun: null, pairTest: null, followedRun: null, pairNodes: null }));
export const useDiagnoseUi = perConsole(createDiagnoseUi);
