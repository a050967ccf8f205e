import type { HangGroup, RecordedRank } from "../../../electron/contract/index.js";

/** How many operations are drawn beside each other. */
const SHOWN = 8;

const numberOf = (sequence: string | null | undefined): number | null => (sequence != null && /^\d{1,15}$/.test(sequence) ? Number(sequence) : null);

/** The last operations that any rank reached, oldest first; empty where sequences are not numbers. */
export function lastSequences(group: HangGroup): number[] {
  const seen = group.ranks.flatMap((rank) => [numberOf(rank.lastCompleted), numberOf(rank.current?.sequence)]).filter((each): each is number => each !== null);
  if (seen.length === 0) return [];
  const last = Math.max(...seen);
  const first = Math.max(Math.min(...seen), last - SHOWN + 1);
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

export type CellState = "completed" | "queued" | "started" | "failed" | "not_reached" | "unknown";

/** Where a rank stands with one operation. */
export function cellOf(rank: RecordedRank, sequence: number): CellState {
  const current = numberOf(rank.current?.sequence);
  if (current === sequence) return rank.current!.state;
  const completed = numberOf(rank.lastCompleted);
  if (completed !== null && sequence <= completed) return "completed";
  if (rank.missing || (completed === null && current === null)) return "unknown";
  return "not_reached";
}
