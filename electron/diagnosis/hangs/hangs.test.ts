import { describe, expect, it } from "vitest";
import { HangView, type ConsoleError } from "../../contract/index.js";
import { mergeRecordings } from "./merge.js";
import { readRecorders, readRecordingFile } from "./recording.js";
import { hangsOfFiles } from "./service.js";

const NOW = 1_764_520_000_000;
const ns = (secondsAgo: number): string => String(BigInt(NOW - secondsAgo * 1000) * 1_000_000n);
type Op = Record<string, unknown>;
const op = (sequence: number, more: Op = {}): Op => ({
  sequence: String(sequence), collective: "all_reduce", datatype: "float32", redop: "sum", count: "1024", bytes: "4096", root: 0, algorithm: "ring", transport: "rdma", state: "completed",
  queued_at_unix_ns: ns(60), started_at_unix_ns: ns(60), ended_at_unix_ns: ns(59), error_code: null, waiting_for: [], ...more,
});
const open = (sequence: number, more: Op = {}): Op => op(sequence, { state: "started", ended_at_unix_ns: null, ...more });
const rec = (rank: number, operations: Op[], more: Op = {}): Op => ({ format: "stepccl-flight-recorder", version: 1, job: "j", communicator: "00000000000000ab", rank, world_size: 3, hostname: `n${rank}`, pid: 100 + rank, alive: true, taken_at_unix_ns: ns(0), operations, ...more });
const merge = (recorders: Op[], stopped: number[] = []) => mergeRecordings(readRecorders(recorders, (p) => { throw new Error(p); }), { nowMs: NOW, stopped: (r) => stopped.includes(r.rank) })[0]!;

describe("recorders of all ranks, merged", () => {
  it.each([
    ["behind", [rec(0, [op(1), open(2)]), rec(1, [op(1), open(2)]), rec(2, [op(1)])], [], "hang", [2], "behind"],
    ["missing", [rec(0, [op(1), open(2)]), rec(2, [op(1), open(2)])], [], "hang", [1], "missing"],
    ["dead", [rec(0, [open(2)]), rec(1, [open(2)], { alive: false }), rec(2, [open(2)])], [], "hang", [1], "dead"],
    ["stopped", [rec(0, [open(2, { waiting_for: [2] })]), rec(1, [open(2, { waiting_for: [0] })]), rec(2, [open(2, { waiting_for: [1] })])], [2], "hang", [2], "stopped"],
    ["other size", [rec(0, [open(2)]), rec(1, [open(2, { count: "2048" })]), rec(2, [open(2)])], [], "mismatch", [1], "different"],
    ["other call", [rec(0, [open(2)]), rec(1, [open(2)]), rec(2, [open(2, { collective: "broadcast" })])], [], "mismatch", [2], "different"],
    ["waited for", [rec(0, [open(2, { waiting_for: [1] })]), rec(1, [open(2)]), rec(2, [open(2, { waiting_for: [1] })])], [], "hang", [1], "waiting"],
    ["failed first", [rec(0, [op(2, { state: "failed", ended_at_unix_ns: ns(5), error_code: "R302" })]), rec(1, [op(2, { state: "failed", ended_at_unix_ns: ns(9), error_code: "R203" })]), rec(2, [open(2)])], [], "failed", [1], "failed"],
  ] as const)("%s", (_name, recorders, stopped, verdict, culprits, of) => {
    const g = merge([...recorders], [...stopped]);
    expect(g).toMatchObject({ verdict, sequence: "2", culprits });
    expect(g.ranks.find((r) => r.rank === culprits[0])!.verdict).toBe(of);
    expect(g.text.en).toMatch(new RegExp(`\\b${culprits[0]}\\b`));
    expect(g.text.zh).toMatch(/[\u4e00-\u9fff]/);
  });
  it("what goes on is no hang, and what ended is idle", () => {
    expect(merge([0, 1, 2].map((r) => rec(r, [open(7, { queued_at_unix_ns: ns(1), started_at_unix_ns: ns(1) })])))).toMatchObject({ verdict: "running", culprits: [] });
    expect(merge([0, 1, 2].map((r) => rec(r, [op(7)])))).toMatchObject({ verdict: "idle", culprits: [] });
    expect(merge([rec(0, [open(8, { queued_at_unix_ns: ns(2), started_at_unix_ns: ns(2) })]), rec(1, [op(7)]), rec(2, [op(7)])]).verdict).toBe("running");
  });
  it("sends and receives do not count: each rank has its own", () => {
    expect(merge([rec(0, [op(1, { collective: "send" }), open(2)]), rec(1, [op(1, { collective: "recv" }), open(2)]), rec(2, [open(2)])]).verdict).toBe("hang");
  });
  it("an unmatched send or receive names the rank that has not called its other end", () => {
    const send = (to: number, more: Op = {}): Op => open(1, { collective: "send", root: null, peer: to, redop: null, waiting_for: [to], ...more });
    const recv = (from: number, more: Op = {}): Op => open(1, { collective: "recv", root: null, peer: from, redop: null, waiting_for: [from], ...more });
    const lonely = merge([rec(0, [op(4), send(1)]), rec(1, [op(4)]), rec(2, [op(4)])]);
    expect(lonely).toMatchObject({ verdict: "hang", sequence: null, culprits: [1] });
    expect(lonely.text.en).toBe("Rank 0 waits in a send of 1024 float32 to rank 1, and rank 1 has not called the receive.");
    expect(lonely.text.zh).toMatch(/[\u4e00-\u9fff]/);
    // 0 waits for 1, which waits for 2, which waits for nobody.
    expect(merge([rec(0, [recv(1)]), rec(1, [recv(2)]), rec(2, [op(4)])]).culprits).toEqual([2]);
    expect(merge([rec(0, [send(1)]), rec(1, [recv(0)]), rec(2, [])]).text.en).toContain("network");
    expect(merge([rec(0, [send(1, { queued_at_unix_ns: ns(1), started_at_unix_ns: ns(1) })]), rec(1, []), rec(2, [])]).verdict).toBe("running");
    expect(merge([rec(0, [send(2)]), rec(1, [])])).toMatchObject({ verdict: "hang", culprits: [2] });
    expect(merge([rec(0, [send(1, { state: "failed", ended_at_unix_ns: ns(2), error_code: "R203" })]), rec(1, []), rec(2, [])])).toMatchObject({ verdict: "failed", culprits: [0] });
    // A rank in a receive has not called the collective that the others are in.
    expect(merge([rec(0, [op(1), open(2)]), rec(1, [op(1), recv(0)]), rec(2, [op(1), open(2)])])).toMatchObject({ verdict: "hang", sequence: "2", culprits: [1] });
  });
  it("queued operations behind the one that hangs, and refused calls, mislead nobody", () => {
    const queued = (sequence: number): Op => open(sequence, { state: "queued", started_at_unix_ns: null });
    expect(merge([rec(0, [open(2), queued(3), queued(4)]), rec(1, [open(2), queued(3)]), rec(2, [op(1)])])).toMatchObject({ verdict: "hang", sequence: "2", culprits: [2] });
    const refused = op(1, { state: "failed", error_code: "R103" });
    expect(merge([0, 1, 2].map((r) => rec(r, [refused, op(2)])))).toMatchObject({ verdict: "idle" });
  });
  it("a process that was started anew replaces the one that died", () => {
    const g = merge([rec(0, [op(9)]), rec(1, [open(3)], { alive: false }), rec(1, [op(9)]), rec(2, [op(9)])]);
    expect(g).toMatchObject({ verdict: "idle", worldSize: 3 });
  });
  it("twenty thousand ranks and 64-bit numbers are merged", () => {
    const many = Array.from({ length: 20_000 }, (_, rank) => rec(rank, [rank === 777 ? op(1) : open(2, { count: "18446744073709551615" })], { world_size: 20_000 }));
    expect(merge(many)).toMatchObject({ verdict: "hang", culprits: [777] });
  }, 60_000);
});

describe("files", () => {
  const torch = (state: string, seq: number, more: Op = {}): string => JSON.stringify({
    version: "2.5", pg_config: { 0: { name: "0", desc: "default_pg", ranks: "[0, 1]" } },
    entries: [{ record_id: 0, pg_id: 0, process_group: ["0", "default_pg"], collective_seq_id: seq, p2p_seq_id: 0, profiling_name: "nccl:all_reduce", time_created_ns: Number(BigInt(ns(100))), input_sizes: [[3, 4]], input_dtypes: ["Float"], state, time_discovered_started_ns: null, time_discovered_completed_ns: null, retired: false, is_p2p: false, ...more }],
  });
  const file = (name: string, text: string) => ({ name, sizeBytes: text.length, async *stream() { yield Buffer.from(text); } });
  const signal = new AbortController().signal;

  it("PyTorch's recordings: the rank that is behind, and the one with another size", async () => {
    const behind = await hangsOfFiles([file("nccl_trace_rank_0.json", torch("started", 5)), file("nccl_trace_rank_1.json", torch("completed", 4))], signal);
    expect(HangView.parse(behind).groups[0]).toMatchObject({ format: "pytorch_nccl", verdict: "hang", culprits: [1], sequence: "5", worldSize: 2 });
    const odd = await hangsOfFiles([file("rank_0", torch("started", 5)), file("rank_1", torch("scheduled", 5, { input_sizes: [[3, 5]] }))], signal);
    expect(odd.groups[0]).toMatchObject({ verdict: "mismatch", text: { en: expect.stringContaining("all_reduce of 15 Float") } });
  });
  it("StepCCL's own, alone or as the daemon answers", async () => {
    const view = await hangsOfFiles([file("a.json", JSON.stringify(rec(0, [open(2)]))), file("b.json", JSON.stringify({ recorders: [rec(1, [open(2)]), rec(2, [op(1)])] }))], signal);
    expect(view.groups[0]).toMatchObject({ format: "stepccl", verdict: "hang", culprits: [2] });
  });
  it("what is no recording is told, and the others stay", async () => {
    const bad = ["", "{}", "[]", "null", "not json", "\u0080\u0004pickle", JSON.stringify({ ...rec(0, []), rank: -1 }), JSON.stringify({ ...rec(0, []), world_size: 1e9 }), JSON.stringify(rec(0, [op(1, { waiting_for: [1e12] })])), JSON.stringify(rec(0, [op(1, { sequence: "99999999999999999999999" })])), `${"[".repeat(5000)}${"]".repeat(5000)}`];
    const view = await hangsOfFiles([...bad.map((text, i) => file(`bad-${i}`, text)), file("good.json", JSON.stringify(rec(0, [open(2)])))], signal);
    expect(view.unread).toHaveLength(bad.length);
    expect(view.unread.every((u) => u.error.code === "H608")).toBe(true);
    expect(view.groups).toHaveLength(1);
  });
  it("hostile names are cleaned", () => {
    const [r] = readRecordingFile("x.json", JSON.stringify(rec(0, [op(1, { collective: "all\u001b[31m_reduce<script>\u202e" })], { hostname: "h\n\u0000x" })));
    expect(r!.host).toBe("h x");
    expect(r!.operations[0]!.collective).not.toMatch(/[\u0000-\u001f\u202e]/);
  });
  it("PyTorch's file without a rank in its name is refused with a reason", () => {
    try { readRecordingFile("dump", torch("started", 1)); expect.unreachable(); } catch (error) { expect((error as ConsoleError).view.message).toContain("rank"); }
  });
});
