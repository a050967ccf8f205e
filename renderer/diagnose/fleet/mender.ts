import { createStore, type StoreApi } from "zustand/vanilla";
import type { MendRunView, Words } from "../../../electron/contract/index.js";
import { toShownError, type ShownError } from "../../client/page-error.js";
import type { Console } from "../../store/console.js";
import { memberKey, type Member } from "./groups.js";
import type { MendPlan, PlannedCommand } from "./plan.js";

/**
 * `waiting`: not begun yet. `asking`: the console is asked for its offer. Then as the mend's own run. `gone`: the fault was no longer
 * there. `changed`: other commands than those agreed to. `refused`: the console would not run them, or its answer was lost.
 * `not_begun`: the person, or the trial on the first node, ended it before.
 */
export type EntryState = "waiting" | "asking" | MendRunView["state"] | "gone" | "changed" | "refused" | "not_begun";
export const ENTRY_STATES = ["waiting", "asking", "applying", "retesting", "mended", "not_mended", "unknown", "failed", "cancelled", "gone", "changed", "refused", "not_begun"] as const satisfies readonly EntryState[];

export interface GroupEntry {
  key: string;
  member: Member;
  commands: readonly PlannedCommand[];
  state: EntryState;
  runId: string | null;
  error: ShownError | null;
}

export interface GroupRun {
  id: string;
  title: Words;
  class: string;
  startedAtMs: number;
  endedAtMs: number | null;
  /** Nodes at a time. */
  parallel: number;
  /** Begins with one node; goes on when that one is mended. */
  oneFirst: boolean;
  /** No further node is begun. */
  stopped: boolean;
  /** The trial on the first node did not end well, so the others were left alone. */
  heldBack: boolean;
  /** The person agreed a second time, since something is destroyed. */
  agreedTwice: boolean;
  entries: ReadonlyMap<string, GroupEntry>;
}

export interface GroupConsent {
  title: Words;
  class: string;
  plan: MendPlan;
  parallel: number;
  oneFirst: boolean;
}

const GOING: readonly EntryState[] = ["waiting", "asking", "applying", "retesting"];
export const isGoing = (state: EntryState): boolean => GOING.includes(state);
const isWell = (state: EntryState): boolean => state === "mended" || state === "gone";

/** Codes by which the page says that no answer came. */
const LOST: ReadonlySet<string> = new Set(["P101", "P102"]);
/** A list that comes anew comes in several parts: so long may a run be absent. */
const FORGOTTEN_MS = 10_000;

/**
 * Applies a mend to many nodes as one act: a bounded number at a time, each by the console's own offer, and only where that offer is word
 * for word what the person agreed to. The order lives in this page: closed, it begins no further node; what runs ends by itself.
 */
export class GroupMender {
  readonly store: StoreApi<{ runs: readonly GroupRun[] }> = createStore<{ runs: readonly GroupRun[] }>()(() => ({ runs: [] }));
  #serial = 0;

  constructor(private readonly console: Pick<Console, "client" | "mends" | "diagnoses" | "clock">) {}

  run(id: string): GroupRun | undefined {
    return this.store.getState().runs.find((run) => run.id === id);
  }

  /** Begins; ends when each node has its result. @returns the id, under which the store has it at once */
  start(consent: GroupConsent): { id: string; over: Promise<void> } {
    const id = `group-${++this.#serial}`;
    const entries = new Map(consent.plan.variants.flatMap(({ commands, members }) => members.map((member): [string, GroupEntry] => {
      const key = memberKey(member);
      return [key, { key, member, commands, state: "waiting", runId: null, error: null }];
    })));
    const { title, oneFirst, parallel } = consent;
    const run: GroupRun = { id, title, class: consent.class, startedAtMs: this.console.clock.now(), endedAtMs: null, parallel, oneFirst, stopped: false, heldBack: false, agreedTwice: consent.plan.risk === "destructive", entries };
    this.store.setState((before) => ({ runs: [run, ...before.runs] }));
    return { id, over: this.#carry(id) };
  }

  /** Begins no further node. What runs goes on to its re-test. */
  stop(id: string): void {
    this.#change(id, { stopped: true });
  }

  /** Ends the commands that run; each node is read again all the same. @throws RequestError, the first of them */
  async endRunning(id: string): Promise<void> {
    this.stop(id);
    const running = [...(this.run(id)?.entries.values() ?? [])].flatMap((entry) => (entry.state === "applying" && entry.runId !== null ? [entry.runId] : []));
    await Promise.all(running.map((mendRunId) => this.console.client.request("mends.cancel", { mendRunId })));
  }

  dismiss(id: string): void {
    this.store.setState((before) => ({ runs: before.runs.filter((run) => run.id !== id || run.endedAtMs === null) }));
  }

  async #carry(id: string): Promise<void> {
    // A node takes one mend at a time, so its findings come one after the other.
    const byNode = new Map<string, string[]>();
    for (const { key, member } of this.run(id)!.entries.values()) byNode.set(member.nodeId, [...(byNode.get(member.nodeId) ?? []), key]);
    const queue = [...byNode.values()];
    const node = async (keys: readonly string[]): Promise<void> => {
      for (const key of keys) {
        if (this.run(id)!.stopped) this.#entry(id, key, { state: "not_begun" });
        else await this.#mend(id, key);
      }
    };
    const { oneFirst, parallel } = this.run(id)!;
    if (oneFirst && queue.length > 1) {
      const first = queue.shift()!;
      await node(first);
      if (!first.every((key) => isWell(this.run(id)!.entries.get(key)!.state))) this.#change(id, { stopped: true, heldBack: !this.run(id)!.stopped });
    }
    const worker = async (): Promise<void> => {
      for (let keys = queue.shift(); keys; keys = queue.shift()) await node(keys);
    };
    await Promise.all(Array.from({ length: Math.min(parallel, queue.length) }, worker));
    this.#change(id, { endedAtMs: this.console.clock.now() });
  }

  async #mend(id: string, key: string): Promise<void> {
    const { member: { nodeId, finding }, commands } = this.run(id)!.entries.get(key)!;
    const { client, diagnoses } = this.console;
    const diagnosis = diagnoses.api.getState().items.get(nodeId);
    if (diagnosis?.state === "done" && !diagnosis.findings.some((each) => each.id === finding.id && each.severity !== "info")) return this.#entry(id, key, { state: "gone" });
    this.#entry(id, key, { state: "asking" });
    let sent = false;
    try {
      const offer = await client.request("mends.offer", { nodeId, findingId: finding.id, mendIds: commands.map((each) => each.mendId) });
      const other = offer.commands.length !== commands.length || offer.commands.some((each, index) => each.command !== commands[index]!.command);
      if (other || (offer.secondConsent !== null && !this.run(id)!.agreedTwice)) return this.#entry(id, key, { state: "changed" });
      sent = true;
      // The second consent was given once for all, by the number of nodes; the console wants it for each by name.
      const run = await client.request("mends.apply", { offerId: offer.offerId, commands: commands.map((each) => each.command), ...(offer.secondConsent === null ? {} : { secondConsent: offer.secondConsent }) });
      this.console.mends.upsert(run);
      await this.#follow(id, key, run);
    } catch (thrown) {
      const error = toShownError(thrown);
      // Without the console's answer nobody knows whether it began.
      this.#entry(id, key, { state: sent && LOST.has(error.code) ? "unknown" : "refused", error });
    }
  }

  /** Until its run has ended. A run that the console no longer has, and not only while the connection is made anew, has no known end. */
  #follow(id: string, key: string, first: MendRunView): Promise<void> {
    const { api } = this.console.mends;
    return new Promise((resolve) => {
      let missing: ReturnType<typeof setTimeout> | null = null;
      const settle = (): void => {
        if (missing !== null) clearTimeout(missing);
        leave();
        resolve();
      };
      const look = (run: MendRunView): void => {
        this.#entry(id, key, { state: run.state, runId: run.id, error: run.error });
        if (run.endedAtMs !== null) settle();
      };
      const leave = api.subscribe((now, before) => {
        const run = now.items.get(first.id);
        if (run === before.items.get(first.id)) return;
        if (missing !== null) clearTimeout(missing);
        missing = run ? null : setTimeout(() => { this.#entry(id, key, { state: "unknown" }); settle(); }, FORGOTTEN_MS);
        if (run) look(run);
      });
      look(api.getState().items.get(first.id) ?? first);
    });
  }

  #entry(id: string, key: string, change: Partial<GroupEntry>): void {
    const run = this.run(id);
    const entry = run?.entries.get(key);
    if (!run || !entry) return;
    this.#change(id, { entries: new Map(run.entries).set(key, { ...entry, ...change }) });
  }
  #change(id: string, change: Partial<GroupRun>): void {
    this.store.setState((before) => ({ runs: before.runs.map((run) => (run.id === id ? { ...run, ...change } : run)) }));
  }
}

/** How many of the entries stand where. */
export function tally(run: GroupRun): { mended: number; notMended: number; running: number; waiting: number; notRun: number } {
  const sum = { mended: 0, notMended: 0, running: 0, waiting: 0, notRun: 0 };
  for (const { state } of run.entries.values()) {
    if (isWell(state)) sum.mended++;
    else if (state === "waiting") sum.waiting++;
    else if (isGoing(state)) sum.running++;
    else if (state === "not_begun" || state === "changed" || state === "refused") sum.notRun++;
    else sum.notMended++;
  }
  return sum;
}
