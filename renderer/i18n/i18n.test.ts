import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { AckReason, AckState, AdviceReason, AlertRule, BRING_UP_STEPS, Collective, GuideRunView, GuideStepView, GuideView, HangGroup, HistoryMetric, HOST_ERRORS, HostKeyView, MendRunView, NodePhase, NodeView, OperationView, PairResult, PairTestKind, PairTestView, PathElement, PoolRangeKind, RecordedRank, RedactionKind, Risk, RunView, SettingName, Severity, SourceView, StepState, TopologyRef, Verdict } from "../../electron/contract/index.js";
import { PAGE_ERRORS } from "../client/page-error.js";
import { LEFT_OUT } from "../diagnose/fleet/plan.js";
import { ENTRY_STATES } from "../diagnose/fleet/mender.js";
import { VIEWS } from "../diagnose/store.js";
import en from "./en.json";
import { createI18n, englishErrors, initialLanguage } from "./index.js";
import zh from "./zh-CN.json";

type Tree = { [key: string]: string | Tree };
const leaves = (tree: Tree, at = ""): Map<string, string> =>
  new Map(Object.entries(tree).flatMap(([key, value]) => (typeof value === "string" ? [[`${at}${key}`, value] as const] : [...leaves(value, `${at}${key}.`)])));
/** English has two plural forms, Chinese one. */
const stem = (key: string): string => key.replace(/_(one|other)$/, "");
const english = leaves({ ...en, errors: englishErrors() } as Tree);
const chinese = leaves(zh as Tree);
/** Codes of the daemon, the runtime and the driver come with English texts of their own. */
const foreign = (key: string): boolean => /^errors\.(A|R|DE)\d/.test(key);
const placeholders = (text: string): string[] => [...text.matchAll(/\{\{(\w+)\}\}/g)].map((match) => match[1]!).sort();

const root = join(import.meta.dirname, "..");
const sources = (readdirSync(root, { recursive: true }) as string[])
  .filter((path) => /\.tsx?$/.test(path) && !/\.test\.tsx?$/.test(path) && !path.startsWith("dev"))
  .map((path) => readFileSync(join(root, path), "utf8")).join("\n");

describe("texts", () => {
  it("exist in both languages under the same keys", () => {
    const stems = (keys: Iterable<string>) => [...new Set([...keys].filter((key) => !foreign(key)).map(stem))].sort();
    expect(stems(chinese.keys())).toEqual(stems(english.keys()));
  });
  it("have the same placeholders in both", () => {
    const byStem = new Map([...english].map(([key, text]) => [stem(key), placeholders(text)]));
    for (const [key, text] of chinese) {
      if (foreign(key)) continue;
      const missing = placeholders(text).filter((name) => !byStem.get(stem(key))!.includes(name));
      expect(missing, key).toEqual([]);
    }
  });
  it("are there for every literal key in the code", () => {
    const used = [...sources.matchAll(/\bt\(\s*"([a-zA-Z_.]+)"/g)].map((match) => match[1]!);
    const known = new Set([...english.keys()].map(stem));
    expect(used.length).toBeGreaterThan(250);
    expect([...new Set(used)].filter((key) => !known.has(key))).toEqual([]);
  });
  it("are there for every value that the code puts into a key", () => {
    const known = new Set([...english.keys()].map(stem));
    const values: Record<string, readonly string[]> = {
      phases: NodePhase.options, hostKeyStates: HostKeyView.shape.status.options, agentStates: NodeView.shape.agent.shape.state.options, connectionStates: NodeView.shape.connection.shape.state.options,
      authKinds: NodeView.shape.authKind.options, operations: OperationView.shape.kind.options, partStates: OperationView.shape.nodes.element.shape.state.options, stepStates: StepState.options,
      steps: BRING_UP_STEPS, ops: Collective.options, runStates: RunView.shape.state.options, rankStates: RunView.shape.ranks.element.shape.state.options, severities: Severity.options,
      sourceStates: SourceView.shape.state.options, risks: Risk.options, verdicts: Verdict.options, mendStates: MendRunView.shape.state.options, "diagnose.view": VIEWS, "fleet.leftOut": LEFT_OUT, "fleet.states": ENTRY_STATES, redactions: RedactionKind.options,
      pairKinds: PairTestKind.options, pairStates: PairResult.shape.state.options, pairTestStates: PairTestView.shape.state.options, "pairs.samplings": PairTestView.shape.sampling.options, "pairs.metrics": ["latency", "bandwidth"], "pairs.forms": ["matrix", "table"],
      "guides.takes": GuideView.shape.takes.options, "guides.states": GuideRunView.shape.state.options, "guides.steps": GuideStepView.shape.state.options, "guides.elements": PathElement.shape.state.options,
      "guides.verdicts": ["cause_found", "not_found", "cannot_tell"], "guides.kinds": TopologyRef.options.map((option) => option.shape.kind.value),
      "hangs.verdicts": HangGroup.shape.verdict.options, "hangs.ranks": RecordedRank.shape.verdict.options, "hangs.cells": ["completed", "queued", "started", "failed", "not_reached", "unknown"], linkStates: ["up", "down", "unknown"], colorSchemes: ["auto", "light", "dark"], ageUnits: ["s", "min", "h", "d"],
      "form.problems": ["minSize", "maxSize", "order", "stepFactor", "iterations", "warmup", "timeout", "ranksPerNode", "ranks", "noNodes", "shmOneNode", "root"],
      "alerts.rules": AlertRule.options, "alerts.about": AlertRule.options, "alerts.metrics": HistoryMetric.options, "alerts.spans": ["hour", "day", "week"], "alerts.columns": ["state", "rule", "node", "worst", "count", "since", "duration", "acts"],
      "memory.columns": ["node", "gpu", "process", "capacity", "held", "used", "largest", "fragmentation", "defrag", "async", "age"], "memory.hostColumns": ["node", "total", "available", "used", "daemon", "age"],
      "memory.kinds": [...PoolRangeKind.options, "none"], "memory.async": ["none", "stream", "nic"], "memory.acks": AckState.options, "memory.why": AckReason.options, "settings.acks": AckState.options,
      "settings.names": SettingName.options, "settings.about": SettingName.options, "settings.reasons": AdviceReason.options,
      form: ["ranksPerNode", "stepFactor", "iterations", "warmup", "timeoutSeconds"], nodes: ["takeDown", "takeDownTitle", "takeDownText", "forget", "forgetTitle", "forgetText"],
    };
    for (const [prefix, list] of Object.entries(values)) for (const value of list) expect(known, `${prefix}.${value}`).toContain(`${prefix}.${value}`);
    // A new dynamic key must be added above.
    const dynamic = new Set([...sources.matchAll(/\bt\(`([a-zA-Z.]+?)\.?\$\{/g)].map((match) => match[1]!.replace(/\.$/, "")));
    const covered = new Set([...Object.keys(values), "pages", "shortcuts", "topology.columns", "run.history", "ageUnits", "add.problems", "steps", "errors"]);
    expect([...dynamic].filter((prefix) => !covered.has(prefix))).toEqual([]);
  });
  it("give every error code of host and page a Chinese sentence and a next step", () => {
    for (const code of Object.keys({ ...HOST_ERRORS, ...PAGE_ERRORS })) {
      for (const part of ["message", "next"]) expect(chinese.get(`errors.${code}.${part}`), `${code}.${part}`).toMatch(/[\u4e00-\u9fff]/);
    }
  });
  it("count in each language's own way", () => {
    const i18n = createI18n("en");
    expect([i18n.t("nodes.bringUpCount", { count: 1 }), i18n.t("nodes.bringUpCount", { count: 3 })]).toEqual(["Bring up 1 node", "Bring up 3 nodes"]);
    expect(i18n.getFixedT("zh-CN")("nodes.bringUpCount", { count: 1 })).toBe("上线 1 个节点");
  });
  it("follow the browser until the person chooses", () => {
    const kept = (value: string | null) => ({ getItem: () => value });
    expect(initialLanguage(kept(null), ["zh-TW", "en"])).toBe("zh-CN");
    expect(initialLanguage(kept(null), ["de", "en-GB", "zh"])).toBe("en");
    expect(initialLanguage(kept("zh-CN"), ["en"])).toBe("zh-CN");
    expect(initialLanguage(kept("xx"), [])).toBe("en");
  });
});
