import type { DiagnosisView, FindingView } from "../../../electron/contract/index.js";
import { causesOf, worseFirst } from "../severity.js";

/** One finding of one node. */
export interface Member { nodeId: string; finding: FindingView }

/** The same fault, as severe, wherever it was found. */
export interface FaultGroup {
  /** `class severity`: the same in the next checks. */
  key: string;
  /** Stands for all: their class, severity and texts are the same. */
  finding: FindingView;
  members: readonly Member[];
  /** Distinct nodes among the members: a node may have a fault twice, on two devices. */
  nodeIds: readonly string[];
}

export const memberKey = (member: Member): string => `${member.nodeId} ${member.finding.id}`;

/** One group for each class and severity: the worst first, then the most widespread, then by class. */
export function faultGroups(diagnoses: Iterable<DiagnosisView>): FaultGroup[] {
  const groups = new Map<string, { finding: FindingView; members: Member[]; nodeIds: Set<string> }>();
  for (const diagnosis of diagnoses) {
    for (const finding of causesOf(diagnosis)) {
      const key = `${finding.class} ${finding.severity}`;
      const member = { nodeId: diagnosis.nodeId, finding };
      const group = groups.get(key);
      if (!group) groups.set(key, { finding, members: [member], nodeIds: new Set([diagnosis.nodeId]) });
      else {
        group.members.push(member);
        group.nodeIds.add(diagnosis.nodeId);
      }
    }
  }
  return [...groups]
    .map(([key, { finding, members, nodeIds }]) => ({ key, finding, members, nodeIds: [...nodeIds] }))
    .sort((a, b) => worseFirst(a.finding, b.finding) || b.nodeIds.length - a.nodeIds.length || (a.key < b.key ? -1 : 1));
}

/** The groups in the order in which they are shown already; new ones below. What somebody reads or aims at does not move. */
export function inShownOrder(groups: readonly FaultGroup[], shown: readonly string[]): FaultGroup[] {
  const place = new Map(shown.map((key, index) => [key, index]));
  const at = (group: FaultGroup): number => place.get(group.key) ?? shown.length;
  return [...groups].sort((a, b) => at(a) - at(b));
}
