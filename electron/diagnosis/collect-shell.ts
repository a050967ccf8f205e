import { randomBytes } from "node:crypto";
import { ConsoleError, type ErrorView, type SourceView } from "../contract/index.js";
import { shellQuote } from "../ssh/quote.js";
import type { Collected } from "./collect.js";
import type { Attempt, SourceId, Spec } from "./sources.js";

const PATH = "PATH=\"$PATH:/usr/sbin:/sbin:/usr/local/sbin\"; export PATH LC_ALL=C";
/** What the page gets of a source; the end of a log is what matters. All of a node's sources fit into one message of the wire. */
const shownChars = (spec: Spec): number => (spec.maxBytes > 256 * 1024 ? 24 : 8) * 1024;
/** The longest that one channel may take for all its commands. */
const MAX_BATCH_MS = 150_000;

export interface Item { spec: Spec; attempt: Attempt }

export function shown(command: string, root: boolean): string {
  return root ? `sudo ${command}` : command;
}

/** One shell that runs all commands of one user, each with its own time limit and its output cut, and marks where each one's output ends. */
export class Batch {
  readonly script: string;
  /** Longest time that its commands may take together, in ms. */
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly #mark = `@@${randomBytes(12).toString("hex")}`;
  readonly #end = new RegExp(`^${this.#mark} (\\w{1,40}) (\\d{1,3}) (\\d{1,12}\\.\\d{2}) (\\d{1,12}\\.\\d{2})$`);

  constructor(private readonly items: readonly Item[], private readonly root: boolean) {
    const beside = items.filter((i) => i.spec.beside === true);
    const inTurn = items.filter((i) => i.spec.beside !== true);
    this.timeoutMs = Math.min(MAX_BATCH_MS, inTurn.reduce((sum, i) => sum + i.spec.timeoutMs, 0) + Math.max(0, ...beside.map((i) => i.spec.timeoutMs)));
    this.maxBytes = items.reduce((sum, i) => sum + i.spec.maxBytes + 4096, 0);
    this.script = [
      PATH, runner(this.#mark, Math.ceil(this.timeoutMs / 1000)),
      ...beside.map((i) => this.#line("beside", i)), ...inTurn.map((i) => this.#line(i.spec.light === true ? "light" : "run", i)),
      "wait", ...beside.map((i) => `collected ${i.spec.id}`),
    ].join("\n");
  }

  #line(how: string, { spec, attempt }: Item): string {
    const seconds = Math.ceil(Math.min(spec.timeoutMs, MAX_BATCH_MS) / 1000);
    // A program without anything for a shell to read needs none of its own.
    const program = /^[\w.\/:,=+ -]+$/.test(attempt.command) ? attempt.command : `sh -c ${shellQuote(attempt.command)}`;
    const call = how === "light" ? `light ${spec.id} ${shellQuote(attempt.command)}` : `${how} ${spec.id} ${seconds} ${spec.maxBytes} ${program}`;
    return attempt.unless === undefined ? call : `if ${attempt.unless}; then not_asked ${spec.id}; else ${call}; fi`;
  }

  /** The source whose output ends with this line, which arrived at `atMs` of the console's clock, and its status. */
  endOf(line: string, atMs: number): { id: string; status: number } | null {
    const m = this.#end.exec(line);
    if (!m) return null;
    this.#latestStartMs = Math.min(this.#latestStartMs, atMs - uptimeMs(m[4]!));
    return { id: m[1]!, status: Number(m[2]) };
  }
  /** The latest that the node's uptime may have been 0 by the console's clock: no line arrives before it was written. */
  #latestStartMs = Infinity;

  /** Output, mark with name, status and times in seconds of uptime, standard error, mark. The marks are random: no output can hold them. */
  parse(stdout: string, host: string, beganAtMs: number, endedAtMs: number): Map<SourceId, Collected> {
    const out = new Map<SourceId, Collected>();
    const parts = stdout.split(`\n${this.#mark}`);
    // Node and console clocks are tied by the channel: the first command began after it was asked for, and each line arrived after it was written.
    const first = Math.min(...[...stdout.matchAll(new RegExp(`\\n${this.#mark} \\w{1,40} \\d{1,3} (\\d{1,12}\\.\\d{2}) `, "g"))].map((m) => uptimeMs(m[1]!)));
    const earliestStartMs = beganAtMs - first - UPTIME_STEP_MS;
    const latestStartMs = Math.max(earliestStartMs, Math.min(this.#latestStartMs, endedAtMs - first));
    for (let i = 0; i + 1 < parts.length; i += 2) {
      const text = i === 0 ? parts[0]! : parts[i]!.replace(/^\n/, "");
      const [said, ...rest] = parts[i + 1]!.split("\n");
      const head = this.#end.exec(`${this.#mark}${said!}`);
      const item = head ? this.items.find((x) => x.spec.id === head[1]) : undefined;
      if (!head || !item) break;
      const [status, from, to] = [Number(head[2]), uptimeMs(head[3]!), uptimeMs(head[4]!)];
      const stderr = rest.join("\n");
      const { spec, attempt: { command } } = item;
      const collectedAtMs = Math.max(beganAtMs, earliestStartMs + from);
      const all = text.length > 0 ? text : stderr;
      const view = all.slice(-shownChars(spec));
      const state = stateOf(status, stderr, spec);
      const cut = Buffer.byteLength(text) >= spec.maxBytes ? 1 : 0;
      out.set(spec.id, {
        spec, text: all, beganAtMs: collectedAtMs, endedAtMs: Math.max(collectedAtMs, latestStartMs + to + UPTIME_STEP_MS), uptimeMs: from,
        view: { id: spec.id, command: shown(command, this.root), state, collectedAtMs, durationMs: Math.max(0, to - from), text: view, truncatedBytes: all.length - view.length + cut, error: state === "ok" ? null : failureOf(spec, command, status, stderr, host) },
      });
    }
    return out;
  }
}

/**
 * Forks cost most on a busy node, so the shell does what it can by itself: it reads the status and the time (uptime, since clocks jump)
 * without a program, and a `light` command, which only reads what is in memory, runs without the clock that ends others. What takes
 * seconds runs `beside` the rest and is said at the end.
 */
function runner(mark: string, batchSeconds: number): string {
  return [
    "d=$(mktemp -d /dev/shm/stepccl-diag.XXXXXX 2>/dev/null || mktemp -d) || exit 70",
    "trap 'rm -rf \"$d\"' EXIT HUP INT TERM",
    "read -r u _ </proc/uptime; u=${u%%.*}",
    `limit=$((u + ${batchSeconds}))`,
    // Name, status, beginning, end, file of standard error.
    `said() { printf '\\n%s %s %s %s %s\\n' ${mark} "$1" "$2" "$3" "$4"; [ ! -s "$5" ] || head -c 2000 "$5"; printf '\\n%s\\n' ${mark}; }`,
    "told() { read -r u _ </proc/uptime; said \"$1\" \"$2\" \"$b\" \"$u\" \"$d/e\"; }",
    // On a slow node the time of all is over before their turn comes for some: those are named, and what was read is not lost.
    "late() { read -r b _ </proc/uptime; : >\"$d/e\"; [ \"${b%%.*}\" -lt \"$limit\" ] || { told \"$1\" 124; return 1; }; }",
    `not_asked() { read -r b _ </proc/uptime; : >"$d/e"; told "$1" ${NOT_ASKED}; }`,
    "run() {",
    "  late \"$1\" || return 0",
    "  i=$1 t=$2 m=$3; shift 3",
    // Its output goes through a pipe that cuts it, its status through a file in memory.
    "  { timeout -k 2 \"$t\" \"$@\" 2>\"$d/e\" </dev/null; echo $? >\"$d/s\"; } | head -c \"$m\"",
    "  read -r s <\"$d/s\"; told \"$i\" \"$s\"",
    "}",
    "light() {",
    "  late \"$1\" || return 0",
    "  ( eval \"$2\" ) 2>\"$d/e\" </dev/null; told \"$1\" $?",
    "}",
    "beside() {",
    "  i=$1 t=$2 m=$3; shift 3; : >\"$d/$i.e\"",
    "  ( read -r b _ </proc/uptime; { timeout -k 2 \"$t\" \"$@\" 2>\"$d/$i.e\" </dev/null; echo $? >\"$d/$i.s\"; } | head -c \"$m\" >\"$d/$i.o\"; read -r s <\"$d/$i.s\"; read -r u _ </proc/uptime; echo \"$s $b $u\" >\"$d/$i.t\" ) &",
    "}",
    "collected() { read -r s b u <\"$d/$1.t\"; cat \"$d/$1.o\"; said \"$1\" \"$s\" \"$b\" \"$u\" \"$d/$1.e\"; }",
  ].join("\n");
}

/** /proc/uptime counts hundredths of a second, cut off. */
const UPTIME_STEP_MS = 10;
const uptimeMs = (text: string): number => Math.round(Number(text) * 1000);

/** What `timeout` ends with. */
const TIMED_OUT = new Set([124, 137]);
/** A command cut by `head` because it said more than is kept. */
const CUT = 141;
/** Root was not asked, since the user may read this. */
const NOT_ASKED = 79;

function stateOf(status: number, stderr: string, spec: Spec): SourceView["state"] {
  if (status === 0 || status === CUT || spec.answers?.includes(status)) return "ok";
  if (TIMED_OUT.has(status)) return "timeout";
  if (status === 127 || /command not found|not found$/m.test(stderr)) return "missing";
  if (/Operation not permitted|Permission denied|not seeing messages from other users|you must be root/i.test(stderr)) return "not_permitted";
  return "failed";
}

const failureOf = (spec: Spec, command: string, status: number, stderr: string, host: string): ErrorView =>
  ConsoleError.of("H310", { command: command.length > 60 ? spec.id : command, host, status, detail: stderr.trim().slice(0, 300) || "no output" }).view;
