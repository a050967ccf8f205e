import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";

/** Reads values that one line alone does not judge, and judges them at the end. */
export interface Watcher {
  id: string;
  /** Lower-case literals that call `line`. */
  triggers: readonly string[];
  /** Only lines without a time stamp: output of commands, not logs. */
  plainOnly?: boolean;
  /** `text` is the record's text with runs of blanks collapsed. */
  line?(scan: Scan, record: LogRecord, text: string): void;
  /** Called for the lines after `scan.follow`; false ends it. */
  follow?(scan: Scan, record: LogRecord, text: string): boolean;
  sourceEnd?(scan: Scan): void;
  end?(scan: Scan): void;
}

export interface Seen { record: LogRecord; source: string }
