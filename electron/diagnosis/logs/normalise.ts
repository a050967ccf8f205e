import { cleanLine } from "./clean.js";
import { jsonMessage } from "./json-line.js";
import { LineSplitter } from "./line-splitter.js";
import { parsePrefix, type Prefix } from "./prefix.js";

/** One message as it was before logging, terminals and launchers dressed it. */
export interface LogRecord {
  /** The message, wraps and continuations joined. Hostile text without control characters. */
  text: string;
  /** The first line as read, cleaned: for quoting. */
  raw: string;
  line: number;
  indent: number;
  stamped: boolean;
  time: number | null;
  clock: Prefix["clock"];
  host: string | null;
  tag: string | null;
  /** How often the logger says that the message came (`message repeated N times`). */
  repeat: number;
}

export type OnRecord = (record: LogRecord) => void;

const REPEATED = /^message repeated (\d{1,9}) times: \[ ?(.*?)\]?$/;
/** First lines of messages that the kernel module spreads over several lines, and how many may follow. */
const BLOCKS: readonly (readonly [start: string, lines: number])[] = [
  ["NVRM: API mismatch", 4],
  ["NVRM: This PCI I/O region assigned", 2],
  ["NVRM: The NVIDIA GPU", 5],
  ["NVRM: BAR", 1],
];
const MAX_RECORD_CHARS = 16384;
/** Blanks that a terminal's wrap leaves inside a word. */
const WRAP_BLANKS = 20;
const WRAP_BLANKS_UNSTAMPED = 60;

/**
 * Bytes of one source in, records out. Holds one record back, since the next line may belong to it. Linear time, bounded memory.
 */
export class Normaliser {
  readonly #splitter: LineSplitter;
  readonly #onRecord: OnRecord;
  #pending: LogRecord | null = null;
  #pendingRawLength = 0;
  #blockLeft = 0;
  #relative = 0;
  #wrapWidth = 0;
  #wrapSeen = 0;
  readonly #defaultHost: string | null;
  lines = 0;

  constructor(onRecord: OnRecord, options: { host?: string | null } = {}) {
    this.#onRecord = onRecord;
    this.#defaultHost = options.host ?? null;
    this.#splitter = new LineSplitter((line, number) => this.#line(line, number));
  }

  get droppedChars(): number { return this.#splitter.droppedChars; }
  get encoding(): string | null { return this.#splitter.encoding; }

  push(bytes: Uint8Array): void { this.#splitter.push(bytes); }
  pushText(text: string): void { this.#splitter.pushText(text); }

  end(): void {
    this.#splitter.end();
    this.#emit();
  }

  #line(line: string, number: number): void {
    this.lines++;
    const raw = unquoted(cleanLine(line));
    const inner = raw.charCodeAt(0) === 123 ? jsonMessage(raw) : null;
    if (inner !== null) {
      for (const part of inner.text.split("\n")) {
        const clean = cleanLine(part);
        const p = parsePrefix(clean);
        if (clean.length > 0) this.#piece(clean, clean, number, { ...p, stamped: p.stamped || inner.tag === "kernel", time: p.time ?? inner.time, clock: p.clock ?? (inner.time === null ? null : "wall"), host: p.host ?? inner.host, tag: p.tag ?? inner.tag });
      }
      return;
    }
    if (raw.indexOf("#012") >= 0) {
      // rsyslog writes a newline inside a message as #012 and a tab as #011.
      const pieces = raw.split("#012");
      const prefix = parsePrefix(pieces[0]!);
      pieces.forEach((piece, k) => this.#piece(k === 0 ? piece : piece.replaceAll("#011", " "), raw, number, k === 0 ? prefix : { ...parsePrefix(piece), stamped: false, time: prefix.time, clock: prefix.clock, host: prefix.host, tag: prefix.tag }));
      return;
    }
    this.#piece(raw, raw, number, parsePrefix(raw));
  }

  #piece(piece: string, raw: string, number: number, p: Prefix): void {
    let text = p.start === 0 ? piece : piece.slice(p.start);
    if (text.indexOf("     ") >= 0) text = unwrap(text, p.stamped ? WRAP_BLANKS : WRAP_BLANKS_UNSTAMPED);
    if (text.indexOf("=3D") >= 0) text = text.replaceAll("=3D", "=");
    let repeat = 1;
    if (text.charCodeAt(0) === 109 && text.startsWith("message repeated ")) {
      const m = REPEATED.exec(text);
      if (m) { repeat = Number(m[1]); text = m[2]!; }
    }
    let time = p.time;
    if (p.clock === "relative" && time !== null) time = this.#relative += time;
    const prev = this.#pending;
    // Quoted-printable mail: a soft line end is "=".
    if (prev && prev.text.charCodeAt(prev.text.length - 1) === 61 && prev.stamped && !p.stamped && p.indent === 0 && prev.text.length >= 40) {
      prev.text = prev.text.slice(0, -1) + text;
      return;
    }
    if (prev && text.length > 0 && prev.text.length < MAX_RECORD_CHARS) {
      const join = this.#joins(prev, text, p, time);
      if (join !== null) {
        prev.text += join + (join === " " && text.startsWith("NVRM: ") ? text.slice(6) : text);
        this.#pendingRawLength = raw.length;
        return;
      }
    }
    this.#emit();
    this.#blockLeft = 0;
    if (text.startsWith("NVRM: ")) for (const [start, lines] of BLOCKS) if (text.startsWith(start)) this.#blockLeft = lines;
    if (p.stamped) this.#noteWidth(raw.length);
    this.#pending = {
      text, raw, line: number, indent: p.indent, stamped: p.stamped, time, clock: p.clock, host: p.host ?? this.#defaultHost, tag: p.tag, repeat,
    };
    this.#pendingRawLength = raw.length;
  }

  #emit(): void {
    const record = this.#pending;
    this.#pending = null;
    if (record) this.#onRecord(record);
  }

  /** What to put between the two when `text` continues `prev`; null when it is a message of its own. */
  #joins(prev: LogRecord, text: string, p: Prefix, time: number | null): "" | " " | null {
    const last = prev.text.charCodeAt(prev.text.length - 1);
    if (last === 91 && prev.text.includes("AMD-Vi")) return "";
    if (last === 44 && text.startsWith("total ") && prev.text.includes("buffer is full")) return " ";
    if (text.startsWith("BIOS vendor:") && prev.text.includes("DMAR:")) return " ";
    // A mailer broke the line: after a comma of a firmware's answer, or after the colon that a driver puts before its message.
    if (last === 44 && !p.stamped && text.startsWith("status ") && prev.text.includes("op_mod(")) return " ";
    if (last === 58 && !p.stamped && (prev.clock === "uptime" || prev.text.startsWith("mlx")) && /\(pid \d{1,10}\):$/.test(prev.text)) return " ";
    if (last === 115 && !p.stamped && prev.text.endsWith(" failed, status") && prev.text.includes("op_mod(")) return " ";
    if (prev.text.startsWith("NVRM:")) {
      const nvrm = text.startsWith("NVRM:");
      if (prev.stamped && !p.stamped && (nvrm || p.indent >= 8) && !text.includes("Xid (")) return " ";
      if (this.#blockLeft > 0 && nvrm && !text.includes("Xid (") && !text.includes("GPU at PCI") && near(prev.time, time)) { this.#blockLeft--; return " "; }
    }
    // A terminal cut a stamped line at its width: the rest stands at column 0 without a stamp.
    if (prev.stamped && !p.stamped && p.indent === 0 && this.#wrapSeen > 0 && this.#pendingRawLength === this.#wrapWidth && last !== 46 && !/^[#$|+]/.test(text)) return "";
    return null;
  }

  #noteWidth(length: number): void {
    if (length > this.#wrapWidth) { this.#wrapWidth = length; this.#wrapSeen = length >= 72 && (length % 10 === 0 || length === 132 || length === 72) ? 1 : 0; }
    else if (length === this.#wrapWidth && length >= 72) this.#wrapSeen++;
  }
}

/** Without the marks that a mail puts before quoted lines. */
function unquoted(text: string): string {
  let i = 0;
  while (text.charCodeAt(i) === 62) i += text.charCodeAt(i + 1) === 32 ? 2 : 1;
  return i === 0 ? text : text.slice(i);
}

function near(a: number | null, b: number | null): boolean {
  return a === null || b === null || Math.abs(b - a) < 1.5;
}

/** Takes runs of more than `limit` blanks out of the middle of words. */
function unwrap(text: string, limit: number): string {
  let out = "";
  let from = 0;
  for (let i = 1; i < text.length; i++) {
    if (text.charCodeAt(i) !== 32) continue;
    let j = i;
    while (j < text.length && text.charCodeAt(j) === 32) j++;
    if (j - i > limit && j < text.length && isWord(text.charCodeAt(i - 1)) && isWord(text.charCodeAt(j))) {
      out += text.slice(from, i);
      from = j;
    }
    i = j;
  }
  return from === 0 ? text : out + text.slice(from);
}

function isWord(c: number): boolean {
  return (c >= 48 && c <= 57) || (c >= 65 && c <= 90) || (c >= 97 && c <= 122) || c === 95 || c === 45 || c === 46 || c === 47;
}

/** Runs of blanks become one blank: signatures are written so. */
export function collapse(text: string): string {
  return text.indexOf("  ") < 0 && text.indexOf("\t") < 0 ? text : text.replace(/[ \t]+/g, " ");
}
