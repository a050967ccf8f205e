import type { Run } from "./run.js";

/** Adds fit and expectation to a run, each time rows came. */
export interface Modeller {
  apply(run: Run): void;
}
