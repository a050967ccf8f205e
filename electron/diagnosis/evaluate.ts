import type { DiagnosisView, FindingView } from "../contract/index.js";
import type { NodeSources } from "./facts.js";
import { clusterRules, type ClusterNode } from "./rules/cluster.js";
import { daemonRules } from "./rules/daemon.js";
import { driverRules } from "./rules/driver.js";
import { networkRules } from "./rules/network.js";
import { bySeverity, type Hit, type Rule } from "./rules/rule.js";
import { FINDING_TEXTS } from "./texts.js";

export const NODE_RULES: readonly Rule[] = [...driverRules, ...daemonRules, ...networkRules];

export interface Verdict {
  findings: FindingView[];
  cannotTell: DiagnosisView["cannotTell"];
}

const MAX_FINDINGS = 100;
const QUOTE_CHARS = 500;

/** What the sources of one node show. Pure. */
export function evaluateNode(sources: NodeSources, rules: readonly Rule[] = NODE_RULES): Verdict {
  const found: { rule: Rule; hits: Hit[] }[] = [];
  const cannotTell: Verdict["cannotTell"] = [];
  for (const rule of rules) {
    const missing = rule.needs.filter((id) => sources.text(id) === undefined);
    if (missing.length > 0) cannotTell.push({ class: rule.class, missing });
    else found.push({ rule, hits: rule.find(sources) });
  }
  const explained = new Set(found.flatMap(({ rule, hits }) => (hits.length > 0 ? (rule.explains ?? []) : [])));
  const findings = found.flatMap(({ rule, hits }) => (explained.has(rule.class) ? [] : hits.map((hit) => findingOf(rule.class, rule.severity, hit))));
  return { findings: findings.sort(bySeverity).slice(0, MAX_FINDINGS), cannotTell };
}

/** What only shows when the nodes are held side by side, by node id. */
export function evaluateCluster(nodes: readonly ClusterNode[]): Map<string, Verdict> {
  const verdicts = new Map<string, Verdict>(nodes.map((node) => [node.nodeId, { findings: [], cannotTell: [] }]));
  for (const rule of clusterRules) {
    const { hits, cannotTell } = rule.find(nodes);
    for (const [nodeId, list] of hits) verdicts.get(nodeId)!.findings.push(...list.map((hit) => findingOf(rule.class, rule.severity, hit)));
    for (const [nodeId, missing] of cannotTell) verdicts.get(nodeId)!.cannotTell.push({ class: rule.class, missing });
  }
  return verdicts;
}

function findingOf(name: string, severity: FindingView["severity"], hit: Hit): FindingView {
  const text = FINDING_TEXTS[name];
  if (!text) throw new Error(`class ${name} has no text`);
  const params = hit.params ?? {};
  const fill = (template: string): string => template.replace(/\{(\w{1,32})\}/g, (whole, key: string) => (Object.hasOwn(params, key) ? String(params[key]) : whole));
  return {
    class: name, severity: hit.severity ?? severity, title: fill(text.title), explanation: fill(text.explanation),
    evidence: hit.evidence.map(({ source, line, meaning }) => ({ source, line: line.raw.slice(0, QUOTE_CHARS), lineNumber: line.number, meaning: meaning ?? null })),
    checked: [...text.checked],
    mend: text.mend.map((step) => ({ ...step, command: fillCommand(step.command, params) })),
    count: hit.count ?? Math.max(1, hit.evidence.length), params,
  };
}

/** A command goes to a shell one day: a value that is no plain word is not put in, its place stays open. */
function fillCommand(template: string, params: Record<string, string | number>): string {
  return template.replace(/\{(\w{1,32})\}/g, (_whole, key: string) => {
    const value = Object.hasOwn(params, key) ? String(params[key]) : "";
    return /^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,100}$/.test(value) || /^\/[A-Za-z0-9_./-]{0,100}$/.test(value) ? value : key.toUpperCase();
  });
}
