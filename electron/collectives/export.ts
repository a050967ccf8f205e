import type { RunView } from "../contract/index.js";

/** A run as a file. CSV has the columns of nccl-tests (time in us, bandwidth in GB/s), out of place first. */
const COLUMNS = [
  "size_bytes", "count", "type", "redop", "root", "algorithm", "transport", "iterations",
  "out_of_place_time_us", "out_of_place_algbw_GBps", "out_of_place_busbw_GBps", "out_of_place_wrong",
  "in_place_time_us", "in_place_algbw_GBps", "in_place_busbw_GBps", "in_place_wrong", "expected_time_us",
] as const;

export function exportRun(run: RunView, format: "csv" | "json"): { fileName: string; mediaType: string; text: string } {
  const base = `stepccl-${run.spec.collective}-${new Date(run.startedAtMs).toISOString().replace(/[:.]/g, "-")}`;
  if (format === "json") return { fileName: `${base}.json`, mediaType: "application/json", text: `${JSON.stringify(run, null, 2)}\n` };
  const lines = run.rows.map((row) => [
    row.bytes, row.count, row.datatype, row.redop, row.root, row.algorithm, row.transport, row.iterations,
    row.outOfPlace.timeUs, row.outOfPlace.algbwGBps, row.outOfPlace.busbwGBps, row.outOfPlace.wrong,
    row.inPlace?.timeUs ?? null, row.inPlace?.algbwGBps ?? null, row.inPlace?.busbwGBps ?? null, row.inPlace?.wrong ?? null, row.expectedTimeUs,
  ].map(field).join(","));
  return { fileName: `${base}.csv`, mediaType: "text/csv", text: [COLUMNS.join(","), ...lines, ""].join("\r\n") };
}

/** RFC 4180. A text that a spreadsheet would take for a formula is quoted as text: the names come from a node. */
function field(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
