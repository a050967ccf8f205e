import type { HangGroup, RecordedOperation, RecordedRank, Words } from "../../contract/index.js";
import type { Operation, Recording } from "./recording.js";

/** What the console knows of a rank beside its recorder. */
export interface RankContext {
  nodeOf?: (recording: Recording) => string | null;
  /** True when the process is stopped by a signal or a debugger. */
  stopped?: (recording: Recording) => boolean;
  nowMs: number;
}

/** An operation that stands for less than this is not called a hang. */
const HANG_MS = 10_000;
/** So many ranks are listed; ranks that hold others up always are. */
const LISTED = 4096;

/** Puts the recordings of all ranks beside each other, one group for each communicator, those with trouble first. */
export function mergeRecordings(recordings: readonly Recording[], context: RankContext): HangGroup[] {
  const groups = new Map<string, Recording[]>();
  for (const r of recordings) {
    const key = `${r.format}\u0000${r.job}\u0000${r.communicator}`;
    const group = groups.get(key);
    if (group) group.push(r); else groups.set(key, [r]);
  }
  const order = ["mismatch", "hang", "failed", "cannot_tell", "running", "idle"];
  return [...groups.values()].map((g) => mergeGroup(g, context)).sort((a, b) => order.indexOf(a.verdict) - order.indexOf(b.verdict));
}

interface Rank { rank: number; recording: Recording; ops: Operation[]; current: Operation | null; last: bigint | null; called: bigint | null }

function mergeGroup(recordings: readonly Recording[], context: RankContext): HangGroup {
  const head = recordings[0]!;
  const newest = new Map<number, Recording>();
  for (const r of recordings) {
    const there = newest.get(r.rank);
    // A process that is gone may have left its recorder beside that of its successor.
    if (!there || (r.alive ?? true) === (there.alive ?? true) ? (r.takenAtMs ?? 0) >= (there?.takenAtMs ?? 0) : r.alive === true) newest.set(r.rank, r);
  }
  const worldSize = recordings.reduce((most, r) => Math.max(most, r.worldSize, r.rank + 1), 0);
  const ranks = [...newest].map(([rank, recording]) => rankOf(rank, recording)).sort((a, b) => a.rank - b.rank);
  const missing: number[] = [];
  for (let r = 0; r < worldSize && missing.length < LISTED; r++) if (!newest.has(r)) missing.push(r);
  const verdict = judge(ranks, missing, worldSize, context);
  const rows: RecordedRank[] = [
    ...ranks.map((r): RecordedRank => ({
      rank: r.rank, nodeId: context.nodeOf?.(r.recording) ?? null, host: r.recording.host, pid: r.recording.pid, missing: false, alive: r.recording.alive, verdict: verdict.of(r),
      lastCompleted: r.last === null ? null : String(r.last), current: r.current ? shown(r.current) : null,
    })),
    ...missing.map((rank): RecordedRank => ({ rank, nodeId: null, host: "", pid: null, missing: true, alive: null, verdict: "missing", lastCompleted: null, current: null })),
  ].sort((a, b) => a.rank - b.rank);
  const culprits = new Set(verdict.culprits);
  const listed = rows.length <= LISTED ? rows : [...rows.filter((r) => culprits.has(r.rank)), ...rows.filter((r) => !culprits.has(r.rank))].slice(0, LISTED);
  return { format: head.format, job: head.job, communicator: head.communicator, worldSize, sequence: verdict.sequence === null ? null : String(verdict.sequence), verdict: verdict.verdict, text: verdict.text, culprits: verdict.culprits.slice(0, LISTED), ranks: listed };
}

function rankOf(rank: number, recording: Recording): Rank {
  const ops = recording.operations.filter((o) => !o.pointToPoint).sort((a, b) => (a.sequence < b.sequence ? -1 : a.sequence > b.sequence ? 1 : 0));
  // A call that was refused (R1xx) leaves the communicator as it was: it has ended.
  const has = (o: Operation): "ended" | "failed" | "open" => o.state === "failed" ? (/^R1\d\d$/.test(o.errorCode ?? "") ? "ended" : "failed") : o.state === "completed" ? "ended" : "open";
  const messages = recording.operations.filter((o) => o.pointToPoint);
  const first = (state: "failed" | "open"): Operation | undefined => ops.find((o) => has(o) === state) ?? messages.find((o) => has(o) === state);
  return {
    rank, recording, ops, current: first("failed") ?? first("open") ?? null,
    last: ops.filter((o) => has(o) === "ended").at(-1)?.sequence ?? null, called: ops.at(-1)?.sequence ?? null,
  };
}

const shown = (o: Operation): RecordedOperation => ({
  sequence: String(o.sequence), collective: o.collective, datatype: o.datatype, redop: o.redop, count: o.count, root: o.root, state: o.state, startedAtMs: o.startedAtMs ?? o.queuedAtMs, waitingFor: o.waitingFor.slice(0, 64),
});

/** What every rank must call alike; counts of PyTorch's inputs differ by rank where it scatters, gathers or exchanges. */
function callOf(r: Rank, at: bigint): string | null {
  const op = r.ops.find((o) => o.sequence === at);
  if (!op) return null;
  const rooted = op.root === null ? "" : ` root ${op.root}`;
  const sized = r.recording.format === "pytorch_nccl" && /^_?(?:scatter|gather|all_?to_?all)/i.test(op.collective) ? "" : ` of ${op.count}`;
  return `${op.collective}${sized} ${op.datatype}${op.redop ? ` ${op.redop}` : ""}${rooted}`;
}

interface Judgement { verdict: HangGroup["verdict"]; sequence: bigint | null; text: Words; culprits: number[]; of(r: Rank): RecordedRank["verdict"] }

function judge(ranks: readonly Rank[], missing: readonly number[], worldSize: number, context: RankContext): Judgement {
  const open = ranks.filter((r) => r.current !== null && r.current.state !== "failed");
  const failed = ranks.filter((r) => r.current?.state === "failed");
  const dead = ranks.filter((r) => r.recording.alive === false && r.current !== null);
  const stopped = ranks.filter((r) => r.recording.alive !== false && context.stopped?.(r.recording) === true);
  const at = [...open, ...failed].reduce<bigint | null>((least, r) => (!r.current!.pointToPoint && (least === null || r.current!.sequence < least) ? r.current!.sequence : least), null);
  const behind = at === null ? [] : ranks.filter((r) => (r.current === null || r.current.pointToPoint) && (r.called === null || r.called < at) && r.recording.alive !== false);
  const isDead = new Set(dead);
  const isStopped = new Set(stopped);
  const isBehind = new Set(behind);
  const base = (r: Rank): RecordedRank["verdict"] =>
    isDead.has(r) ? "dead" : isStopped.has(r) ? "stopped" : r.current?.state === "failed" ? "failed" : isBehind.has(r) ? "behind" : r.current === null ? "done" : "waiting";
  const say = (verdict: HangGroup["verdict"], sequence: bigint | null, en: string, zh: string, culprits: readonly number[], of = base): Judgement => ({ verdict, sequence, text: { en, zh }, culprits: [...culprits], of });
  if (ranks.every((r) => r.current === null)) return say("idle", null, "No rank is inside an operation.", "没有进程处于通信操作中。", []);
  const calls = at === null ? [] : ranks.flatMap((r) => { const call = callOf(r, at); return call === null ? [] : [{ r, call }]; });
  const counts = new Map<string, number>();
  for (const { call } of calls) counts.set(call, (counts.get(call) ?? 0) + 1);
  if (counts.size > 1) {
    const usual = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0]![0];
    const odd = calls.filter((c) => c.call !== usual);
    const first = odd[0]!;
    return say("mismatch", at, `At operation ${at}, ${name(odd.map((o) => o.r.rank))} called ${first.call} where the others called ${usual}.`, `在第 ${at} 个操作，${name(odd.map((o) => o.r.rank), true)} 调用了 ${first.call}，而其他进程调用了 ${usual}。`,
      odd.map((o) => o.r.rank), (r) => (odd.some((o) => o.r === r) ? "different" : base(r)));
  }
  if (at === null) return judgeMessages(ranks, open, failed, dead, stopped, missing, context, base, say);
  const what = calls[0]?.call ?? "an operation";
  if (dead.length > 0) return say("hang", at, `${name(ids(dead))} died inside or before operation ${at} (${what}); the others wait for it.`, `${name(ids(dead), true)} 在第 ${at} 个操作（${what}）之中或之前已退出，其他进程在等待。`, ids(dead));
  if (stopped.length > 0) return say("hang", at, `${name(ids(stopped))} is stopped (SIGSTOP or a debugger) at operation ${at} (${what}); the others wait for it.`, `${name(ids(stopped), true)} 在第 ${at} 个操作（${what}）被暂停（SIGSTOP 或调试器），其他进程在等待。`, ids(stopped));
  if (failed.length > 0) {
    const first = [...failed].sort((a, b) => (a.current!.endedAtMs ?? Infinity) - (b.current!.endedAtMs ?? Infinity) || a.rank - b.rank)[0]!;
    const blamed = failed.flatMap((r) => r.current!.waitingFor).filter((r) => missing.includes(r));
    const code = first.current!.errorCode ? ` (${first.current!.errorCode})` : "";
    if (first.current!.pointToPoint) return failedMessage(first, blamed, say);
    return say("failed", first.current!.sequence, `Operation ${first.current!.sequence} (${what}) failed${code}, first at rank ${first.rank}.`, `第 ${first.current!.sequence} 个操作（${what}）失败${code}，最先在进程 ${first.rank}。`, [...new Set([...blamed, first.rank])]);
  }
  const age = open.reduce((most, r) => Math.max(most, (r.recording.takenAtMs ?? context.nowMs) - (r.current!.startedAtMs ?? r.current!.queuedAtMs ?? context.nowMs)), 0);
  if (missing.length > 0) {
    return say("hang", at, `${name(missing)} of ${worldSize} left no recording: it never joined, or its node could not be read. The others stand at operation ${at} (${what}).`, `${worldSize} 个进程中的 ${name(missing, true)} 没有记录：从未加入，或其节点无法读取。其他进程停在第 ${at} 个操作（${what}）。`, missing);
  }
  if (behind.length > 0 && (age >= HANG_MS || open.every((r) => r.recording.takenAtMs === null))) {
    const far = [...behind].sort((a, b) => Number((a.called ?? -1n) - (b.called ?? -1n)));
    return say("hang", at, `${name(ids(far))} has not called operation ${at} (${what}): its last was ${far[0]!.called ?? "none"}. The others wait for it.`, `${name(ids(far), true)} 尚未调用第 ${at} 个操作（${what}）：其最后一个为 ${far[0]!.called ?? "无"}。其他进程在等待。`, ids(far));
  }
  if (age < HANG_MS) return say("running", at, `Operation ${at} (${what}) is going on.`, `第 ${at} 个操作（${what}）正在进行。`, [], (r) => (base(r) === "waiting" ? "running" : base(r)));
  // All are in it and nobody ends: those whom others wait for, and who wait for nobody themselves.
  const waitedFor = new Map<number, number>();
  for (const r of open) for (const w of r.current!.waitingFor) waitedFor.set(w, (waitedFor.get(w) ?? 0) + 1);
  const free = open.filter((r) => r.current!.waitingFor.length === 0 && waitedFor.has(r.rank));
  const unstarted = open.filter((r) => r.current!.state === "queued" && open.some((o) => o.current!.state === "started"));
  const held = free.length > 0 ? free : unstarted;
  if (held.length > 0) return say("hang", at, `All ranks are in operation ${at} (${what}); the others wait for ${name(ids(held))}, which waits for nobody.`, `所有进程都在第 ${at} 个操作（${what}）中；其他进程在等待 ${name(ids(held), true)}，而它没有等待任何进程。`, ids(held));
  return say("hang", at, `All ranks have stood in operation ${at} (${what}) for ${Math.round(age / 1000)} s, each waiting for another: look at the network between them.`, `所有进程停在第 ${at} 个操作（${what}）已 ${Math.round(age / 1000)} 秒，互相等待：请检查它们之间的网络。`, [...waitedFor].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 1).map(([r]) => r));
}

type Say = (verdict: HangGroup["verdict"], sequence: bigint | null, en: string, zh: string, culprits: readonly number[], of?: Judgement["of"]) => Judgement;

/** "send of 4 float to rank 2" */
const message = (o: Operation): string => `${o.collective} of ${o.count} ${o.datatype}${o.peer === null ? "" : ` ${o.collective === "send" ? "to" : "from"} rank ${o.peer}`}`;

function failedMessage(first: Rank, blamed: readonly number[], say: Say): Judgement {
  const code = first.current!.errorCode ? ` (${first.current!.errorCode})` : "";
  return say("failed", null, `A ${message(first.current!)} failed${code}, first at rank ${first.rank}.`, `${message(first.current!)} 失败${code}，最先在进程 ${first.rank}。`, [...new Set([...blamed, first.rank])]);
}

/** Where nobody is inside a collective: who waits in a send or receive whose other end has not been called. */
function judgeMessages(ranks: readonly Rank[], open: readonly Rank[], failed: readonly Rank[], dead: readonly Rank[], stopped: readonly Rank[], missing: readonly number[], context: RankContext, base: Judgement["of"], say: Say): Judgement {
  const waits = (r: Rank): string => `rank ${r.rank} waits in a ${message(r.current!)}`;
  const first = open[0] ?? failed[0]!;
  if (dead.length > 0) return say("hang", null, `${name(ids(dead))} died; ${waits(first)}.`, `${name(ids(dead), true)} 已退出；进程 ${first.rank} 在等待：${message(first.current!)}。`, ids(dead));
  if (failed.length > 0) return failedMessage([...failed].sort((a, b) => (a.current!.endedAtMs ?? Infinity) - (b.current!.endedAtMs ?? Infinity) || a.rank - b.rank)[0]!, [], say);
  if (stopped.length > 0) return say("hang", null, `${name(ids(stopped))} is stopped (SIGSTOP or a debugger); ${waits(first)}.`, `${name(ids(stopped), true)} 被暂停（SIGSTOP 或调试器）；进程 ${first.rank} 在等待：${message(first.current!)}。`, ids(stopped));
  const age = open.reduce((most, r) => Math.max(most, (r.recording.takenAtMs ?? context.nowMs) - (r.current!.startedAtMs ?? r.current!.queuedAtMs ?? context.nowMs)), 0);
  if (age < HANG_MS) return say("running", null, `A ${message(first.current!)} is going on.`, `${message(first.current!)} 正在进行。`, [], (r) => (base(r) === "waiting" ? "running" : base(r)));
  const byRank = new Map(ranks.map((r) => [r.rank, r]));
  const lonely = open.filter((r) => {
    const o = r.current!;
    const other = o.peer === null ? undefined : byRank.get(o.peer);
    return o.peer !== null && !other?.recording.operations.some((p) => p.pointToPoint && p.collective !== o.collective && p.peer === r.rank && (p.state === "queued" || p.state === "started"));
  });
  // Of a chain of ranks that wait for each other the last one counts: whom it waits for waits for nobody.
  const held = lonely.filter((r) => !lonely.some((l) => l.rank === r.current!.peer));
  const one = held[0] ?? lonely[0];
  if (one) {
    const peer = one.current!.peer!;
    const gone = missing.includes(peer);
    return say("hang", null, `${waits(one)[0]!.toUpperCase()}${waits(one).slice(1)}, and rank ${peer} ${gone ? "left no recording" : `has not called the ${one.current!.collective === "send" ? "receive" : "send"}`}.`,
      `进程 ${one.rank} 在等待：${message(one.current!)}，而进程 ${peer} ${gone ? "没有记录" : "尚未调用对应的操作"}。`, [...new Set((held.length > 0 ? held : lonely).map((r) => r.current!.peer!))].sort((a, b) => a - b));
  }
  return say("hang", null, `Both ends of every message have been called, and nothing has moved for ${Math.round(age / 1000)} s (${waits(first)}): look at the network between them.`, `每条消息的两端都已调用，但 ${Math.round(age / 1000)} 秒内没有进展（进程 ${first.rank}：${message(first.current!)}）：请检查它们之间的网络。`, []);
}

const ids = (ranks: readonly Rank[]): number[] => ranks.map((r) => r.rank);
function name(ranks: readonly number[], zh = false): string {
  const list = ranks.slice(0, 8).join(", ") + (ranks.length > 8 ? (zh ? ` 等 ${ranks.length} 个` : ` and ${ranks.length - 8} more`) : "");
  return zh ? `进程 ${list}` : ranks.length === 1 ? `rank ${list}` : `ranks ${list}`;
}
