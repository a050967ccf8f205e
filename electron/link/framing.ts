/** Limits of agent/PROTOCOL.md and telemetry.h section 3. */
export const MAX_LINE_BYTES = 1 << 20;
export const MAX_FRAME_BYTES = 1 << 20;
const FRAME_MAGIC = Buffer.from("SCF1", "latin1");
const FRAME_HEADER_BYTES = 80;
const BRACE = 0x7b;
const LETTER_S = 0x53;
const NEWLINE = 0x0a;

/** The stream holds something that is neither a line of JSON nor a frame; nothing after it can be trusted. */
export class FramingError extends Error {
  override readonly name = "FramingError";
}

export interface MessageSink {
  /** The line without its newline. */
  line(text: string): void;
  /** The whole frame; the bytes are only valid during the call. */
  frame(bytes: Buffer): void;
}

/**
 * Cuts the daemon's stream into JSON lines and binary frames, whatever way the bytes arrive in. Holds at most one
 * unfinished message, which is bounded; each byte is looked at once.
 */
export class MessageSplitter {
  #buffer = Buffer.allocUnsafe(16 * 1024);
  #start = 0;
  #end = 0;
  /** How far the pending line has been searched for its newline. */
  #searched = 0;
  readonly #sink: MessageSink;

  constructor(sink: MessageSink) {
    this.#sink = sink;
  }

  /** Bytes of an unfinished message. */
  get pendingBytes(): number {
    return this.#end - this.#start;
  }

  /** @throws FramingError; the splitter is of no use afterwards. */
  push(chunk: Uint8Array): void {
    this.#append(chunk);
    while (this.#start < this.#end) {
      const first = this.#buffer[this.#start];
      if (first === BRACE ? !this.#takeLine() : first === LETTER_S ? !this.#takeFrame() : this.#refuse(first)) return;
    }
  }

  #append(chunk: Uint8Array): void {
    if (this.#start === this.#end) this.#start = this.#end = this.#searched = 0;
    if (this.#end + chunk.length > this.#buffer.length) {
      const pending = this.pendingBytes;
      const needed = pending + chunk.length;
      const target = needed <= this.#buffer.length / 2 ? this.#buffer : Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
      this.#buffer.copy(target, 0, this.#start, this.#end);
      this.#searched = Math.max(0, this.#searched - this.#start);
      this.#buffer = target;
      this.#start = 0;
      this.#end = pending;
    }
    this.#buffer.set(chunk, this.#end);
    this.#end += chunk.length;
  }

  #takeLine(): boolean {
    const at = this.#buffer.subarray(0, this.#end).indexOf(NEWLINE, Math.max(this.#searched, this.#start));
    const length = (at < 0 ? this.#end : at) - this.#start;
    if (length > MAX_LINE_BYTES) throw new FramingError(`a line of more than ${MAX_LINE_BYTES} bytes`);
    if (at < 0) {
      this.#searched = this.#end;
      return false;
    }
    const text = this.#buffer.toString("utf8", this.#start, at);
    this.#start = this.#searched = at + 1;
    this.#sink.line(text);
    return true;
  }

  #takeFrame(): boolean {
    const have = this.pendingBytes;
    for (let i = 1; i < Math.min(have, FRAME_MAGIC.length); i++) {
      if (this.#buffer[this.#start + i] !== FRAME_MAGIC[i]) throw new FramingError("a frame without its magic");
    }
    if (have < 8) return false;
    const total = this.#buffer.readUInt32LE(this.#start + 4);
    if (total < FRAME_HEADER_BYTES || total > MAX_FRAME_BYTES) throw new FramingError(`a frame that claims ${total} bytes`);
    if (have < total) return false;
    const from = this.#start;
    this.#start = this.#searched = from + total;
    this.#sink.frame(this.#buffer.subarray(from, from + total));
    return true;
  }

  #refuse(first: number | undefined): never {
    throw new FramingError(`byte 0x${(first ?? 0).toString(16).padStart(2, "0")} where a message begins`);
  }
}
