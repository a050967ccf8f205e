import type { ErrorView } from "../contract/index.js";

/** One thing that went wrong during a run, as it was seen. */
export interface Suspect {
  rank: number;
  nodeId: string;
  error: ErrorView;
  /** Order of arrival. */
  order: number;
  /** How the rank ended, where it did. */
  kind: "node_lost" | "killed" | "reported" | "exited";
}

/**
 * How likely an error is the cause rather than an echo; lower is likelier. When one rank dies, its neighbours report that a
 * peer closed, fell silent or failed: those name the victim's symptoms and must not hide it. Codes: native/include/stepccl/stepccl.h.
 */
function distance(suspect: Suspect): number {
  if (suspect.kind === "node_lost") return 0;
  if (suspect.kind === "killed") return 1;
  if (suspect.kind === "exited") return 3;
  switch (suspect.error.code) {
    case "R201": // peer closed
    case "R206": // peer failed
    case "R207": // peer silent
      return 6;
    case "R205": // aborted by somebody
      return 7;
    case "R202": // unreachable, timeout, rendezvous: may be our own network or the peer's
    case "R203":
    case "R304":
      return 5;
    case "R502": // an RDMA path fails when the far side dies
      return 4;
    default:
      return 2;
  }
}

/** The first cause among what was seen; null for none. */
export function firstCause(suspects: readonly Suspect[]): Suspect | null {
  let best: Suspect | null = null;
  for (const suspect of suspects) {
    if (!best || distance(suspect) < distance(best) || (distance(suspect) === distance(best) && suspect.order < best.order)) best = suspect;
  }
  return best;
}

/** True when nothing seen so far can be more than an echo: it is worth waiting a moment for the cause itself. */
export const onlyEchoes = (suspects: readonly Suspect[]): boolean => suspects.every((suspect) => distance(suspect) >= 3);
