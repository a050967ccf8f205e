import { ConsoleError, toErrorView, type ErrorView, type SourceView } from "../contract/index.js";
import type { NodeSession } from "../ssh/types.js";
import { Batch, shown } from "./collect-shell.js";
import type { SourceId, Spec } from "./sources.js";

/** A source as it was read: what the page gets, and the whole text for the rules. */
export interface Collected {
  spec: Spec | null;
  view: SourceView;
  text: string;
  /** The console's clock just before and after the command ran, in ms. */
  beganAtMs: number;
  endedAtMs: number;
  /** The node's uptime as the command began, in ms; null where it did not run. */
  uptimeMs: number | null;
}
export type CollectedSources = ReadonlyMap<SourceId, Collected>;

/** Time for the shell and the channel around the commands. */
const OVERHEAD_MS = 30_000;

interface Pending { spec: Spec; attempt: number }
const isRoot = (p: Pending): boolean => p.spec.attempts[p.attempt]?.root === true;

/**
 * Reads every source; one that cannot be read says why, and never holds up another. All of the user's go in one channel and all of
 * root's in another, since a channel costs more than most commands. A source is tried as the user first; who fails is tried again as
 * its next attempt says, as root where that is named. `onSource` is told as each becomes known. Rejects only with H104.
 */
export async function collect(session: NodeSession, specs: readonly Spec[], signal: AbortSignal, onSource: (id: SourceId) => void = () => {}): Promise<CollectedSources> {
  const results = new Map<SourceId, Collected>();
  const told = new Set<SourceId>();
  const tell = (id: SourceId): void => { if (!told.has(id)) { told.add(id); onSource(id); } };
  let pending: Pending[] = specs.map((spec) => ({ spec, attempt: 0 }));
  // What root alone reads on most nodes is asked for at once: a second channel as root would cost more than the command.
  const early = specs.flatMap((spec): Pending[] => spec.attempts.flatMap((a, attempt) => (attempt > 0 && a.unless !== undefined ? [{ spec, attempt }] : [])));
  for (let pass = 0; pending.length > 0; pass++) {
    if (signal.aborted) throw ConsoleError.of("H104");
    const asked = pass === 0 ? [...pending, ...early] : pending;
    const batches = [asked.filter((p) => !isRoot(p)), asked.filter(isRoot)].filter((b) => b.length > 0);
    const read = new Map<Pending, Collected>();
    await Promise.all(batches.map(async (batch) => {
      const answers = await runBatch(session, batch, signal, (p, ok) => { if (ok || p.attempt + 1 === p.spec.attempts.length) tell(p.spec.id); });
      for (const p of batch) read.set(p, answers.get(p.spec.id)!);
    }));
    const next: Pending[] = [];
    for (const p of pending) {
      const ahead = pass === 0 ? early.find((e) => e.spec === p.spec) : undefined;
      const tries = ahead ? [p, ahead] : [p];
      const source = tries.map((t) => read.get(t)!).find((s) => s.view.state === "ok" || s.view.state === "timeout") ?? read.get(tries.at(-1)!)!;
      const nextAttempt = tries.at(-1)!.attempt + 1;
      if (source.view.state === "ok" || source.view.state === "timeout" || nextAttempt >= p.spec.attempts.length) { results.set(p.spec.id, source); tell(p.spec.id); }
      else next.push({ spec: p.spec, attempt: nextAttempt });
    }
    pending = next;
  }
  return new Map(specs.map((spec) => [spec.id, results.get(spec.id)!]));
}

async function runBatch(session: NodeSession, items: readonly Pending[], signal: AbortSignal, onItem: (item: Pending, ok: boolean) => void): Promise<Map<SourceId, Collected>> {
  const root = isRoot(items[0]!);
  const beganAtMs = Date.now();
  const batch = new Batch(items.map((p) => ({ spec: p.spec, attempt: p.spec.attempts[p.attempt]! })), root);
  let out = new Map<SourceId, Collected>();
  let failure: ErrorView | null = null;
  try {
    // By standard input: a long command line would show in the node's process list, and has a limit.
    const result = await session.execLines("sh -s", (stream, line) => {
      const end = stream === "stdout" ? batch.endOf(line, Date.now()) : null;
      const item = end && items.find((p) => p.spec.id === end.id);
      if (item) onItem(item, end!.status === 0);
    }, { signal, timeoutMs: batch.timeoutMs + OVERHEAD_MS, maxBytes: batch.maxBytes, stdin: batch.script, ...(root ? { root: true } : {}) });
    out = batch.parse(result.stdout, session.nodeId, beganAtMs, Date.now());
    if (out.size < items.length) failure = ConsoleError.of("H310", { command: "sh -s", host: session.nodeId, status: result.status ?? result.signal ?? "unknown", detail: result.stderr.trim().slice(0, 300) || "the output ended early" }).view;
  } catch (error) {
    if (signal.aborted) throw ConsoleError.of("H104");
    failure = toErrorView(error);
  }
  for (const { spec, attempt } of items) {
    if (out.has(spec.id)) continue;
    const state = failure?.code === "H209" ? "timeout" : failure?.code === "H303" ? "not_permitted" : "failed";
    out.set(spec.id, { spec, text: "", beganAtMs, endedAtMs: Date.now(), uptimeMs: null, view: { id: spec.id, command: shown(spec.attempts[attempt]!.command, root), state, collectedAtMs: beganAtMs, durationMs: Date.now() - beganAtMs, text: "", truncatedBytes: 0, error: failure } });
  }
  return out;
}
