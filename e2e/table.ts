import type { RunView } from "../electron/contract/index.js";

const COLUMNS = ["size(B)", "count", "type", "redop", "root", "time(us)", "algbw", "busbw", "#wrong", "time(us)", "algbw", "busbw", "#wrong"];

/** A run as nccl-tests prints it: out of place, then in place; bandwidths in GB/s. */
export function formatRunTable(run: RunView): string {
  const rows = run.rows.map((row) => [
    row.bytes, row.count, row.datatype, row.redop, row.root,
    ...[row.outOfPlace, row.inPlace].flatMap((timing) => timing === null ? ["N/A", "N/A", "N/A", "N/A"] : [timing.timeUs.toFixed(1), timing.algbwGBps.toFixed(3), timing.busbwGBps.toFixed(3), timing.wrong ?? "N/A"]),
  ].map(String));
  const widths = COLUMNS.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]): string => cells.map((cell, column) => cell.padStart(widths[column] ?? 0)).join("  ");
  return [line(COLUMNS), ...rows.map(line), `# total wrong ${run.wrongTotal ?? "unknown"}, average busbw ${run.avgBusbwGBps?.toFixed(3) ?? "unknown"} GB/s`].map((text) => `  ${text}`).join("\n");
}
