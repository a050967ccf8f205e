import { ConsoleError, toErrorView, type ErrorView, type SourceView } from "../contract/index.js";
import type { ExecResult, NodeSession } from "../ssh/types.js";
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
/** What the page gets of a source; the end of a log is what matters. */
const SHOWN_CHARS = 24 * 1024;
/** Sessions that a diagnosis takes of the connection's eight. */
const CONCURRENCY = 4;

/** Reads every source; one that cannot be read says why, and never holds up another. Rejects only with H104. */
export async function collect(session: NodeSession, specs: readonly Spec[], signal: AbortSignal, onSource: (source: Collected) => void = () => {}): Promise<CollectedSources> {
  const results = new Map<SourceId, Collected>();
  const queue = [...specs];
  const worker = async (): Promise<void> => {
    for (let spec = queue.shift(); spec; spec = queue.shift()) {
      if (signal.aborted) throw ConsoleError.of("H104");
      const source = await read(session, spec, signal);
      results.set(spec.id, source);
      onSource(source);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return results;
}

async function read(session: NodeSession, spec: Spec, signal: AbortSignal): Promise<Collected> {
  let last: Collected | undefined;
  for (const attempt of spec.attempts) {
    last = await tryOnce(session, spec, attempt, signal);
    if (last.view.state === "ok" || last.view.state === "timeout") return last;
  }
  return last!;
}

async function tryOnce(session: NodeSession, spec: Spec, attempt: { command: string; root?: boolean }, signal: AbortSignal): Promise<Collected> {
  const beganAtMs = Date.now();
  const base = { id: spec.id, command: attempt.root ? `sudo ${attempt.command}` : attempt.command, collectedAtMs: beganAtMs };
  try {
    const result = await session.exec(PATH + attempt.command, { signal, timeoutMs: spec.timeoutMs, maxBytes: spec.maxBytes, ...(attempt.root ? { root: true } : {}) });
    const text = result.stdout.length > 0 ? result.stdout : result.stderr;
    const shown = text.slice(-SHOWN_CHARS);
    const state = stateOf(result, spec);
    return {
      spec,
      view: {
        ...base, state, durationMs: result.durationMs, text: shown, truncatedBytes: text.length - shown.length + result.droppedBytes,
        error: state === "ok" ? null : failureOf(spec, attempt.command, result, session.nodeId),
      },
      text, beganAtMs, endedAtMs: Date.now(),
    };
  } catch (error) {
    if (signal.aborted) throw ConsoleError.of("H104");
    const view = toErrorView(error);
    const state = view.code === "H209" ? "timeout" : view.code === "H303" ? "not_permitted" : "failed";
    return { spec, view: { ...base, state, durationMs: Date.now() - beganAtMs, text: "", truncatedBytes: 0, error: view }, text: "", beganAtMs, endedAtMs: Date.now() };
  }
}

function stateOf(result: ExecResult, spec: Spec): SourceView["state"] {
  if (result.status === 0 || (result.status !== null && spec.answers?.includes(result.status))) return "ok";
  const said = result.stderr.slice(0, 4096);
  if (result.status === 127 || /command not found|not found$/m.test(said)) return "missing";
  if (/Operation not permitted|Permission denied|not seeing messages from other users/i.test(said)) return "not_permitted";
  return "failed";
}

const failureOf = (spec: Spec, command: string, result: ExecResult, host: string): ErrorView =>
  ConsoleError.of("H310", { command: command.length > 60 ? spec.id : command, host, status: result.status ?? result.signal ?? "unknown", detail: result.stderr.trim().slice(0, 300) || "no output" }).view;
