/**
 * Finds which of many lower-case literals occur in a text in one pass (Aho and Corasick, 1975, as a dense table).
 * Case is folded, and a run of blanks counts as one, so that "a  b" and "a\tb" match the literal "a b".
 */
export class LiteralFinder {
  readonly #classes = new Uint8Array(128);
  readonly #next: Int32Array;
  readonly #out: (readonly number[] | null)[];
  readonly #hasOut: Uint8Array;
  readonly #width: number;
  readonly #stamp: Int32Array;
  #generation = 0;
  readonly #found: number[] = [];

  constructor(literals: readonly string[]) {
    let width = 1;
    for (const literal of literals) for (let i = 0; i < literal.length; i++) {
      const c = literal.charCodeAt(i);
      if (c >= 128) throw new Error(`literal with a character beyond ASCII: ${literal}`);
      if (this.#classes[c] === 0) this.#classes[c] = width++;
    }
    for (let c = 65; c <= 90; c++) this.#classes[c] = this.#classes[c + 32]!;
    this.#classes[9] = this.#classes[32]!;
    this.#width = width;
    const goto: number[][] = [new Array<number>(width).fill(-1)];
    const out: number[][] = [[]];
    literals.forEach((literal, index) => {
      let state = 0;
      for (let i = 0; i < literal.length; i++) {
        const k = this.#classes[literal.charCodeAt(i)]!;
        if (goto[state]![k] === -1) { goto[state]![k] = goto.length; goto.push(new Array<number>(width).fill(-1)); out.push([]); }
        state = goto[state]![k]!;
      }
      out[state]!.push(index);
    });
    const fail = new Int32Array(goto.length);
    const queue: number[] = [];
    for (let k = 0; k < width; k++) { const s = goto[0]![k]!; if (s === -1) goto[0]![k] = 0; else queue.push(s); }
    for (let q = 0; q < queue.length; q++) {
      const state = queue[q]!;
      out[state]!.push(...out[fail[state]!]!);
      for (let k = 0; k < width; k++) {
        const s = goto[state]![k]!;
        if (s === -1) { goto[state]![k] = goto[fail[state]!]![k]!; continue; }
        fail[s] = goto[fail[state]!]![k]!;
        queue.push(s);
      }
    }
    this.#next = new Int32Array(goto.length * width);
    goto.forEach((row, s) => this.#next.set(row, s * width));
    this.#out = out.map((o) => (o.length > 0 ? o : null));
    this.#hasOut = Uint8Array.from(out, (o) => (o.length > 0 ? 1 : 0));
    this.#stamp = new Int32Array(literals.length);
  }

  /** Indexes of the literals that occur, each once. The array is reused by the next call. */
  find(text: string): readonly number[] {
    const next = this.#next;
    const width = this.#width;
    const classes = this.#classes;
    const found = this.#found;
    found.length = 0;
    const generation = ++this.#generation;
    let state = 0;
    let blank = false;
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (c === 32 || c === 9) { if (blank) continue; blank = true; } else blank = false;
      state = next[state * width + (c < 128 ? classes[c]! : 0)]!;
      if (this.#hasOut[state] === 1) {
        for (const index of this.#out[state]!) if (this.#stamp[index] !== generation) { this.#stamp[index] = generation; found.push(index); }
      }
    }
    return found;
  }
}
