import type { DiagnosisView, ErrorView, FindingView, NodeView, OperationView, RunRow, RunView } from "../contract/index.js";
import { bytesText, clean, table } from "./terminal.js";

/** What the CLI shows to people. Machines get the contract's objects as JSON instead. */

export const errorText = (error: ErrorView): string => `${error.code}: ${clean(error.message)} ${clean(error.next)}`;

export function nodesText(nodes: readonly NodeView[]): string {
  if (nodes.length === 0) return "No node yet. Add one: stepccl nodes add user@host";
  return table(["NAME", "ID", "ADDRESS", "PHASE", "HOST KEY", "DAEMON", "PROBLEM"], nodes.map((node) => [
    node.name, node.id, `${node.user}@${node.host}:${node.port}`, node.phase, node.hostKey.status,
    node.agent.state === "running" ? (node.agent.version ?? "running") : node.agent.state, node.error ? `${node.error.code} ${node.error.message}`.slice(0, 100) : null,
  ]));
}

export function statusText(nodes: readonly NodeView[]): string {
  if (nodes.length === 0) return nodesText(nodes);
  return table(["NAME", "PHASE", "KERNEL", "CPUS", "MEMORY", "NICS UP", "RDMA ACTIVE", "GPUS", "DRIVER", "DAEMON RSS"], nodes.map((node) => {
    const facts = node.facts;
    return [
      node.name, node.phase, facts?.kernel ?? null, facts?.cpuThreads ?? null, facts?.memoryTotalBytes == null ? null : bytesText(facts.memoryTotalBytes),
      facts ? facts.nics.filter((nic) => nic.state === "up" && nic.name !== "lo").length : null,
      facts ? `${facts.rdma.filter((port) => port.state === "active").length}/${facts.rdma.length}` : null, facts?.gpus.length ?? null,
      facts ? (facts.driver.present ? (facts.driver.version ?? "loaded") : "absent") : null, node.agent.rssKib === null ? null : `${node.agent.rssKib} KiB`,
    ];
  }));
}

/** One line for each step of each node that began or ended since the last call. */
export class OperationPrinter {
  #seen = new Map<string, string>();
  constructor(private readonly nameOf: (nodeId: string) => string) {}

  lines(operation: OperationView): string[] {
    const lines: string[] = [];
    for (const node of operation.nodes) {
      for (const step of node.steps) {
        const key = `${node.nodeId} ${step.id}`;
        if (step.state === "pending" || this.#seen.get(key) === step.state) continue;
        this.#seen.set(key, step.state);
        const seconds = step.startedAtMs !== null && step.endedAtMs !== null ? ` ${((step.endedAtMs - step.startedAtMs) / 1000).toFixed(1)} s` : "";
        lines.push(`${this.nameOf(node.nodeId)}: ${step.id} ${step.state}${seconds}${step.detail ? ` (${clean(step.detail)})` : ""}${step.error ? `\n  ${errorText(step.error)}` : ""}`);
      }
      const key = `${node.nodeId} `;
      if (!["succeeded", "failed", "cancelled"].includes(node.state) || this.#seen.get(key) === node.state) continue;
      this.#seen.set(key, node.state);
      const shown = node.steps.some((step) => step.error && node.error && step.error.message === node.error.message);
      lines.push(`${this.nameOf(node.nodeId)}: ${node.state}${node.error && !shown ? `\n  ${errorText(node.error)}` : ""}`);
    }
    return lines;
  }
}

const W = { size: 12, count: 12, type: 9, redop: 7, root: 5, time: 10, bw: 8, wrong: 7 };
/** The table of nccl-tests: both halves, time in us, bandwidth in GB/s. */
export const RUN_HEADER = [
  `# ${"size".padStart(W.size)}${"count".padStart(W.count)}${"type".padStart(W.type)}${"redop".padStart(W.redop)}${"root".padStart(W.root)}` +
    `${"time".padStart(W.time)}${"algbw".padStart(W.bw)}${"busbw".padStart(W.bw)}${"#wrong".padStart(W.wrong)}${"time".padStart(W.time)}${"algbw".padStart(W.bw)}${"busbw".padStart(W.bw)}${"#wrong".padStart(W.wrong)}`,
  `# ${"(B)".padStart(W.size)}${"(elements)".padStart(W.count)}${"".padStart(W.type + W.redop + W.root)}` +
    `${"(us)".padStart(W.time)}${"(GB/s)".padStart(W.bw)}${"(GB/s)".padStart(W.bw)}${"".padStart(W.wrong)}${"(us)".padStart(W.time)}${"(GB/s)".padStart(W.bw)}${"(GB/s)".padStart(W.bw)}`,
].join("\n");

export function rowText(row: RunRow): string {
  const half = (t: RunRow["inPlace"]): string => (t === null
    ? "N/A".padStart(W.time) + "N/A".padStart(W.bw).repeat(2) + "N/A".padStart(W.wrong)
    : `${t.timeUs.toFixed(1).padStart(W.time)}${t.algbwGBps.toFixed(3).padStart(W.bw)}${t.busbwGBps.toFixed(3).padStart(W.bw)}${(t.wrong === null ? "N/A" : String(t.wrong)).padStart(W.wrong)}`);
  return `  ${String(row.bytes).padStart(W.size)}${String(row.count).padStart(W.count)}${clean(row.datatype).padStart(W.type)}${clean(row.redop).padStart(W.redop)}${String(row.root).padStart(W.root)}${half(row.outOfPlace)}${half(row.inPlace)}`;
}

export function runEndText(run: RunView, nameOf: (nodeId: string) => string): string {
  const lines = [`# ${run.state}${run.wrongTotal === null ? "" : `, #wrong ${run.wrongTotal}`}${run.avgBusbwGBps === null ? "" : `, average bus bandwidth ${run.avgBusbwGBps.toFixed(4)} GB/s`}`];
  if (run.model) lines.push(`# model: alpha ${run.model.alphaUs.toFixed(1)} us, ${run.model.betaUsPerByte > 0 ? `${(1 / run.model.betaUsPerByte / 1000).toFixed(3)} GB/s` : "no bandwidth term"}`);
  if (run.error) lines.push(errorText(run.error));
  for (const rank of run.ranks) {
    if (rank.error && rank.error.message !== run.error?.message) lines.push(`  rank ${rank.rank} on ${nameOf(rank.nodeId)}: ${errorText(rank.error)}`);
  }
  return lines.join("\n");
}

export function diagnosisText(diagnosis: DiagnosisView, name: string): string {
  const told = diagnosis.findings.filter((f) => f.severity !== "info");
  const lines = [`${name}: ${diagnosis.error ? errorText(diagnosis.error) : told.length === 0 ? "no fault found" : `${told.length} finding(s)`}`, ...findingsText(diagnosis.findings, name)];
  for (const unknown of diagnosis.cannotTell) lines.push(`  cannot tell ${unknown.class}: ${unknown.missing.join(", ")} could not be read`);
  return lines.join("\n");
}

/** Findings in the order of blame, what follows from another under it; `node`: how to have the console apply a mend. */
export function findingsText(findings: readonly FindingView[], node: string | null): string[] {
  const one = (finding: FindingView, indent: string): string[] => {
    const lines = [`${indent}[${finding.severity}] ${finding.class}: ${clean(finding.title.en)}${finding.count > 1 ? ` (${finding.count} times)` : ""}`, `${indent}  ${clean(finding.explanation.en)}`];
    for (const evidence of finding.evidence.slice(0, 5)) lines.push(`${indent}  > ${clean(evidence.source)}: ${clean(evidence.line)}${evidence.meaning ? `   (${clean(evidence.meaning.en)})` : ""}`);
    for (const mend of finding.mend) lines.push(`${indent}  $ ${clean(mend.command)}   # ${clean(mend.explanation.en)}`);
    const own = finding.mend.find((m) => m.id !== null);
    if (own && node !== null) lines.push(`${indent}  apply it: stepccl mend ${clean(node)} ${finding.id} ${own.id}`);
    return lines;
  };
  const roots = findings.filter((f) => f.severity !== "info" && (f.consequenceOf === null || !findings.some((o) => o.id === f.consequenceOf)));
  return roots.flatMap((root) => {
    const after = findings.filter((f) => f.severity !== "info" && f.consequenceOf === root.id);
    return [...one(root, "  "), ...(after.length > 0 ? ["    what follows from it:", ...after.flatMap((f) => one(f, "      "))] : [])];
  });
}
