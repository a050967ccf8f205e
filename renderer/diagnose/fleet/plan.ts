import { Risk, type DiagnosisView, type MendRunView, type MendView } from "../../../electron/contract/index.js";
import type { Member } from "./groups.js";

export interface PlannedCommand { mendId: string; command: string }
export interface PlannedMember { member: Member; commands: readonly PlannedCommand[] }
/** Why nothing would be run for a member. */
export const LEFT_OUT = ["nothing", "old", "checking", "mending"] as const;
export type LeftOut = (typeof LEFT_OUT)[number];

export interface MendPlan {
  /** Members on which the same commands would run, word for word; the most widespread first. */
  variants: ReadonlyArray<{ commands: readonly PlannedCommand[]; members: readonly Member[] }>;
  leftOut: ReadonlyMap<LeftOut, readonly Member[]>;
  /** The worst of all commands. */
  risk: Risk;
  /** Sources that are read again. */
  retest: readonly string[];
}

/** After this the console offers no mend of a finding: what it names may be another thing by then. */
export const FRESH_MS = 30 * 60_000;

/** A mend that the console applies, as it stands in the group's findings. */
export interface GroupChoice { id: string; sample: MendView; members: number; commands: number; risk: Risk }

const worse = (a: Risk, b: Risk): Risk => (Risk.options.indexOf(b) > Risk.options.indexOf(a) ? b : a);

/** What can be applied to these findings, in the order of their cards. */
export function choicesOf(members: readonly Member[]): GroupChoice[] {
  const choices = new Map<string, { sample: MendView; members: number; commands: Set<string>; risk: Risk }>();
  for (const { finding } of members) {
    for (const mend of finding.mend) {
      if (mend.id === null) continue;
      const known = choices.get(mend.id) ?? { sample: mend, members: 0, commands: new Set<string>(), risk: mend.risk };
      known.members++;
      known.commands.add(mend.command);
      known.risk = worse(known.risk, mend.risk);
      choices.set(mend.id, known);
    }
  }
  return [...choices].map(([id, each]) => ({ id, sample: each.sample, members: each.members, commands: each.commands.size, risk: each.risk }));
}

export interface PlanFacts {
  nowMs: number;
  diagnosis(nodeId: string): DiagnosisView | undefined;
  /** Mends of the console, to know where one runs. */
  mends: Iterable<MendRunView>;
}

/** What would run where, for the mends that are ticked. Runs nothing. */
export function planOf(members: readonly Member[], ticked: ReadonlySet<string>, facts: PlanFacts): MendPlan {
  const mending = new Set<string>();
  for (const run of facts.mends) if (run.endedAtMs === null) mending.add(run.nodeId);
  const variants = new Map<string, { commands: PlannedCommand[]; members: Member[] }>();
  const leftOut = new Map<LeftOut, Member[]>();
  const retest = new Set<string>();
  let risk: Risk = "none";
  for (const member of members) {
    const diagnosis = facts.diagnosis(member.nodeId);
    const mends = member.finding.mend.filter((mend) => mend.id !== null && ticked.has(mend.id));
    const why: LeftOut | null = mends.length === 0 ? "nothing"
      : diagnosis?.state === "running" ? "checking"
      : mending.has(member.nodeId) ? "mending"
      : facts.nowMs - (diagnosis?.endedAtMs ?? 0) > FRESH_MS ? "old" : null;
    if (why !== null) {
      leftOut.set(why, [...(leftOut.get(why) ?? []), member]);
      continue;
    }
    const commands = mends.map((mend) => ({ mendId: mend.id!, command: mend.command }));
    const key = JSON.stringify(commands);
    const variant = variants.get(key);
    if (variant) variant.members.push(member);
    else variants.set(key, { commands, members: [member] });
    for (const mend of mends) risk = worse(risk, mend.risk);
    for (const source of member.finding.retest) retest.add(source);
  }
  return { variants: [...variants.values()].sort((a, b) => b.members.length - a.members.length), leftOut, risk, retest: [...retest] };
}
