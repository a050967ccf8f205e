import { describe, expect, it } from "vitest";
import { GpuProcessView, PoolMapView, type GpuProcessView as View } from "../contract/index.js";
import { GpuProcess } from "../link/gpu-schemas.js";
import { PoolHistory, POINTS } from "./pool-history.js";
import { toldProcess } from "./testing.js";
import { acksOf, processView, rangesOf } from "./view.js";

const NOW = 1_000_000;
const parse = (more: Record<string, unknown> = {}): GpuProcess => GpuProcess.parse(toldProcess(more));
const view = (more: Record<string, unknown> = {}): View => GpuProcessView.parse(processView(parse(more), NOW, null));
const pool = (more: Record<string, unknown>): Record<string, unknown> => ({ pool: { ...(toldProcess().pool as object), ...more } });

describe("what a process says", () => {
  it("comes in the contract's terms, its ages as times of the console", () => {
    expect(view()).toMatchObject({
      key: "4242.0.00000000deadbeef", job: "train-7b", updatedAtMs: NOW - 100, asyncLevel: "stream", smBudget: 0, pageBytes: 0, gpuIndex: null,
      pool: { capacityBytes: 512 * 1024 ** 2, fragmentationPermille: 250 }, defrag: { intervalMs: 500, blocked: null, last: { atMs: NOW - 5000, heldBackUs: 900, beforePermille: 400, afterPermille: 250 } },
    });
  });
  it("may lack what its version does not tell: null, never a zero", () => {
    const { operations, sm_budget, ...rest } = toldProcess() as Record<string, unknown>;
    expect([operations, sm_budget]).toEqual([12, null]);
    const told = processView(GpuProcess.parse({ ...rest, gpu: {}, async: {}, graphs: {}, paging: {}, pool: { ranges: [], ranges_omitted: 0 }, defrag: {} }), NOW, null);
    expect(told).toMatchObject({ operations: null, smBudget: null, pageBytes: null, gpuUuid: null, asyncLevel: null, pool: { heldBytes: null, largestFreeBytes: null }, defrag: { intervalMs: null, last: null } });
  });
  it("is text without control characters, of bounded length", () => {
    const evil = view({ job: `\u001b[2J\u202eevil\u0000${"x".repeat(900)}`, async: { level: "nic", reason: "a\nb\u0007" } });
    expect(evil.job).not.toMatch(/[\u0000-\u001f\u202e]/);
    expect(evil.job!.length).toBeLessThanOrEqual(64);
    expect(evil.asyncReason).toBe("a b");
  });
  it.each([
    ["no object", "x"], ["a communicator that is a path", { ...toldProcess(), communicator: "../../etc/passwd" }], ["a negative size", toldProcess(pool({ held_bytes: -1 }))], ["a text for a number", toldProcess({ pid: "1" })],
    ["an error code that is none", toldProcess({ error_code: "<b>" })], ["too many ranges", toldProcess(pool({ ranges: Array.from({ length: 5000 }, () => ({ offset_bytes: 0, bytes: 1, kind: "free" })) }))],
    ["too many settings", toldProcess({ settings: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`s${i}`, { state: "own", reason: null, wanted: null, in_force: 1 }])) })],
  ])("with %s is refused", (_name, told) => expect(GpuProcess.safeParse(told).success).toBe(false));
  it("may be any 64-bit number without harm", () => {
    const told = view({ age_ms: 2 ** 64, ...pool({ capacity_bytes: 2 ** 64 - 1, fragmentation_permille: 4e9, ranges: [], ranges_omitted: 0 }) });
    expect(told.updatedAtMs).toBe(0);
    expect(told.pool.capacityBytes).toBeGreaterThan(1e19);
  });
});

describe("acknowledgements", () => {
  it("are those of the console's settings, in their order", () => {
    expect(acksOf(parse().settings)).toEqual([
      { setting: "pipeline_depth", state: "own", reason: null, wanted: null, inForce: 4 }, { setting: "hbm_defrag", state: "applied", reason: null, wanted: true, inForce: true },
      { setting: "sm_budget", state: "refused", reason: "out_of_range", wanted: 32, inForce: 8 },
    ]);
  });
  it("of a newer runtime: an unknown reason is said to be unknown, an unknown setting or state is left out, a value of the wrong kind is not known", () => {
    const row = (more: object) => ({ state: "pending", reason: null, wanted: 1, in_force: 1, ...more });
    expect(acksOf(parse({ settings: { sm_budget: row({ reason: "moon_phase" }), prefetch_depth: row({ reason: "needs_other" }), hbm_defrag: row({}), paging: row({ state: "asleep" }), warp_drive: row({}) } }).settings)).toEqual([
      { setting: "hbm_defrag", state: "pending", reason: null, wanted: null, inForce: null }, { setting: "prefetch_depth", state: "pending", reason: "needs_switch", wanted: 1, inForce: 1 }, { setting: "sm_budget", state: "pending", reason: "unknown", wanted: 1, inForce: 1 },
    ]);
  });
});

describe("the map", () => {
  it("is by address, without what cannot be; what is left out is counted", () => {
    const range = (offset_bytes: number, bytes: number, kind = "buffer") => ({ offset_bytes, bytes, kind });
    const { ranges, omitted } = rangesOf(parse(pool({ ranges_omitted: 5, ranges: [range(100, 10), range(0, 50), range(40, 20), range(200, 0), range(300, 1, "lava"), range(2 ** 60, 1), range(400, 2 ** 60), range(50, 50, "free")] })).pool);
    expect(ranges).toEqual([{ offset: 0, bytes: 50, kind: "buffer" }, { offset: 50, bytes: 50, kind: "free" }, { offset: 100, bytes: 10, kind: "buffer" }]);
    expect(omitted).toBe(5 + 5);
  });
  it("before the last epoch is the one that was seen last before bytes were moved or released", () => {
    const history = new PoolHistory();
    const at = (ageMs: number, moved: number, ranges: unknown[]) => {
      const raw = parse({ age_ms: ageMs, ...pool({ ranges }), defrag: { ...(toldProcess().defrag as object), moved_bytes: moved } });
      history.add(processView(raw, NOW, null), rangesOf(raw.pool));
    };
    const free = { offset_bytes: 0, bytes: 7, kind: "free" };
    at(3000, 0, [free]);
    expect(history.view().before).toBeNull();
    at(2000, 0, [free, { ...free, offset_bytes: 20 }]);
    at(2000, 9, []);
    expect(PoolMapView.parse(history.view()).before).toBeNull();
    at(1000, 9, []);
    expect(history.view()).toMatchObject({ ranges: [], before: { seenAtMs: NOW - 2000, ranges: [{ offset: 0 }, { offset: 20 }] } });
    expect(history.view().history).toHaveLength(3);
  });
  it("keeps a bounded curve", () => {
    const history = new PoolHistory();
    for (let i = 0; i < POINTS * 2; i++) history.add({ ...view(), updatedAtMs: i * 1000 }, { ranges: [], omitted: 0 });
    expect(history.view().history).toHaveLength(POINTS);
    expect(history.view().history.at(-1)?.atMs).toBe((POINTS * 2 - 1) * 1000);
  });
});
