import type { FindingView } from "../../electron/contract/index.js";

export interface FindingTree {
  /** Causes, each with everything that follows from it, in the host's order of blame. */
  roots: Array<{ finding: FindingView; consequences: FindingView[] }>;
  /** Known as harmless. */
  notes: FindingView[];
}

/** Folds consequences under their cause, however long the chain; one whose cause is not there stands by itself. */
export function foldFindings(findings: readonly FindingView[]): FindingTree {
  const byId = new Map(findings.map((finding) => [finding.id, finding]));
  const rootOf = (finding: FindingView): FindingView => {
    const seen = new Set<string>();
    let at = finding;
    while (at.consequenceOf !== null && !seen.has(at.id)) {
      seen.add(at.id);
      const next = byId.get(at.consequenceOf);
      if (!next) break;
      at = next;
    }
    return at;
  };
  const tree: FindingTree = { roots: [], notes: [] };
  const roots = new Map<string, FindingTree["roots"][number]>();
  for (const finding of findings) {
    const root = rootOf(finding);
    if (root !== finding && root.severity !== "info") continue;
    if (finding.severity === "info") tree.notes.push(finding);
    else {
      const entry = { finding, consequences: [] };
      roots.set(finding.id, entry);
      tree.roots.push(entry);
    }
  }
  for (const finding of findings) {
    const root = rootOf(finding);
    if (root !== finding) roots.get(root.id)?.consequences.push(finding);
  }
  return tree;
}
