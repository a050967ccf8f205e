import { randomBytes } from "node:crypto";
import { ConsoleError, toErrorView, type ErrorView, type SourceView } from "../contract/index.js";
import type { NodeSession } from "../ssh/types.js";
import { shellQuote } from "../ssh/quote.js";
import type { SourceId, Spec } from "./sources.js";

/** A source as it was read: what the page gets, and the whole text for the rules. */
export interface Collected {
  spec: Spec | null;
  view: SourceView;
  text: string;
  /** The console's clock just before and after the command ran, in ms. */
  beganAtMs: number;
  endedAtMs: number;
}
export type CollectedSources = ReadonlyMap<SourceId, Collected>;

const PATH = "PATH=\"$PATH:/usr/sbin:/sbin:/usr/local/sbin\"; export PATH LC_ALL=C; ";
/** What the page gets of a source; the end of a log is what matters. All of a node's sources fit into one message of the wire. */
const shownChars = (spec: Spec): number => (spec.maxBytes > 256 * 1024 ? 24 : 8) * 1024;
/** Time for the shell and the channel around the commands. */
const OVERHEAD_MS = 30_000;
/** The longest that one channel may take for all its commands. */
const MAX_BATCH_MS = 150_000;

/**
 * Reads every source; one that cannot be read says why, and never holds up another. What is quick goes in one command for all,
 * since a channel costs more than most of them. A source is tried as the user first; who fails is tried again as its next attempt says,
 * as root where that is named. Rejects only with H104.
 */
export async function collect(session: NodeSession, specs: readonly Spec[], signal: AbortSignal, onSource: (source: Collected) => void = () => {}): Promise<CollectedSources> {
  const results = new Map<SourceId, Collected>();
  const settle = (source: Collected, id: SourceId): void => { results.set(id, source); onSource(source); };
  let pending: { spec: Spec; attempt: number }[] = specs.map((spec) => ({ spec, attempt: 0 }));
  while (pending.length > 0) {
    if (signal.aborted) throw ConsoleError.of("H104");
    const alone = pending.filter((p) => p.spec.alone === true).map((p) => [p]);
    const rest = pending.filter((p) => p.spec.alone !== true);
    const batches = [...alone, rest.filter((p) => isRoot(p) === false), rest.filter((p) => isRoot(p))].filter((b) => b.length > 0);
    const next: typeof pending = [];
    await Promise.all(batches.map(async (batch) => {
      const read = await runBatch(session, batch.map((p) => ({ spec: p.spec, command: p.spec.attempts[p.attempt]!.command })), isRoot(batch[0]!), signal);
      for (const p of batch) {
        const source = read.get(p.spec.id)!;
        const last = p.attempt + 1 >= p.spec.attempts.length;
        if (source.view.state === "ok" || source.view.state === "timeout" || last) settle(source, p.spec.id);
        else next.push({ spec: p.spec, attempt: p.attempt + 1 });
      }
    }));
    pending = next;
  }
  return results;
}

function isRoot(p: { spec: Spec; attempt: number }): boolean {
  return p.spec.attempts[p.attempt]?.root === true;
}

interface Item { spec: Spec; command: string }

/** One shell that runs all commands, each with its own time limit and its output cut, and marks where each one's output ends. */
function script(items: readonly Item[], mark: string, batchMs: number): string {
  const runs = items.map(({ spec, command }) => {
    const seconds = Math.ceil(spec.timeoutMs / 1000);
    return spec.light === true ? `light ${spec.id} ${shellQuote(command)}` : `run ${spec.id} ${seconds} ${spec.maxBytes} ${shellQuote(command)}`;
  });
  return [PATH, runner(mark, Math.ceil(batchMs / 1000)), ...runs].join("\n");
}

/**
 * Forks cost most on a busy node, so the shell does what it can by itself: it reads the status and the time (uptime, since clocks jump)
 * without a program, and a `light` command, which only reads files in memory, runs without the clock that ends others.
 */
function runner(mark: string, batchSeconds: number): string {
  return [
    "d=$(mktemp -d /dev/shm/stepccl-diag.XXXXXX 2>/dev/null || mktemp -d) || exit 70",
    "trap 'rm -rf \"$d\"' EXIT HUP INT TERM",
    // On a slow node the time of all is over before their turn comes for some: those are named, and what was read is not lost.
    "read -r u _ </proc/uptime; u=${u%%.*}",
    `limit=$((u + ${batchSeconds}))`,
    `told() { read -r u _ </proc/uptime; printf '\\n%s %s %s %s %s\\n' ${mark} "$1" "$2" "$b" "$u"; [ ! -s "$d/e" ] || head -c 2000 "$d/e"; printf '\\n%s\\n' ${mark}; }`,
    `late() { read -r b _ </proc/uptime; : >"$d/e"; [ "\${b%%.*}" -lt "$limit" ] || { told "$1" 124; return 1; }; }`,
    "run() {",
    "  late \"$1\" || return 0",
    // Its output goes through a pipe that cuts it, its status through a file in memory.
    "  { timeout -k 2 \"$2\" sh -c \"$4\" 2>\"$d/e\" </dev/null; echo $? >\"$d/s\"; } | head -c \"$3\"",
    "  read -r s <\"$d/s\"; told \"$1\" \"$s\"",
    "}",
    "light() {",
    "  late \"$1\" || return 0",
    "  ( eval \"$2\" ) 2>\"$d/e\" </dev/null; told \"$1\" $?",
    "}",
  ].join("\n");
}

async function runBatch(session: NodeSession, items: readonly Item[], root: boolean, signal: AbortSignal): Promise<Map<SourceId, Collected>> {
  const mark = `@@${randomBytes(12).toString("hex")}`;
  const beganAtMs = Date.now();
  const out = new Map<SourceId, Collected>();
  const batchMs = Math.min(MAX_BATCH_MS, items.reduce((sum, i) => sum + i.spec.timeoutMs, 0));
  const maxBytes = items.reduce((sum, i) => sum + i.spec.maxBytes + 4096, 0);
  let failure: ErrorView | null = null;
  try {
    // By standard input: a long command line would show in the node's process list, and has a limit.
    const result = await session.exec("sh -s", { signal, timeoutMs: batchMs + OVERHEAD_MS, maxBytes, stdin: script(items, mark, batchMs), ...(root ? { root: true } : {}) });
    parse(result.stdout, mark, items, { host: session.nodeId, root, beganAtMs, endedAtMs: Date.now() }, out);
    if (out.size < items.length) failure = ConsoleError.of("H310", { command: "sh -s", host: session.nodeId, status: result.status ?? result.signal ?? "unknown", detail: result.stderr.trim().slice(0, 300) || "the output ended early" }).view;
  } catch (error) {
    if (signal.aborted) throw ConsoleError.of("H104");
    failure = toErrorView(error);
  }
  for (const { spec, command } of items) {
    if (out.has(spec.id)) continue;
    const state = failure?.code === "H209" ? "timeout" : failure?.code === "H303" ? "not_permitted" : "failed";
    out.set(spec.id, { spec, text: "", beganAtMs, endedAtMs: Date.now(), view: { id: spec.id, command: shown(command, root), state, collectedAtMs: beganAtMs, durationMs: Date.now() - beganAtMs, text: "", truncatedBytes: 0, error: failure } });
  }
  return out;
}

function shown(command: string, root: boolean): string {
  return root ? `sudo ${command}` : command;
}

/** Output, mark with name, status and times in seconds of uptime, standard error, mark. The marks are random: no output can hold them. */
function parse(stdout: string, mark: string, items: readonly Item[], channel: { host: string; root: boolean; beganAtMs: number; endedAtMs: number }, out: Map<SourceId, Collected>): void {
  const { host, root, beganAtMs, endedAtMs } = channel;
  const parts = stdout.split(`\n${mark}`);
  // Node and console clocks are tied by the channel: the first command began after it was asked for, the last ended before it closed.
  const times = [...stdout.matchAll(new RegExp(`\\n${mark} \\w{1,40} \\d{1,3} (\\d{1,12}\\.\\d{2}) (\\d{1,12}\\.\\d{2})\\n`, "g"))];
  const nodeStartMs = times[0] ? uptimeMs(times[0][1]!) : 0;
  const nodeEndMs = times.length > 0 ? uptimeMs(times.at(-1)![2]!) : 0;
  const slackMs = Math.max(0, endedAtMs - beganAtMs - (nodeEndMs - nodeStartMs));
  for (let i = 0; i + 2 < parts.length + 1; i += 2) {
    const text = i === 0 ? parts[0]! : parts[i]!.replace(/^\n/, "");
    const head = /^ (\w{1,40}) (\d{1,3}) (\d{1,12}\.\d{2}) (\d{1,12}\.\d{2})\n/.exec(parts[i + 1] ?? "");
    const item = head ? items.find((x) => x.spec.id === head[1]) : undefined;
    if (!head || !item) break;
    const stderr = parts[i + 1]!.slice(head[0].length);
    const status = Number(head[2]);
    const from = uptimeMs(head[3]!);
    const to = uptimeMs(head[4]!);
    const collectedAtMs = beganAtMs + Math.max(0, from - nodeStartMs);
    const { spec, command } = item;
    const all = text.length > 0 ? text : stderr;
    const view = all.slice(-shownChars(spec));
    const state = stateOf(status, stderr, spec);
    const cut = Buffer.byteLength(text) >= spec.maxBytes ? 1 : 0;
    out.set(spec.id, {
      spec, text: all, beganAtMs: collectedAtMs, endedAtMs: collectedAtMs + Math.max(0, to - from) + slackMs,
      view: { id: spec.id, command: shown(command, root), state, collectedAtMs, durationMs: Math.max(0, to - from), text: view, truncatedBytes: all.length - view.length + cut, error: state === "ok" ? null : failureOf(spec, command, status, stderr, host) },
    });
  }
}

const uptimeMs = (text: string): number => Math.round(Number(text) * 1000);

/** What `timeout` ends with. */
const TIMED_OUT = new Set([124, 137]);
/** A command cut by `head` because it said more than is kept. */
const CUT = 141;

function stateOf(status: number, stderr: string, spec: Spec): SourceView["state"] {
  if (status === 0 || status === CUT || spec.answers?.includes(status)) return "ok";
  if (TIMED_OUT.has(status)) return "timeout";
  if (status === 127 || /command not found|not found$/m.test(stderr)) return "missing";
  if (/Operation not permitted|Permission denied|not seeing messages from other users|you must be root/i.test(stderr)) return "not_permitted";
  return "failed";
}

const failureOf = (spec: Spec, command: string, status: number, stderr: string, host: string): ErrorView =>
  ConsoleError.of("H310", { command: command.length > 60 ? spec.id : command, host, status, detail: stderr.trim().slice(0, 300) || "no output" }).view;
