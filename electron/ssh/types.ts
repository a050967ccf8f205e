import type { Duplex } from "node:stream";

export interface ExecOptions {
  signal?: AbortSignal;
  /** Whole time allowed; H209 when it passes. Default 30 000. */
  timeoutMs?: number;
  /** Output kept for each of stdout and stderr; the rest is counted in `droppedBytes`. Default 1 MiB. */
  maxBytes?: number;
  /** Run as root: `sudo -n` unless the user is root already; H303 when that is not allowed. */
  root?: boolean;
  /** Written to standard input, which is then closed. Secrets go here, never into the command. */
  stdin?: string | Uint8Array;
}

export interface ExecResult {
  /** Exit status; null when a signal ended the command. */
  status: number | null;
  signal: string | null;
  /** Bytes as the node sent them: decode with care, it is hostile text. */
  stdout: string;
  stderr: string;
  droppedBytes: number;
  durationMs: number;
}

/**
 * One node over one SSH connection, dialled on demand and shared. At most 8 sessions at a time (MaxSessions is 10);
 * more wait in a queue. Every method rejects with a ConsoleError.
 */
export interface NodeSession {
  readonly nodeId: string;
  /** Runs `command` by the node's shell. Quote every argument with `shellQuote`. */
  exec(command: string, options?: ExecOptions): Promise<ExecResult>;
  /** Like exec, but gives lines as they come; ends with the status. */
  execLines(command: string, onLine: (stream: "stdout" | "stderr", line: string) => void, options?: ExecOptions): Promise<ExecResult>;
  /**
   * Sends one file to `path` with `mode`: written beside it, synced, its sha256 checked on the node, then renamed over.
   * `onProgress` gets bytes that the node has confirmed.
   */
  upload(source: { path: string; sizeBytes: number; sha256: string }, path: string, mode: number,
    onProgress?: (doneBytes: number) => void, signal?: AbortSignal): Promise<void>;
  /** The daemon's socket: stream-local forwarding, or `stepccld proxy` where the server forbids that. */
  openAgentStream(signal?: AbortSignal): Promise<Duplex>;
}
