import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { z } from "zod";
import { ConsoleError, Risk, toErrorView, type DiagnosisView, type FindingView, type MendOffer, type MendRunView } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import { plainLine, shellQuote } from "../../ssh/quote.js";
import { KeyedTopic } from "../../streams.js";
import { mendRuleOf } from "./offer.js";
import { outcomeOf, snapshotOf } from "./snapshot.js";

type Offer = z.infer<typeof MendOffer>;
type RunView = z.infer<typeof MendRunView>;
type Moment = NonNullable<RunView["historyUntil"]>;

export interface MendDiagnosis {
  view(nodeId: string): DiagnosisView | undefined;
  retest(nodeId: string, sourceIds: readonly string[], signal: AbortSignal): Promise<DiagnosisView>;
  settle(nodeId: string, findingId: string, until: Moment): void;
}
export interface MendsOptions {
  nodes: NodeDirectory;
  diagnosis: MendDiagnosis;
  /** What the console itself does: by the rule's `action`. */
  actions: { rejoin(nodeId: string, signal: AbortSignal): Promise<string> };
  documents: { list(): RunView[]; put(id: string, startedAtMs: number, document: RunView): void };
  /** True while the node is being brought up or taken down. */
  busy?: (nodeId: string) => boolean;
  settleMs?: number;
  onError?: (error: unknown) => void;
}

const OFFER_MS = 10 * 60_000;
/** What a diagnosis names (a rule's handle, a process) may stand for something else later. */
const FRESH_MS = 30 * 60_000;
const COMMAND_MS = 120_000;
const RETEST_MS = 240_000;
const OUTPUT_CHARS = 8000;
const MAX_OFFERS = 1000;
const PATH = "PATH=\"$PATH:/usr/sbin:/sbin:/usr/local/sbin\"; export PATH LC_ALL=C; ";

/** Applies mends: only commands that this console offered, as they were shown, by consent; then reads again and compares. */
export class Mends {
  readonly topic: KeyedTopic<RunView>;
  readonly #offers = new Map<string, { offer: Offer; finding: FindingView; before: DiagnosisView }>();
  readonly #views = new Map<string, RunView>();
  readonly #running = new Map<string, { nodeId: string; abort: AbortController; over: Promise<void> }>();

  constructor(private readonly options: MendsOptions) {
    for (const view of options.documents.list().reverse()) this.#views.set(view.id, view.endedAtMs === null ? { ...view, state: "failed", endedAtMs: view.startedAtMs, error: ConsoleError.of("H105", { detail: "the console ended while this was going on" }).view } : view);
    for (const view of this.#views.values()) if (view.state === "mended" && view.historyUntil) options.diagnosis.settle(view.nodeId, view.findingId, view.historyUntil);
    this.topic = new KeyedTopic({ list: () => this.list(), get: (id) => this.#views.get(id) });
  }

  list(): RunView[] {
    return [...this.#views.values()].reverse();
  }

  /** What would be run. Runs nothing. @throws ConsoleError H301, H601, H602 */
  offer(nodeId: string, findingId: string, mendIds: readonly string[]): Offer {
    const name = this.#name(nodeId);
    const view = this.options.diagnosis.view(nodeId);
    const gone = (detail: string): ConsoleError => ConsoleError.of("H601", { name, findingId: plainLine(findingId, 80), detail });
    if (!view) throw gone("it was not checked");
    if (view.state === "running") throw gone("the checks are going on");
    if (Date.now() - (view.endedAtMs ?? 0) > FRESH_MS) throw gone("the checks are older than half an hour");
    const finding = view.findings.find((f) => f.id === findingId);
    if (!finding) throw gone("it is not there");
    const commands = [...new Set(mendIds)].map((mendId) => {
      const mend = finding.mend.find((m) => m.id === mendId);
      if (!mend || !mendRuleOf(finding.class, mendId)) throw ConsoleError.of("H602", { mendId: plainLine(mendId, 80), name });
      return { mendId, command: mend.command, explanation: mend.explanation, risk: mend.risk };
    });
    const risk = commands.reduce<Risk>((worst, c) => (Risk.options.indexOf(c.risk) > Risk.options.indexOf(worst) ? c.risk : worst), "none");
    const offer: Offer = {
      offerId: randomUUID(), nodeId, findingId, class: finding.class, commands, risk, secondConsent: risk === "destructive" ? name : null, retest: finding.retest, expiresAtMs: Date.now() + OFFER_MS,
    };
    this.#offers.set(offer.offerId, { offer, finding, before: view });
    for (const [id] of this.#offers) if (this.#offers.size > MAX_OFFERS) this.#offers.delete(id);
    return offer;
  }

  /** Runs an offer: `commands` is the consent. @throws ConsoleError H301, H603, H604, H605, H610, H312: nothing was run */
  apply(offerId: string, commands: readonly string[], secondConsent: string | undefined): RunView {
    const kept = this.#offers.get(offerId);
    if (!kept || kept.offer.expiresAtMs < Date.now()) throw ConsoleError.of("H603");
    const { offer, finding, before } = kept;
    const name = this.#name(offer.nodeId);
    if (commands.length !== offer.commands.length || commands.some((c, i) => c !== offer.commands[i]!.command)) throw ConsoleError.of("H604");
    if (offer.secondConsent !== null && secondConsent !== offer.secondConsent) throw ConsoleError.of("H605", { expected: offer.secondConsent });
    const other = [...this.#running.entries()].find(([, r]) => r.nodeId === offer.nodeId);
    if (other) throw ConsoleError.of("H610", { name, what: this.#views.get(other[0])!.class });
    if (this.options.busy?.(offer.nodeId)) throw ConsoleError.of("H312", { host: name });
    this.#offers.delete(offerId);
    const id = `mend-${randomUUID()}`;
    this.#put({
      id, nodeId: offer.nodeId, findingId: finding.id, class: finding.class, title: finding.title, startedAtMs: Date.now(), endedAtMs: null, state: "applying",
      steps: offer.commands.map((c) => ({ ...c, state: "pending" as const, startedAtMs: null, endedAtMs: null, status: null, output: "" })),
      before: snapshotOf(before, finding, before.endedAtMs ?? before.startedAtMs), after: null, historyUntil: null, error: null,
    });
    const abort = new AbortController();
    const over = this.#carry(id, finding, abort.signal).catch((error: unknown) => this.options.onError?.(error)).finally(() => this.#running.delete(id));
    this.#running.set(id, { nodeId: offer.nodeId, abort, over });
    return this.#views.get(id)!;
  }

  /** Ends the running command; the re-test is made all the same. @throws ConsoleError H609 */
  cancel(mendRunId: string): void {
    if (!this.#views.has(mendRunId)) throw ConsoleError.of("H609", { what: "mend", id: mendRunId });
    this.#running.get(mendRunId)?.abort.abort();
  }

  async close(): Promise<void> {
    const over = [...this.#running.values()].map((r) => { r.abort.abort(); return r.over; });
    this.#closing.abort();
    await Promise.all(over);
  }
  readonly #closing = new AbortController();

  async #carry(id: string, finding: FindingView, signal: AbortSignal): Promise<void> {
    const { nodeId } = this.#views.get(id)!;
    let failure: unknown = null;
    for (const [i] of this.#views.get(id)!.steps.entries()) {
      if (failure !== null || signal.aborted) { this.#step(id, i, { state: "skipped" }); continue; }
      try {
        await this.#run(id, i, signal);
      } catch (error) {
        failure = error;
      }
    }
    const cancelled = signal.aborted;
    this.#change(id, { state: "retesting", error: failure === null || cancelled ? null : toErrorView(failure) });
    const rule = mendRuleOf(finding.class, this.#views.get(id)!.steps[0]!.mendId);
    const until = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(RETEST_MS)]);
    try {
      const historyUntil = finding.last === null ? null : await this.#newestOf(nodeId, finding.last.clock, until);
      this.#change(id, { historyUntil });
      await delay(this.options.settleMs ?? rule?.settleMs ?? 0, undefined, { signal: until });
      const after = await this.options.diagnosis.retest(nodeId, finding.retest, until);
      const outcome = outcomeOf(finding, after, historyUntil);
      if (outcome === "mended" && failure === null && !cancelled && historyUntil) this.options.diagnosis.settle(nodeId, finding.id, historyUntil);
      const state = cancelled ? "cancelled" : failure !== null && outcome !== "mended" ? "failed" : outcome;
      // What was settled just now is a note in the view as it stands.
      this.#change(id, { state, after: snapshotOf(this.options.diagnosis.view(nodeId) ?? after, finding, after.endedAtMs ?? Date.now()), endedAtMs: Date.now(), ...(state === "mended" ? { error: null } : {}) });
    } catch (error) {
      this.#change(id, { state: cancelled ? "cancelled" : failure !== null ? "failed" : "unknown", endedAtMs: Date.now(), error: failure !== null ? toErrorView(failure) : toErrorView(error) });
    }
    const view = this.#views.get(id)!;
    this.options.documents.put(id, view.startedAtMs, view);
  }

  async #run(id: string, index: number, signal: AbortSignal): Promise<void> {
    const view = this.#views.get(id)!;
    const step = view.steps[index]!;
    const rule = mendRuleOf(view.class, step.mendId)!;
    this.#step(id, index, { state: "running", startedAtMs: Date.now() });
    const say = (line: string): void => {
      const output = `${this.#views.get(id)!.steps[index]!.output}${plainLine(line, 1000)}\n`.slice(-OUTPUT_CHARS);
      this.#step(id, index, { output });
    };
    try {
      if (rule.action) {
        say(await this.options.actions[rule.action](view.nodeId, signal));
        this.#step(id, index, { state: "done", status: 0, endedAtMs: Date.now() });
        return;
      }
      const session = await this.options.nodes.session(view.nodeId, signal);
      const result = await session.execLines(`/bin/sh -c ${shellQuote(PATH + step.command)}`, (_stream, line) => say(line), { root: true, signal, timeoutMs: COMMAND_MS, maxBytes: 64 * 1024 });
      this.#step(id, index, { state: result.status === 0 ? "done" : "failed", status: result.status, endedAtMs: Date.now() });
      if (result.status !== 0) {
        const said = this.#views.get(id)!.steps[index]!.output.trim().split("\n").at(-1) ?? "";
        throw ConsoleError.of("H310", { command: plainLine(step.command, 80), host: this.#name(view.nodeId), status: result.status ?? result.signal ?? "unknown", detail: said || "no output" });
      }
    } catch (error) {
      this.#step(id, index, { state: "failed", endedAtMs: Date.now() });
      throw error;
    }
  }

  /** The newest moment of the log's own clock, as root reads it: all that stands in the log now is before it. Null where it cannot be told. */
  async #newestOf(nodeId: string, clock: string, signal: AbortSignal): Promise<Moment | null> {
    const session = await this.options.nodes.session(nodeId, signal);
    const command = "cat /proc/sys/kernel/random/boot_id; date +%s.%N; dmesg | tail -n 1";
    const { stdout } = await session.exec(`/bin/sh -c ${shellQuote(PATH + command)}`, { root: true, signal, timeoutMs: COMMAND_MS, maxBytes: 64 * 1024 });
    const said = /^([0-9a-f-]{36})\n(\d{9,12}\.\d{1,9})\n(?:\[ *(\d{1,9}\.\d{6})\])?/.exec(stdout);
    const time = clock === "wall" ? said?.[2] : clock === "uptime" ? said?.[3] : undefined;
    return time === undefined ? null : { time: Number(time), clock, bootId: said![1]! };
  }

  #name(nodeId: string): string {
    const node = this.options.nodes.get(nodeId);
    if (!node) throw ConsoleError.of("H301", { nodeId });
    return node.name;
  }
  #step(id: string, index: number, change: Partial<RunView["steps"][number]>): void {
    this.#change(id, { steps: this.#views.get(id)!.steps.map((s, i) => (i === index ? { ...s, ...change } : s)) });
  }
  #change(id: string, change: Partial<RunView>): void {
    this.#put({ ...this.#views.get(id)!, ...change });
  }
  #put(view: RunView): void {
    this.#views.set(view.id, view);
    for (const [oldest, old] of this.#views) if (this.#views.size > 500 && old.endedAtMs !== null) this.#views.delete(oldest);
    this.topic.changed(view.id);
  }
}
