/** Numbers as the field writes them. Everything is locale-free on purpose: these strings go into tickets and scripts. */

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;
const DECIMAL = ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"] as const;

const trim = (value: number): string => {
  if (value >= 100) return value.toFixed(0);
  if (value >= 10) return value.toFixed(1);
  return value.toFixed(2);
};

/** Bytes in binary units: 16777216 -> "16 MiB"; whole numbers have no decimals. */
export function bytes(value: number): string {
  if (!Number.isFinite(value) || value < 0) return "–";
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < BINARY.length - 1) {
    scaled /= 1024;
    unit++;
  }
  return `${Number.isInteger(scaled) ? scaled : trim(scaled)} ${BINARY[unit]}`;
}

/** A size of a message, short, for axes: 16777216 -> "16M", 8 -> "8". */
export function sizeTick(value: number): string {
  for (const [unit, power] of [["G", 3], ["M", 2], ["K", 1]] as const) {
    const scale = 1024 ** power;
    if (value >= scale) return `${Number((value / scale).toPrecision(3))}${unit}`;
  }
  return String(value);
}

/** Bytes a second in decimal units: 1.25e9 -> "1.25 GB/s". */
export function rate(bytesPerSecond: number): string {
  if (!Number.isFinite(bytesPerSecond) || bytesPerSecond < 0) return "–";
  let unit = 0;
  let scaled = bytesPerSecond;
  while (scaled >= 999.5 && unit < DECIMAL.length - 1) {
    scaled /= 1000;
    unit++;
  }
  return `${unit === 0 ? Math.round(scaled) : trim(scaled)} ${DECIMAL[unit]}`;
}

/** GB/s as nccl-tests prints it: two decimals, four below 0.1, where two would say 0. */
export function gbps(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return value !== 0 && Math.abs(value) < 0.1 ? value.toFixed(4) : value.toFixed(2);
}

/** Microseconds as nccl-tests prints them: 4 significant digits, no exponent. */
export function us(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value >= 1000) return value.toFixed(0);
  if (value >= 100) return value.toFixed(1);
  return value.toFixed(2);
}

/** A span for people: "0.4 s", "12 s", "3 min 05 s", "2 h 10 min". */
export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "–";
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export interface Age { count: number; unit: "s" | "min" | "h" | "d" }

/** An age in its largest whole unit; `ageUnits.<unit>` names the unit. */
export function age(ms: number): Age {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return { count: seconds, unit: "s" };
  if (seconds < 3600) return { count: Math.floor(seconds / 60), unit: "min" };
  if (seconds < 86_400) return { count: Math.floor(seconds / 3600), unit: "h" };
  return { count: Math.floor(seconds / 86_400), unit: "d" };
}

/** A value older than this is shown with its age. */
export const STALE_AFTER_MS = 3000;

/** Gbit/s of a link: 25000 Mbps -> "25G", 400 -> "400M". */
export function linkSpeed(mbps: number | null): string {
  if (mbps === null || mbps <= 0) return "–";
  return mbps >= 1000 ? `${Number((mbps / 1000).toPrecision(4))}G` : `${mbps}M`;
}

/** Local time of day, with the date where it is not today's. */
export function timeOfDay(ms: number, nowMs: number): string {
  const at = new Date(ms);
  const pad = (n: number) => String(n).padStart(2, "0");
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const sameDay = new Date(nowMs).toDateString() === at.toDateString();
  return sameDay ? time : `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${time}`;
}

/** "64K", "16 MiB", "1g", "8" -> bytes (binary); null where it is no size. */
export function parseSize(text: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$/i.exec(text);
  if (!match) return null;
  const power = { "": 0, k: 1, m: 2, g: 3, t: 4 }[match[2]!.toLowerCase()] ?? 0;
  const value = Number(match[1]) * 1024 ** power;
  return Number.isSafeInteger(value) && value > 0 ? value : null;
}
