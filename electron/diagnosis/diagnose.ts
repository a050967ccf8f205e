import type { CollectedSources } from "./collect.js";
import type { FindingView } from "../contract/index.js";
import { analyse, analyseStreams, conclude, type Analysis } from "./engine.js";
import { memberChecks, nodeChecks, settleHistory, type LiveNode, type Settled } from "./live/index.js";
import { mendsFor } from "./mends/offer.js";
import { ruleOf } from "./rules/index.js";
import { Scan } from "./scan.js";
import type { InputKind } from "./types.js";

/** Judges what was read on one node, beside the others that were read in the same diagnosis. Pure. */
export function judgeNode(node: LiveNode, others: readonly LiveNode[], settled: Settled = new Map()): Analysis {
  const scan = new Scan();
  const kinds = new Map<InputKind, boolean>();
  for (const source of node.collected.values()) {
    const spec = source.spec;
    if (!spec) continue;
    const ok = source.view.state === "ok";
    kinds.set(spec.kind, (kinds.get(spec.kind) ?? false) || ok);
    if (ok && !spec.valuesOnly) scan.read(spec.id, [source.text]);
  }
  for (const [kind, ok] of kinds) if (ok) scan.seen.add(kind);
  const analysis = conclude(scan, (s) => {
    nodeChecks(s, node);
    memberChecks(s, node, others);
    settle(s);
    settleHistory(s, node, settled);
  });
  // Only what was asked for and could not be read is worth a word here: nobody asked for a job's log.
  const cannotTell = analysis.cannotTell.filter((c) => ruleOf(c.class).needs.some((n) => kinds.get(n) === false) && !ruleOf(c.class).needs.some((n) => kinds.get(n) === true))
    .map((c) => ({ ...c, missing: missingSources(node.collected, ruleOf(c.class).needs) }));
  const findings = analysis.findings.filter((f) => f.class !== "none.healthy" && f.class !== "none.cause_not_in_log").map((f) => withTimes(withMends(f, node), node));
  return { ...analysis, findings, cannotTell };
}

function withMends(finding: FindingView, node: LiveNode): FindingView {
  const own = mendsFor(finding, node);
  const cited = new Set(finding.evidence.map((e) => e.source));
  const { needs } = ruleOf(finding.class);
  const retest = [...node.collected.values()].filter((c) => cited.has(c.view.id) || (c.spec !== null && needs.includes(c.spec.kind))).map((c) => c.view.id);
  return { ...finding, mend: [...own, ...finding.mend.filter((m) => !own.some((o) => o.command === m.command))], retest };
}

/** Times of the kernel log by the console's clock: the node's uptime was read beside the log. */
function withTimes(finding: FindingView, node: LiveNode): FindingView {
  const log = node.collected.get("kernel_log");
  if (!log || log.uptimeMs === null) return finding;
  const startedAtMs = log.beganAtMs - log.uptimeMs;
  const at = (moment: FindingView["first"]): FindingView["first"] => (moment?.clock === "uptime" ? { ...moment, atMs: Math.round(startedAtMs + moment.time * 1000) } : moment);
  return { ...finding, first: at(finding.first), last: at(finding.last) };
}

/** What live checks know better than the log. */
function settle(scan: Scan): void {
  // A port that is switched off because its interface is, and a limit that is the daemon's own.
  if (scan.has("driver.not_loaded", "driver.not_installed")) scan.drop("dma.channel_unavailable");
}

function missingSources(collected: CollectedSources, kinds: readonly InputKind[]): string[] {
  return [...collected.values()].filter((c) => c.spec !== null && kinds.includes(c.spec.kind) && c.view.state !== "ok").map((c) => c.view.id).slice(0, 6);
}

/** Sources that every console can judge without a node: pasted text, or files that were dropped in. */
export function diagnoseFiles(files: readonly { name: string; bytes: Uint8Array }[]): Analysis {
  return analyse(files.map((f) => ({ name: f.name, data: f.bytes })));
}

/** The same for files that do not fit into memory. */
export function diagnoseStreams(files: readonly { name: string; stream: AsyncIterable<Uint8Array> }[]): Promise<Analysis> {
  return analyseStreams(files.map((f) => ({ name: f.name, data: f.stream })));
}
