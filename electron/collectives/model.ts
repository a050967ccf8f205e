import { Collective, type RunRow, type RunView } from "../contract/index.js";
import { loadAddon, type Addon } from "../link/addon.js";
import type { Run } from "./run.js";

/** Adds fit and expectation to a run, each time rows came; knows the schedules of the runtime. */
export interface Modeller {
  apply(run: Run): void;
  algorithms(worldSize: number): Promise<Record<Collective, string[]>>;
}

type Algorithm = Parameters<Addon["expectedTimeUs"]>[0]["algorithm"];

/**
 * Hockney's alpha-beta model, fitted over the run's own out-of-place times (native/src/model): where the curve leaves its own fit,
 * something besides latency and bandwidth is at work. The fit is made of the algorithm that most rows used.
 */
export class AlphaBetaModeller implements Modeller {
  #addon: Addon | null = null;
  readonly #loaded: Promise<Addon>;

  constructor(onError: (error: unknown) => void) {
    this.#loaded = loadAddon();
    this.#loaded.then((addon) => { this.#addon = addon; }, onError);
  }

  async algorithms(worldSize: number): Promise<Record<Collective, string[]>> {
    return algorithmsOf(await this.#loaded, worldSize);
  }

  apply(run: Run): void {
    if (!this.#addon) return;
    const result = modelOf(this.#addon, run.spec.collective, run.plan.worldSize, run.rows);
    run.setModel(result.model, result.expectedUs);
  }
}

/** The names of native/include/stepccl/stepccl.h; which of them have a schedule is asked of the library itself. */
const ALGORITHMS: readonly Algorithm[] = [
  "auto", "ring", "tree", "double_binary_tree", "recursive_doubling", "halving_doubling", "direct_one_shot", "direct_two_shot", "hierarchical", "pairwise", "bruck", "binomial", "chain", "dissemination",
];

export function algorithmsOf(addon: Pick<Addon, "expectedTimeUs">, worldSize: number): Record<Collective, string[]> {
  const has = (collective: Collective, algorithm: Algorithm): boolean =>
    unlessUnknown(() => addon.expectedTimeUs({ collective, algorithm, worldSize, bytes: 1 << 20, alphaUs: 1, betaUsPerByte: 1e-4 })) !== null;
  return Object.fromEntries(Collective.options.map((collective) => [collective, ALGORITHMS.filter((algorithm) => has(collective, algorithm))])) as Record<Collective, string[]>;
}

/** A send with its receive has no schedule to choose: it is one message, as a broadcast between two ranks is. */
const problemOf = (collective: Collective, algorithm: Algorithm, worldSize: number): { collective: Collective; algorithm: Algorithm; worldSize: number } =>
  (collective === "send_recv" ? { collective: "broadcast", algorithm: "binomial", worldSize: 2 } : { collective, algorithm, worldSize });

export function modelOf(
  addon: Pick<Addon, "fitAlphaBeta" | "expectedTimeUs">, collective: RunView["spec"]["collective"], worldSize: number, rows: readonly RunRow[],
): { model: RunView["model"]; expectedUs: (number | null)[] } {
  const none = { model: null, expectedUs: rows.map(() => null) };
  const counts = new Map<string, number>();
  for (const row of rows) counts.set(row.algorithm, (counts.get(row.algorithm) ?? 0) + 1);
  const [algorithm] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? [];
  if (algorithm === undefined) return none;
  const samples = rows.filter((row) => row.algorithm === algorithm && row.bytes > 0).map((row) => ({ bytes: row.bytes, timeUs: row.outOfPlace.timeUs }));
  // The name comes from a node: one that the model does not know, or cannot time for this collective, has no expectation.
  const fit = unlessUnknown(() => addon.fitAlphaBeta(samples, problemOf(collective, algorithm as Algorithm, worldSize)));
  if (!fit) return none;
  return {
    model: { ...fit, source: `this run, ${algorithm}, ${samples.length} sizes` },
    expectedUs: rows.map((row) => unlessUnknown(() => addon.expectedTimeUs({ ...problemOf(collective, row.algorithm as Algorithm, worldSize), bytes: row.bytes, ...fit }))),
  };
}

const UNKNOWN: ReadonlySet<unknown> = new Set(["UNKNOWN_NAME", "UNSUPPORTED_ALGORITHM"]);
function unlessUnknown<T>(ask: () => T): T | null {
  try {
    return ask();
  } catch (error) {
    if (error instanceof RangeError || (error instanceof Error && "code" in error && UNKNOWN.has(error.code))) return null;
    throw error;
  }
}
