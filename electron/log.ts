import { mkdirSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import pino from "pino";

export type Log = Pick<pino.Logger, "info" | "warn" | "error">;

const MAX_BYTES = 8 * 1024 * 1024;

/**
 * `log/console.log` of the data folder, one JSON object a line, readable by this user alone; the last file is kept as console.log.1.
 * Secrets never come here: what is logged are codes, messages and stacks, no parameters of requests.
 */
export function openLog(dataDir: string): Log {
  const folder = join(dataDir, "log");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const path = join(folder, "console.log");
  if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) > MAX_BYTES) renameSync(path, `${path}.1`);
  return pino({ base: { pid: process.pid }, redact: ["*.password", "*.passphrase", "*.token", "*.unique_id"] }, pino.destination({ dest: path, mode: 0o600, sync: true }));
}
