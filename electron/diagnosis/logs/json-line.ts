/** A message that a collector wrapped in JSON: `journalctl -o json`, Docker's json-file, structured logs of programs. */
export interface JsonMessage { text: string; host: string | null; tag: string | null; /** Seconds on the wall clock. */ time: number | null }

const KEYS = ["\"MESSAGE\"", "\"log\"", "\"message\"", "\"msg\""];
const text = (v: unknown): string | null => (typeof v === "string" ? v : null);

/** The message in a line that is one JSON object; null for every other line. Linear in its length, which the splitter bounds. */
export function jsonMessage(line: string): JsonMessage | null {
  if (line.charCodeAt(0) !== 123 || line.charCodeAt(line.length - 1) !== 125 || !KEYS.some((k) => line.includes(k))) return null;
  let object: Record<string, unknown>;
  try { object = JSON.parse(line) as Record<string, unknown>; } catch { return null; }
  const raw = object["MESSAGE"];
  // journald writes what is no UTF-8 as a list of bytes.
  const message = Array.isArray(raw) ? Buffer.from(raw.filter((b): b is number => typeof b === "number")).toString("utf8") : text(raw) ?? text(object["log"]) ?? text(object["message"]) ?? text(object["msg"]);
  if (message === null) return null;
  const micros = Number(object["__REALTIME_TIMESTAMP"] ?? Number.NaN);
  const iso = Date.parse(text(object["time"]) ?? text(object["timestamp"]) ?? text(object["ts"]) ?? "");
  return {
    text: message, host: text(object["_HOSTNAME"]), tag: object["_TRANSPORT"] === "kernel" ? "kernel" : text(object["SYSLOG_IDENTIFIER"]),
    time: Number.isFinite(micros) ? micros / 1e6 : Number.isFinite(iso) ? iso / 1000 : null,
  };
}
