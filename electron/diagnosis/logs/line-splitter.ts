import { isAscii } from "node:buffer";
import { detectEncoding, type Encoding } from "./decode-text.js";

/** Longest part of a line that is looked at; what follows is counted and dropped. */
export const MAX_LINE_CHARS = 8192;

export type OnLine = (line: string, lineNumber: number) => void;

/**
 * Bytes in, lines out, in memory bounded by one chunk and one line. Any encoding, any line length, NUL bytes included.
 * A lone carriage return ends a line as a terminal would show it, without a new line number.
 */
export class LineSplitter {
  #decoder: TextDecoder | null = null;
  #encoding: Encoding | null = null;
  #carry = "";
  #lineNumber = 1;
  #skipping = false;
  #waiting = false;
  /** Characters left out because their line was too long. */
  droppedChars = 0;
  readonly #onLine: OnLine;

  constructor(onLine: OnLine, encoding: Encoding | null = null) {
    this.#onLine = onLine;
    this.#encoding = encoding;
  }

  get encoding(): Encoding | null { return this.#encoding; }

  push(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    if (!this.#decoder) {
      this.#encoding ??= detectEncoding(bytes);
      this.#decoder = new TextDecoder(this.#encoding, { fatal: false, ignoreBOM: false });
    }
    // Logs are ASCII for the most part, and that needs no decoding; only a character cut in two is kept waiting by the decoder.
    if (this.#encoding === "utf-8" && !this.#waiting && isAscii(bytes)) {
      this.pushText(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1"));
      return;
    }
    this.pushText(this.#decoder.decode(bytes, { stream: true }));
    this.#waiting = bytes[bytes.length - 1]! >= 0x80;
  }

  pushText(text: string): void {
    let from = 0;
    for (;;) {
      const end = text.indexOf("\n", from);
      if (end < 0) break;
      this.#part(text, from, end);
      this.#flush();
      this.#lineNumber++;
      from = end + 1;
    }
    this.#part(text, from, text.length);
  }

  end(): void {
    if (this.#decoder) this.pushText(this.#decoder.decode());
    if (this.#carry.length > 0) this.#flush();
  }

  #part(text: string, from: number, to: number): void {
    if (this.#skipping) { this.droppedChars += to - from; return; }
    const room = MAX_LINE_CHARS - this.#carry.length;
    if (to - from <= room) {
      this.#carry = this.#carry.length === 0 ? text.slice(from, to) : this.#carry + text.slice(from, to);
      return;
    }
    this.#carry += text.slice(from, from + room);
    this.droppedChars += to - from - room;
    this.#skipping = true;
  }

  #flush(): void {
    const line = this.#carry;
    this.#carry = "";
    this.#skipping = false;
    if (line.indexOf("\r") < 0) { this.#onLine(line, this.#lineNumber); return; }
    for (const piece of line.split("\r")) if (piece.length > 0) this.#onLine(piece, this.#lineNumber);
  }
}
