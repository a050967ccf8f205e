import { describe, expect, it } from "vitest";
import type { FindingView, HangView, PairResult } from "../../electron/contract/index.js";
import { fakeHang } from "../dev/fake-pairs.js";
import { toBase64 } from "./files/send.js";
import { cellOf, lastSequences } from "./hangs/sequences.js";
import { heatOf, worstFirst } from "./pairs/heat.js";
import { pairCount } from "./pairs/PairsView.js";
import { markRedacted } from "./support/redacted.js";
import { foldFindings } from "./tree.js";

const finding = (id: string, consequenceOf: string | null = null, severity: FindingView["severity"] = "high"): FindingView => ({ id, consequenceOf, severity }) as FindingView;
const shape = (findings: FindingView[]) => {
  const tree = foldFindings(findings);
  return { roots: tree.roots.map((root) => [root.finding.id, ...root.consequences.map((each) => each.id)]), notes: tree.notes.map((note) => note.id) };
};

describe("folding", () => {
  it("puts whole chains under their cause and keeps the order of blame", () => {
    expect(shape([finding("a"), finding("d"), finding("b", "a"), finding("c", "b")])).toEqual({ roots: [["a", "b", "c"], ["d"]], notes: [] });
  });
  it("leaves nothing out: a cause that is not there, one that is a note, and a ring", () => {
    expect(shape([finding("b", "gone"), finding("n", null, "info"), finding("x", "n")])).toEqual({ roots: [["b"], ["x"]], notes: ["n"] });
    expect(shape([finding("p", "q"), finding("q", "p")]).roots.flat().sort()).toEqual(["p", "q"]);
  });
});

describe("heat", () => {
  it("goes from the best to the worst on a logarithmic scale, and sees no difference in noise", () => {
    const latency = heatOf([10, 20, 40], "latency");
    expect([latency(10), latency(20), latency(40)]).toEqual([0, 0.5, 1]);
    const bandwidth = heatOf([10, 40], "bandwidth");
    expect([bandwidth(40), bandwidth(10)]).toEqual([0, 1]);
    expect([9, 10, 11].map(heatOf([9, 10, 11], "latency"))).toEqual([0, 0, 0]);
    expect(heatOf([], "latency")(5)).toBe(0);
  });
  it("lists failed pairs first, then the worst, then those without a value", () => {
    const result = (from: string, state: PairResult["state"], latencyUs: number | null) => ({ from, state, latencyUs, bandwidthGBps: null }) as PairResult;
    expect(worstFirst([result("a", "ok", 5), result("b", "pending", null), result("c", "failed", null), result("d", "ok", 50)], "latency").map((each) => each.from)).toEqual(["c", "d", "a", "b"]);
  });
  it("counts pairs as the sampling makes them", () => {
    expect([pairCount(1, "all", 9), pairCount(4, "all", 9), pairCount(4, "ring", 9), pairCount(4, "random", 9), pairCount(2, "random", 9)]).toEqual([0, 12, 4, 9, 2]);
  });
});

describe("last operations", () => {
  const group = fakeHang(0).groups[0]!;
  it("are the newest that any rank reached", () => {
    expect(lastSequences(group)).toEqual([126, 127, 128]);
    const ranks = group.ranks.map((rank, index) => ({ ...rank, lastCompleted: String(index * 1000), current: null }));
    expect(lastSequences({ ...group, ranks })).toHaveLength(8);
    expect(lastSequences({ ...group, ranks: ranks.map((rank) => ({ ...rank, lastCompleted: "0x1f" })) })).toEqual([]);
  });
  it("say where each rank stands, and nothing of one that left no recording", () => {
    expect([126, 127, 128].map((sequence) => cellOf(group.ranks[2]!, sequence))).toEqual(["completed", "started", "not_reached"]);
    const missing: HangView["groups"][number]["ranks"][number] = { ...group.ranks[0]!, missing: true, lastCompleted: null, current: null };
    expect(cellOf(missing, 126)).toBe("unknown");
  });
});

describe("files on their way", () => {
  it("are Base64 whatever their bytes and length", () => {
    const bytes = Uint8Array.from({ length: 100_003 }, (_, index) => (index * 7) % 256);
    expect(Buffer.from(toBase64(bytes), "base64").equals(Buffer.from(bytes))).toBe(true);
    expect(toBase64(new Uint8Array())).toBe("");
  });
  it("have their stand-ins marked, and nothing else", () => {
    const marked = (text: string) => markRedacted(text).filter((part) => part.redacted).map((part) => part.text);
    expect(marked("host-1 at 198.18.0.12 and 10.0.0.1, hostile-1, <secret-3>")).toEqual(["host-1", "198.18.0.12", "secret-3"]);
    expect(marked("0000:0000:0000:0000:0000:ffff:c612:0001 02:00:00:00:00:07 52:54:00:77:00:01")).toEqual(["ffff:c612:0001", "02:00:00:00:00:07"]);
    expect(markRedacted("plain").map((part) => part.text).join("")).toBe("plain");
  });
});
