import type { FindingView, MendView } from "../../contract/index.js";
import { dataInterfaceOf, rdmaNamesOf, type LiveNode } from "../live/index.js";
import { fillCommand } from "./blanks.js";
import { MEND_RULES, type MendRule } from "./rules.js";

/** At most this many mends of one kind for one finding. */
const MAX_EACH = 8;

/** The mends of this finding that the console can apply to this node. Commands are whole: nothing is left to fill. */
export function mendsFor(finding: FindingView, node: LiveNode): MendView[] {
  if (finding.severity === "info") return [];
  return MEND_RULES.filter((rule) => rule.classes.includes(finding.class) && (rule.when?.(finding, node) ?? true)).flatMap((rule) => {
    const sets = rule.each?.(finding, node) ?? [finding.params];
    const seen = new Set<string>();
    return sets.slice(0, MAX_EACH).flatMap((values, i): MendView[] => {
      const command = fillCommand(rule.command, { ...nodeValues(node), ...values });
      if (command === null || seen.has(command)) return [];
      seen.add(command);
      return [{ id: i === 0 ? rule.id : `${rule.id}.${i}`, command, explanation: { en: rule.words[0], zh: rule.words[1] }, risk: rule.risk }];
    });
  });
}

/** The rule behind an id that `mendsFor` gave. */
export function mendRuleOf(cls: string, mendId: string): MendRule | undefined {
  const id = mendId.replace(/\.\d+$/, "");
  return MEND_RULES.find((rule) => rule.id === id && rule.classes.includes(cls));
}

function nodeValues(node: LiveNode): Record<string, string | undefined> {
  const source = node.collected.get("kernel");
  return {
    kernel: source?.view.state === "ok" ? source.text.trim() : undefined, netdev: dataInterfaceOf(node)?.name, node: node.name,
    rxe: node.rdmaDevice ?? freeRxeName(rdmaNamesOf(node)),
  };
}

function freeRxeName(taken: readonly string[]): string {
  for (let i = 0; ; i++) if (!taken.includes(`rxe${i}`)) return `rxe${i}`;
}
