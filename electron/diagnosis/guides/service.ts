import { randomUUID } from "node:crypto";
import type { z } from "zod";
import { ConsoleError, toErrorView, type DiagnosisView, type EvidenceView, type GuideRunView, type GuideStepView, type GuideView, type HangView, type PairResult, type TopologyView, type Words } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import { KeyedTopic } from "../../streams.js";
import { GUIDES, guidesFor, matches, type CheckStep, type Guide, type Step } from "./guides.js";
import { pathBetween, ringOf, type PathEnd } from "./paths.js";

type Run = z.infer<typeof GuideRunView>;
type StepState = GuideStepView["state"];

export interface GuidesOptions {
  nodes: NodeDirectory;
  diagnosis: {
    run(nodeIds: readonly string[]): { operationId: string; over: Promise<void> };
    view(nodeId: string): DiagnosisView | undefined;
  };
  cancelOperation(operationId: string): void;
  topology(signal: AbortSignal): Promise<TopologyView>;
  hangs(nodeIds: readonly string[], signal: AbortSignal): Promise<HangView>;
  verbsPing(from: string, to: string, signal: AbortSignal): Promise<PairResult>;
  onError?: (error: unknown) => void;
}

const KEPT = 100;
const words = ([en, zh]: readonly [string, string]): Words => ({ en, zh });

/** Guided checks: each run reads the nodes, answers its questions in order, and ends in cards with what was found. */
export class Guides {
  readonly topic: KeyedTopic<Run>;
  readonly #runs = new Map<string, Run>();
  readonly #aborts = new Map<string, AbortController>();

  constructor(private readonly options: GuidesOptions) {
    this.topic = new KeyedTopic({ list: () => this.runs(), get: (id) => this.#runs.get(id) });
  }

  list(): GuideView[] {
    return GUIDES.map(({ id, title, symptom, takes }) => ({ id, title: words(title), symptom: words(symptom), takes }));
  }
  for(cls: string): GuideView["id"][] {
    return guidesFor(cls);
  }
  runs(): Run[] {
    return [...this.#runs.values()].reverse();
  }

  /** @throws ConsoleError H301, H606 */
  start(guideId: Guide["id"], nodeIds: readonly string[]): Run {
    const guide = GUIDES.find((g) => g.id === guideId)!;
    const ids = [...new Set(nodeIds)];
    for (const nodeId of ids) if (!this.options.nodes.get(nodeId)) throw ConsoleError.of("H301", { nodeId });
    if (guide.takes === "pair" && ids.length !== 2) throw ConsoleError.of("H606", { guideId, takes: "two nodes" });
    if (guide.takes === "node" && ids.length !== 1) throw ConsoleError.of("H606", { guideId, takes: "one node" });
    const id = `guide-${randomUUID()}`;
    const perNode = (s: Step): (string | null)[] => (s.kind === "reach" || s.kind === "check" ? ids : [null]);
    const run: Run = {
      id, guideId, nodeIds: ids, state: "running", startedAtMs: Date.now(), endedAtMs: null, paths: [], conclusion: null, error: null,
      steps: guide.steps.flatMap((s) => perNode(s).map((nodeId) => ({ id: s.id, question: words(s.question), state: "pending" as StepState, nodeId, answer: null, evidence: [], startedAtMs: null, endedAtMs: null }))),
    };
    this.#put(run);
    const abort = new AbortController();
    this.#aborts.set(id, abort);
    void this.#carry(id, guide, abort.signal).catch((error: unknown) => {
      const cancelled = abort.signal.aborted;
      if (!cancelled && !(error instanceof ConsoleError)) this.options.onError?.(error);
      this.#change(id, { state: cancelled ? "cancelled" : "failed", endedAtMs: Date.now(), error: cancelled ? null : toErrorView(error) });
    }).finally(() => this.#aborts.delete(id));
    return this.#runs.get(id)!;
  }

  /** @throws ConsoleError H609 */
  cancel(guideRunId: string): void {
    if (!this.#runs.has(guideRunId)) throw ConsoleError.of("H609", { what: "guide run", id: guideRunId });
    this.#aborts.get(guideRunId)?.abort();
  }
  close(): void {
    for (const abort of this.#aborts.values()) abort.abort();
  }

  async #carry(id: string, guide: Guide, signal: AbortSignal): Promise<void> {
    const { nodeIds } = this.#runs.get(id)!;
    this.#steps(id, (s) => s.id === "reach", { state: "running", startedAtMs: Date.now() });
    const { operationId, over } = this.options.diagnosis.run(nodeIds);
    const stop = (): void => this.options.cancelOperation(operationId);
    signal.addEventListener("abort", stop);
    await over.finally(() => signal.removeEventListener("abort", stop));
    signal.throwIfAborted();
    const faults = new Map<string, Set<string>>();
    for (const step of guide.steps) {
      signal.throwIfAborted();
      if (step.kind === "reach") this.#reach(id, faults);
      else if (step.kind === "check") for (const nodeId of nodeIds) this.#check(id, step, nodeId, faults);
      else {
        this.#steps(id, (s) => s.id === step.id, { state: "running", startedAtMs: Date.now() });
        if (step.kind === "hangs") await this.#hangs(id, step.id, signal);
        else if (step.kind === "paths") await this.#paths(id, step.id, step.of, signal);
        else await this.#ping(id, step.id, signal);
      }
    }
    this.#conclude(id, guide);
  }

  #reach(id: string, faults: Map<string, Set<string>>): void {
    for (const nodeId of this.#runs.get(id)!.nodeIds) {
      const view = this.options.diagnosis.view(nodeId);
      const failed = view?.error ?? null;
      if (failed) faults.set(nodeId, new Set(["reach"]));
      this.#settle(id, "reach", nodeId, failed ? "fault" : "ok", failed ? { en: `${failed.code}: ${failed.message} ${failed.next}`, zh: `${failed.code}: ${failed.message} ${failed.next}` } : { en: "It answers over SSH.", zh: "可通过 SSH 访问。" });
    }
  }

  #check(id: string, step: CheckStep, nodeId: string, faults: Map<string, Set<string>>): void {
    const mine = faults.get(nodeId) ?? new Set<string>();
    const before = ["reach", ...(step.after ?? [])].find((s) => mine.has(s));
    if (before !== undefined) { this.#settle(id, step.id, nodeId, "skipped", { en: "What was found before explains this.", zh: "之前的发现已能解释。" }); return; }
    const view = this.options.diagnosis.view(nodeId)!;
    const found = view.findings.filter((f) => f.severity !== "info" && matches(step.classes, f.class));
    if (found.length > 0) {
      faults.set(nodeId, new Set([...mine, step.id]));
      const rest = found.length > 1 ? [` (+${found.length - 1})`, `（另有 ${found.length - 1} 项）`] as const : ["", ""] as const;
      this.#settle(id, step.id, nodeId, "fault", { en: found[0]!.title.en + rest[0], zh: found[0]!.title.zh + rest[1] }, found[0]!.evidence);
      return;
    }
    const open = view.cannotTell.filter((c) => matches(step.classes, c.class));
    if (open.length > 0) {
      const missing = [...new Set(open.flatMap((c) => c.missing))].slice(0, 6).join(", ");
      this.#settle(id, step.id, nodeId, "cannot_tell", { en: `Cannot tell: ${missing} could not be read.`, zh: `无法判断：未能读取 ${missing}。` });
      return;
    }
    const proof = (step.shows ?? []).flatMap(({ source, lines }): EvidenceView[] => {
      const from = view.sources.find((s) => s.id === source && s.state === "ok");
      const line = from?.text.split("\n").findIndex((l) => lines.test(l)) ?? -1;
      return line < 0 ? [] : [{ source, line: from!.text.split("\n")[line]!.trim().slice(0, 400), lineNumber: from!.truncatedBytes === 0 ? line + 1 : null, meaning: null }];
    });
    this.#settle(id, step.id, nodeId, "ok", words(step.fine), proof);
  }

  async #hangs(id: string, stepId: string, signal: AbortSignal): Promise<void> {
    const view = await this.options.hangs(this.#runs.get(id)!.nodeIds, signal);
    const bad = view.groups.filter((g) => g.verdict === "hang" || g.verdict === "mismatch" || g.verdict === "failed");
    if (bad.length > 0) {
      const at = bad[0]!.ranks.filter((r) => bad[0]!.culprits.includes(r.rank));
      this.#settle(id, stepId, null, "fault", bad[0]!.text, at.slice(0, 4).map((r) => ({ source: "recorder", line: `rank ${r.rank} on ${r.host || r.nodeId || "?"} pid ${r.pid ?? "?"}: last completed ${r.lastCompleted ?? "none"}, ${r.current ? `${r.current.collective} ${r.current.sequence} ${r.current.state}` : "not in an operation"}`, lineNumber: null, meaning: null })));
    } else if (view.groups.length === 0) this.#settle(id, stepId, null, "cannot_tell", view.unread.length > 0 ? { en: `No recording could be read: ${view.unread[0]!.error.message}`, zh: `未能读取记录：${view.unread[0]!.error.message}` } : { en: "No rank of StepCCL runs on these nodes, or has run in the last hour.", zh: "这些节点上没有 StepCCL 进程，或一小时内没有运行过。" });
    else this.#settle(id, stepId, null, "ok", view.groups[0]!.text);
  }

  async #paths(id: string, stepId: string, of: "gpudirect" | "ring", signal: AbortSignal): Promise<void> {
    const ends = this.#runs.get(id)!.nodeIds.flatMap((nodeId): PathEnd[] => { const node = this.options.nodes.get(nodeId); return node ? [{ node, diagnosis: this.options.diagnosis.view(nodeId) }] : []; });
    const { links } = await this.options.topology(signal);
    const { pairs, medianRttUs } = ringOf(ends, links);
    const paths = pairs.map(([a, b]) => pathBetween(a, b, links, of, medianRttUs));
    this.#change(id, { paths });
    const broken = paths.find((p) => p.firstBroken !== null);
    const element = broken?.elements[broken.firstBroken!];
    const unknown = paths.some((p) => p.elements.some((e) => e.state === "unknown"));
    if (element) this.#settle(id, stepId, null, "fault", { en: `${element.label}: ${element.rule.en}`, zh: `${element.label}：${element.rule.zh}` }, element.evidence);
    else this.#settle(id, stepId, null, unknown ? "cannot_tell" : "ok", unknown ? { en: "No element breaks a rule, but some could not be judged.", zh: "没有发现违规的一环，但有些无法判断。" } : { en: "Every element keeps its rule.", zh: "每一环都满足条件。" });
  }

  async #ping(id: string, stepId: string, signal: AbortSignal): Promise<void> {
    const run = this.#runs.get(id)!;
    if (run.steps.some((s) => s.state === "fault")) { this.#settle(id, stepId, null, "skipped", { en: "What was found before explains this.", zh: "之前的发现已能解释。" }); return; }
    const result = await this.options.verbsPing(run.nodeIds[0]!, run.nodeIds[1]!, signal);
    const ok = result.state === "ok";
    this.#settle(id, stepId, null, ok ? "ok" : result.state === "failed" ? "fault" : "cannot_tell", result.text ?? { en: ok ? "It passes." : "It could not be made.", zh: ok ? "通过。" : "无法进行。" }, result.evidence);
  }

  #conclude(id: string, guide: Guide): void {
    const run = this.#runs.get(id)!;
    const asked = guide.steps.flatMap((s) => (s.kind === "check" ? s.classes : []));
    const order = (cls: string): number => { const i = guide.steps.findIndex((s) => s.kind === "check" && matches(s.classes, cls)); return i < 0 ? guide.steps.length : i; };
    const onPath = new Set(run.paths.flatMap((p) => (p.firstBroken === null ? [] : [p.elements[p.firstBroken]!.class ?? ""])));
    const cards = run.nodeIds.flatMap((nodeId) => (this.options.diagnosis.view(nodeId)?.findings ?? []).filter((f) => f.severity !== "info" && f.consequenceOf === null).map((finding) => ({ nodeId, finding })))
      .filter(({ finding }) => matches(asked, finding.class) || onPath.has(finding.class) || finding.severity === "critical")
      .sort((a, b) => Number(b.finding.severity === "critical") - Number(a.finding.severity === "critical") || order(a.finding.class) - order(b.finding.class)).slice(0, 32);
    const faults = run.steps.filter((s) => s.state === "fault");
    const open = run.steps.filter((s) => s.state === "cannot_tell");
    const verdict = faults.length > 0 || cards.length > 0 ? "cause_found" : open.length > 0 ? "cannot_tell" : "not_found";
    const text: Words = verdict === "cause_found" ? faults[0]?.answer ?? cards[0]!.finding.title
      : verdict === "cannot_tell" ? { en: `Nothing was found, but ${open.length} of ${run.steps.length} checks could not be made.`, zh: `没有发现问题，但 ${run.steps.length} 项检查中有 ${open.length} 项无法进行。` }
        : { en: "Every check is fine: the cause lies outside what this guide looks at.", zh: "所有检查均正常：原因不在本向导的检查范围内。" };
    this.#change(id, { state: "done", endedAtMs: Date.now(), conclusion: { verdict, text, cards } });
  }

  #settle(id: string, stepId: string, nodeId: string | null, state: StepState, answer: Words, evidence: readonly EvidenceView[] = []): void {
    this.#steps(id, (s) => s.id === stepId && s.nodeId === nodeId, { state, answer, evidence: evidence.slice(0, 4), endedAtMs: Date.now() });
  }
  #steps(id: string, which: (step: GuideStepView) => boolean, change: Partial<GuideStepView>): void {
    this.#change(id, { steps: this.#runs.get(id)!.steps.map((s) => (which(s) ? { ...s, startedAtMs: s.startedAtMs ?? change.startedAtMs ?? Date.now(), ...change } : s)) });
  }
  #change(id: string, change: Partial<Run>): void {
    this.#put({ ...this.#runs.get(id)!, ...change });
  }
  #put(run: Run): void {
    this.#runs.set(run.id, run);
    for (const [oldest, old] of this.#runs) if (this.#runs.size > KEPT && old.endedAtMs !== null) this.#runs.delete(oldest);
    this.topic.changed(run.id);
  }
}
