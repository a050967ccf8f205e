/** Rows of 64 classes of characters: letters without case, digits, and what else the literals use. */
const ROW_BITS = 6;
const ROW = 1 << ROW_BITS;
const HAS_OUTPUT = 0x8000;
const STATE = 0x7fff;

/**
 * Finds which of many lower-case literals occur in a text in one pass (Aho and Corasick, 1975, as a dense table).
 * Case is folded, and a run of blanks counts as one, so that "a  b" and "a\tb" match the literal "a b".
 */
export class LiteralFinder {
  readonly #classes = new Uint8Array(128);
  readonly #next: Uint16Array;
  readonly #out: (readonly number[] | null)[];
  readonly #stamp: Int32Array;
  #generation = 0;
  readonly #found: number[] = [];

  constructor(literals: readonly string[]) {
    let width = 1;
    for (const literal of literals) for (let i = 0; i < literal.length; i++) {
      const c = literal.charCodeAt(i);
      if (c >= 128 || literal[i] !== literal[i]!.toLowerCase()) throw new Error(`literal that is not lower-case ASCII: ${literal}`);
      if (this.#classes[c] === 0) this.#classes[c] = width++;
    }
    if (width > ROW) throw new Error(`the literals use ${width} kinds of characters`);
    for (let c = 65; c <= 90; c++) this.#classes[c] = this.#classes[c + 32]!;
    this.#classes[9] = this.#classes[32]!;
    const goto: Int32Array[] = [];
    const out: number[][] = [];
    const add = (): number => { goto.push(new Int32Array(ROW).fill(-1)); out.push([]); return goto.length - 1; };
    add();
    literals.forEach((literal, index) => {
      let state = 0;
      for (let i = 0; i < literal.length; i++) {
        const k = this.#classes[literal.charCodeAt(i)]!;
        if (goto[state]![k] === -1) goto[state]![k] = add();
        state = goto[state]![k]!;
      }
      out[state]!.push(index);
    });
    if (goto.length > STATE) throw new Error(`the literals need ${goto.length} states`);
    const fail = new Int32Array(goto.length);
    const queue: number[] = [];
    for (let k = 0; k < ROW; k++) { const s = goto[0]![k]!; if (s === -1) goto[0]![k] = 0; else queue.push(s); }
    for (let q = 0; q < queue.length; q++) {
      const state = queue[q]!;
      out[state]!.push(...out[fail[state]!]!);
      for (let k = 0; k < ROW; k++) {
        const s = goto[state]![k]!;
        if (s === -1) { goto[state]![k] = goto[fail[state]!]![k]!; continue; }
        fail[s] = goto[fail[state]!]![k]!;
        queue.push(s);
      }
    }
    // By depth: ordinary text stays near the root, so what it visits lies close together.
    const order = [0, ...queue];
    const place = new Int32Array(goto.length);
    order.forEach((s, i) => { place[s] = i; });
    this.#next = new Uint16Array(goto.length << ROW_BITS);
    order.forEach((s, i) => goto[s]!.forEach((to, k) => { this.#next[(i << ROW_BITS) | k] = place[to]! | (out[to]!.length > 0 ? HAS_OUTPUT : 0); }));
    this.#out = order.map((s) => (out[s]!.length > 0 ? out[s]! : null));
    this.#stamp = new Int32Array(literals.length);
  }

  /** Indexes of the literals that occur, each once. The array is reused by the next call. */
  find(text: string): readonly number[] {
    const next = this.#next;
    const classes = this.#classes;
    const found = this.#found;
    const stamp = this.#stamp;
    const outputs = this.#out;
    found.length = 0;
    const generation = ++this.#generation;
    const length = text.length;
    let state = 0;
    let before = 0;
    for (let i = 0; i < length; i++) {
      const c = text.charCodeAt(i);
      if (c === 32 || c === 9) { if (before === 32) continue; before = 32; } else before = c;
      state = next[((state & STATE) << ROW_BITS) | (c < 128 ? classes[c]! : 0)]!;
      if (state < HAS_OUTPUT) continue;
      const list = outputs[state & STATE]!;
      for (let k = 0; k < list.length; k++) {
        const index = list[k]!;
        if (stamp[index] !== generation) { stamp[index] = generation; found.push(index); }
      }
    }
    return found;
  }
}
