import { LiteralFinder } from "./logs/aho-corasick.js";
import { findBdf, findRdmaDevice } from "./logs/device.js";
import { collapse } from "./logs/normalise.js";
import { AGAINST } from "./rules/against.js";
import { RULES } from "./rules/index.js";
import type { Rule, Severity, Signature } from "./types.js";
import { WATCHERS, type Watcher } from "./watch/index.js";

/** A signature that a text fits. */
export interface Match {
  rule: Rule;
  severity: Severity | undefined;
  params: Record<string, string> | undefined;
  /** The device that the signature or else the text names; looked up when first asked for. */
  device(): string | null;
}

/** What a message's text says by itself, wherever and whenever it stands. */
export interface TextKind {
  /** Runs of blanks collapsed. */
  text: string;
  matches: readonly Match[];
  watchers: readonly Watcher[];
  /** Entries of `AGAINST` one of whose literals is there. */
  against: readonly number[];
  failure: boolean;
  complaint: boolean;
  suppressed: boolean;
}

const SUPPRESSED = "callbacks suppressed";
/** Words of a failure: a line that holds one and fits no class is remembered. */
const FAILURE_WORDS = new Set(["fatal", "panic", "exception", "traceback", "aborted", "core dumped", "segfault", "nccl warn", "ucx error", "mpi_errors_are_fatal", "non-zero status:", "null value", "call trace", "bug:", "runtime error", "runtimeerror", "error", "unable to connect the hca", "failed to modify qp", "oops:", "general protection fault", "soft lockup", "blocked for more than", "failed in dsa", "failed in iax", "error enabling wq", "enabled 0 wq(s)", "enabled 0 device(s)"]);
/** Words of a lesser failure: quoted beside "nothing wrong" where nothing else was found, since a healthy machine writes them too. */
const COMPLAINTS = new Set(["failed", "failure", "cannot", "could not", "couldn't", "unable to", "timed out", "refused", "denied", "not found"]);

export const COMPILED_SIGNATURES: readonly { rule: Rule; sig: Signature }[] = RULES.flatMap((rule) => (rule.sig ?? []).map((sig) => ({ rule, sig })));

interface Literal { signatures: number[]; watchers: Watcher[]; against: number[]; failure: boolean; complaint: boolean; suppressed: boolean }
const literals = new Map<string, Literal>();
function literal(text: string): Literal {
  let l = literals.get(text);
  if (!l) { l = { signatures: [], watchers: [], against: [], failure: FAILURE_WORDS.has(text), complaint: COMPLAINTS.has(text), suppressed: text === SUPPRESSED }; literals.set(text, l); }
  return l;
}
COMPILED_SIGNATURES.forEach(({ sig }, id) => { for (const t of new Set(sig.any)) literal(t).signatures.push(id); });
for (const watcher of WATCHERS) for (const t of new Set(watcher.triggers)) literal(t).watchers.push(watcher);
AGAINST.forEach(({ any }, entry) => { for (const t of new Set(any)) literal(t).against.push(entry); });
for (const t of [...FAILURE_WORDS, ...COMPLAINTS, SUPPRESSED]) literal(t);
const LITERALS = [...literals.values()];
const finder = new LiteralFinder([...literals.keys()]);

function judge(text: string, found: readonly number[]): TextKind {
  const signatures = new Set<number>();
  const watchers = new Set<Watcher>();
  const against = new Set<number>();
  let failure = false;
  let complaint = false;
  let suppressed = false;
  for (const index of found) {
    const l = LITERALS[index]!;
    for (const id of l.signatures) signatures.add(id);
    for (const w of l.watchers) watchers.add(w);
    for (const a of l.against) against.add(a);
    failure ||= l.failure;
    complaint ||= l.complaint;
    suppressed ||= l.suppressed;
  }
  return { text, matches: signatures.size === 0 ? NONE : matches(text, signatures), watchers: [...watchers], against: [...against], failure, complaint, suppressed };
}
const NONE: readonly Match[] = [];

function matches(text: string, candidates: ReadonlySet<number>): readonly Match[] {
  const out: Match[] = [];
  let lower: string | null = null;
  // In the order of the rule files, so that a class's own wording wins over a general one.
  for (const id of [...candidates].sort((a, b) => a - b)) {
    const { rule, sig } = COMPILED_SIGNATURES[id]!;
    if (out.some((m) => m.rule === rule)) continue;
    if (sig.all || sig.not) {
      lower ??= text.toLowerCase();
      const t = lower;
      if (sig.all && !sig.all.every((l) => t.includes(l))) continue;
      if (sig.not && sig.not.some((l) => t.includes(l))) continue;
    }
    let params: Record<string, string> | undefined;
    if (sig.re) {
      const m = sig.re.exec(text);
      if (!m) continue;
      params = m.groups;
    }
    let device: string | null | undefined = params?.["dev"];
    out.push({ rule, severity: sig.severity, params, device: () => (device === undefined ? (device = findBdf(text) ?? findRdmaDevice(text)) : device) });
  }
  return out;
}

const REMEMBERED = 512;
/** Texts in a row of which too few were known: then remembering costs more than it saves for a while. */
const TRIAL = 2048;

/** Judges texts, and remembers the last ones: a flood repeats itself, and only its stamps differ. */
export class TextKinds {
  readonly #known = new Map<string, TextKind>();
  #asked = 0;
  #met = 0;
  #pause = 0;

  /** Null when the text holds no literal of any rule. */
  of(raw: string): TextKind | null {
    const found = finder.find(raw);
    if (found.length === 0) return null;
    if (this.#pause > 0) { this.#pause--; return judge(collapse(raw), found); }
    this.#asked++;
    let kind = this.#known.get(raw);
    if (kind !== undefined) { this.#met++; return kind; }
    if (this.#asked >= TRIAL) {
      if (this.#met * 4 < this.#asked) { this.#pause = TRIAL * 8; this.#known.clear(); }
      this.#asked = 0;
      this.#met = 0;
    }
    const own = detached(raw);
    kind = judge(collapse(own), found);
    if (this.#known.size >= REMEMBERED) this.#known.clear();
    this.#known.set(own, kind);
    return kind;
  }
}

/** A copy that does not keep the file's piece in memory that the text was cut out of. */
function detached(text: string): string {
  const bytes = Buffer.from(text, "latin1").toString("latin1");
  return bytes === text ? bytes : Buffer.from(text, "utf16le").toString("utf16le");
}
