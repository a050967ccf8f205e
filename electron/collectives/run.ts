import { ConsoleError, type ErrorView, type RunRow, type RunSpec, type RunView } from "../contract/index.js";
import { firstCause, type Suspect } from "./blame.js";
import type { RunPlan } from "./plan.js";
import { RankLine, type RowLine } from "./perf.js";

type RankState = RunView["ranks"][number]["state"];
interface Rank {
  rank: number;
  nodeId: string;
  name: string;
  state: RankState;
  error: ErrorView | null;
  lastStderr: string | null;
}

const MAX_ROWS = 512;
/** stepccl-perf: everything ran, and the check of the results failed. */
const STATUS_WRONG = 3;

/** What a run asks to be done about what it learned; the launcher does it. */
export type RunSignal = "none" | "failing" | "finished";

/**
 * One run as it is known here. Pure: takes what the daemons report in, gives the view out, and never touches a node.
 * A rank's line changes that rank alone; which error is the run's is decided once, in `conclude`.
 */
export class Run {
  readonly id: string;
  readonly spec: RunSpec;
  readonly plan: RunPlan;
  #state: RunView["state"] = "starting";
  #startedAtMs: number;
  #endedAtMs: number | null = null;
  #ranks: Map<number, Rank>;
  #rows: RunRow[] = [];
  #model: RunView["model"] = null;
  #suspects: Suspect[] = [];
  #error: ErrorView | null = null;
  #encryption: RunView["encryption"];
  /** Nodes whose daemon said that its part is over. */
  #endedNodes = new Set<string>();
  #stopping = false;

  constructor(id: string, spec: RunSpec, plan: RunPlan, nowMs: number) {
    this.id = id;
    this.spec = spec;
    this.plan = plan;
    this.#startedAtMs = nowMs;
    this.#ranks = new Map(plan.nodes.flatMap((node) => node.ranks.map((rank) =>
      [rank, { rank, nodeId: node.nodeId, name: node.name, state: "starting" as RankState, error: null, lastStderr: null }] as const)));
  }

  get ended(): boolean {
    return this.#endedAtMs !== null;
  }
  get suspects(): readonly Suspect[] {
    return this.#suspects;
  }
  get rows(): readonly RunRow[] {
    return this.#rows;
  }
  nodeEnded(nodeId: string): boolean {
    return this.#endedNodes.has(nodeId);
  }

  /** From here on ranks end because they were told to: their ends are no errors. */
  markStopping(): void {
    this.#stopping = true;
  }

  /** Takes one line of one rank (or of the daemon, with rank null). Lines of ranks that the node does not run are ignored. */
  apply(nodeId: string, rank: number | null, value: Record<string, unknown>): RunSignal {
    if (this.ended) return "none";
    const parsed = RankLine.safeParse(value);
    if (!parsed.success) return "none";
    const line = parsed.data;
    if (line.event === "run_end") {
      this.#endedNodes.add(nodeId);
      return this.#afterEnd();
    }
    const own = rank === null ? undefined : this.#ranks.get(rank);
    if (!own || own.nodeId !== nodeId) return "none";
    switch (line.event) {
      case "stderr":
        own.lastStderr = line.line.slice(0, 500);
        return "none";
      case "spawned":
        return "none";
      case "start":
        this.#encryption ??= line.encryption;
        return "none";
      case "row":
        this.#markRunning(own);
        this.#addRow(own, line);
        return "none";
      case "error":
        // The daemon's word for a worker that ended without one of its own.
        if (line.code === "A205") return this.#blame(own, line.detail?.signal != null ? "killed" : "exited", this.#ended504(own, this.#wrongText(line.detail?.status) ?? line.message));
        return this.#blame(own, "reported", this.#named(own, { code: line.code, message: line.message, next: line.next ?? "Look at the journal of stepccld on the node." }, line.peer ?? null));
      case "exited":
        return this.#onExit(own, line);
    }
  }

  /** Called when a rank is known to work, by its first line. */
  markRankRunning(rank: number): void {
    const own = this.#ranks.get(rank);
    if (own) this.#markRunning(own);
  }

  /** The node cannot be spoken to any more: its ranks count as lost. */
  loseNode(nodeId: string, error: ErrorView): RunSignal {
    if (this.ended || this.#endedNodes.has(nodeId)) return "none";
    const lost = [...this.#ranks.values()].filter((rank) => rank.nodeId === nodeId && rank.state !== "ended");
    if (lost.length === 0) return "none";
    const ranks = lost.map((rank) => rank.rank);
    const label = `${lost[0]!.name} (${ranks.length === 1 ? "rank" : "ranks"} ${listOf(ranks)})`;
    const view: ErrorView = error.code === "H402" ? ConsoleError.of("H402", { ...error.params, host: label, name: lost[0]!.name, rank: ranks[0]! }).view : error;
    for (const rank of lost) this.#blame(rank, "node_lost", view);
    this.#endedNodes.add(nodeId);
    return "failing";
  }

  /** Ends the run with what is known. `stopped` = the operator asked for it. */
  conclude(nowMs: number, stopped: boolean): void {
    if (this.ended) return;
    this.#endedAtMs = nowMs;
    const cause = firstCause(this.#suspects);
    if (cause) {
      this.#state = "failed";
      this.#error = cause.error;
    } else if (stopped) {
      this.#state = "stopped";
    } else {
      this.#state = "succeeded";
    }
    for (const rank of this.#ranks.values()) if (rank.state !== "failed") rank.state = "ended";
  }

  /** A failure before any rank ran. */
  failLaunch(nodeId: string, error: ErrorView): void {
    for (const rank of this.#ranks.values()) if (rank.nodeId === nodeId) this.#blame(rank, "reported", error);
  }

  setModel(model: RunView["model"], expectedUs: readonly (number | null)[]): void {
    this.#model = model;
    this.#rows = this.#rows.map((row, i) => ({ ...row, expectedTimeUs: expectedUs[i] ?? null }));
  }

  view(): RunView {
    const busbws = this.#rows.flatMap((row) => [row.outOfPlace, row.inPlace]).flatMap((timing) => (timing ? [timing.busbwGBps] : []));
    return {
      id: this.id, spec: this.spec, state: this.#state, startedAtMs: this.#startedAtMs, endedAtMs: this.#endedAtMs,
      ranks: [...this.#ranks.values()].map(({ rank, nodeId, state, error }) => ({ rank, nodeId, state, error })),
      rows: this.#rows, model: this.#model, wrongTotal: wrongOf(this.#rows),
      avgBusbwGBps: busbws.length === 0 ? null : busbws.reduce((a, b) => a + b, 0) / busbws.length,
      error: this.#error, ...(this.#encryption === undefined ? {} : { encryption: this.#encryption }),
    };
  }

  #markRunning(rank: Rank): void {
    if (rank.state === "starting") rank.state = "running";
    if (this.#state === "starting") this.#state = "running";
  }

  #addRow(rank: Rank, line: RowLine): void {
    // Every rank could print the row; the one of the lowest rank is the run's, as nccl-tests prints it.
    if (rank.rank !== 0 || this.#rows.length >= MAX_ROWS) return;
    const timing = (t: RowLine["out_of_place"]): RunRow["outOfPlace"] => ({ timeUs: t.time_us, algbwGBps: t.algbw_GBps, busbwGBps: t.busbw_GBps, wrong: t.wrong });
    this.#rows.push({
      bytes: line.bytes, count: line.count, datatype: line.datatype, redop: line.redop, root: line.root, algorithm: line.algorithm, transport: line.transport,
      iterations: line.iterations, outOfPlace: timing(line.out_of_place), inPlace: line.in_place ? timing(line.in_place) : null, expectedTimeUs: null,
    });
  }

  #onExit(rank: Rank, line: { status?: number | null | undefined; signal?: string | number | null | undefined }): RunSignal {
    if (this.#stopping) {
      if (rank.state !== "failed") rank.state = "ended";
      return this.#afterEnd();
    }
    // It has said (or the daemon for it) why it ends.
    if (rank.error && (line.signal != null || line.status !== 0)) return "failing";
    if (line.signal != null || line.status == null) {
      // The daemon ends the other ranks of a node where one failed, without a word: an echo.
      const nodeFailed = this.#suspects.some((suspect) => suspect.nodeId === rank.nodeId);
      if (nodeFailed && (line.signal === "SIGTERM" || line.signal === "SIGKILL")) {
        rank.state = "ended";
        return "failing";
      }
      const detail = `it was ended by ${line.signal == null ? "an unknown cause" : `signal ${String(line.signal)}`}${rank.lastStderr ? ` (${rank.lastStderr})` : ""}`;
      return this.#blame(rank, "killed", this.#ended504(rank, detail));
    }
    if (line.status !== 0) {
      return this.#blame(rank, "exited", this.#ended504(rank, this.#wrongText(line.status) ?? `it ended with status ${line.status}${rank.lastStderr ? ` (${rank.lastStderr})` : ""}`));
    }
    if (rank.state !== "failed") rank.state = "ended";
    return this.#afterEnd();
  }

  #afterEnd(): RunSignal {
    if (this.#suspects.length > 0) return "failing";
    return this.plan.nodes.every((node) => this.#endedNodes.has(node.nodeId)) || [...this.#ranks.values()].every((rank) => rank.state === "ended") ? "finished" : "none";
  }

  #blame(rank: Rank, kind: Suspect["kind"], error: ErrorView): RunSignal {
    if (this.#stopping && kind !== "node_lost" && this.#suspects.length === 0) return "none";
    // A rank's own word says more than how it ended; a loss says more than both.
    if (!rank.error || kind === "node_lost") rank.error = error;
    rank.state = "failed";
    this.#suspects.push({ rank: rank.rank, nodeId: rank.nodeId, error, kind, order: this.#suspects.length });
    return "failing";
  }

  /** A rank whose results did not pass their check ends with a status of its own. */
  #wrongText(status: number | null | undefined): string | null {
    return status === STATUS_WRONG ? `${wrongOf(this.#rows) ?? "some"} elements of its results are wrong` : null;
  }

  #ended504(rank: Rank, detail: string): ErrorView {
    return ConsoleError.of("H504", { rank: rank.rank, name: rank.name, detail }).view;
  }

  /** A runtime error as the run's: says which rank, on which node, and which peer it means. */
  #named(rank: Rank, error: { code: string; message: string; next: string }, peer: number | null): ErrorView {
    const other = peer === null ? undefined : this.#ranks.get(peer);
    const who = `Rank ${rank.rank} on ${rank.name}`;
    const about = other && other !== rank ? ` (peer: rank ${other.rank} on ${other.name})` : "";
    return {
      code: error.code, message: `${who}: ${error.message}${about}`.slice(0, 2048), next: error.next.slice(0, 2048),
      params: { rank: rank.rank, name: rank.name, detail: error.message.slice(0, 1024), ...(other ? { peer: other.rank, peerName: other.name } : {}) },
    };
  }
}

/** Wrong elements over all rows; null when nothing was checked. */
function wrongOf(rows: readonly RunRow[]): number | null {
  const counts = rows.flatMap((row) => [row.outOfPlace.wrong, row.inPlace?.wrong ?? null]).filter((wrong) => wrong !== null);
  return counts.length === 0 ? null : counts.reduce((a, b) => a + b, 0);
}

const listOf = (ranks: readonly number[]): string => (ranks.length <= 8 ? ranks.join(", ") : `${ranks.slice(0, 8).join(", ")}, …`);
