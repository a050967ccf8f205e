import { describe, expect, it } from "vitest";
import { RunSpec } from "../../electron/contract/index.js";
import { endedRun } from "../dev/fake-run.js";
import { draftOf, FIRST_DRAFT, sizeCount, specOf } from "./draft.js";
import { curveOf, decades, niceTop, sizeTicks, timeTick } from "./series.js";

const UP = ["n1", "n2", "n3"];

describe("the form", () => {
  it("asks for every node that is up by default, in a form that the contract takes", () => {
    const { spec } = specOf(FIRST_DRAFT, UP);
    expect(RunSpec.parse(spec)).toMatchObject({ collective: "all_reduce", nodeIds: UP, minBytes: 8, maxBytes: 16 * 1024 ** 2, timeoutMs: 30_000 });
  });
  it("names each field that is wrong", () => {
    const problems = (change: object, up = UP) => specOf({ ...FIRST_DRAFT, ...change }, up).problems;
    expect(problems({ minSize: "x" })).toEqual(["minSize"]);
    expect(problems({ maxSize: "65G" })).toEqual(["maxSize"]);
    expect(problems({ minSize: "16M", maxSize: "8" })).toEqual(["order"]);
    expect(problems({ stepFactor: 1 })).toEqual(["stepFactor"]);
    expect(problems({ iterations: "" })).toEqual(["iterations"]);
    expect(problems({ warmup: -1 })).toEqual(["warmup"]);
    expect(problems({ timeoutSeconds: 0.01 })).toEqual(["timeout"]);
    expect(problems({ ranksPerNode: 65 })).toEqual(["ranksPerNode"]);
    expect(problems({}, [])).toEqual(["noNodes"]);
    expect(problems({}, ["n1"])).toEqual(["ranks"]);
    expect(problems({ ranksPerNode: 2 }, ["n1"])).toEqual([]);
    expect(problems({ transport: "shm" })).toEqual(["shmOneNode"]);
    expect(problems({ nodeIds: new Set(["gone"]) })).toEqual(["noNodes"]);
  });
  it("asks only for what the collective takes", () => {
    const spec = (change: object) => specOf({ ...FIRST_DRAFT, ...change }, UP).spec;
    expect(spec({ collective: "broadcast", root: 2, redop: "max" })).toMatchObject({ root: 2, redop: "sum" });
    expect(spec({ collective: "all_reduce", root: 2, redop: "max" })).toMatchObject({ root: 0, redop: "max" });
    // A barrier moves nothing: what is wrong with the sizes does not matter to it.
    expect(spec({ collective: "barrier", minSize: "x", stepFactor: 1 })).toMatchObject({ minBytes: 8, maxBytes: 8 });
    expect(specOf({ ...FIRST_DRAFT, collective: "reduce", root: 3 }, UP).problems).toEqual(["root"]);
    expect(specOf({ ...FIRST_DRAFT, collective: "reduce", root: 3, ranksPerNode: 2 }, UP).problems).toEqual([]);
  });
  it("comes back from a run as it went in", () => {
    const { spec } = specOf({ ...FIRST_DRAFT, minSize: "1K", transport: "tcp" }, UP);
    const parsed = RunSpec.parse(spec);
    expect(RunSpec.parse(specOf(draftOf(parsed), UP).spec)).toEqual(parsed);
  });
  it("counts sizes as the runtime steps through them", () => {
    expect([sizeCount(8, 16 * 1024 ** 2, 2), sizeCount(8, 8, 2), sizeCount(8, 100, 10), sizeCount(9, 8, 2), sizeCount(8, 64, 1)]).toEqual([22, 1, 2, 0, 0]);
  });
});

describe("curves", () => {
  it("leaves out what a log axis cannot show", () => {
    const run = endedRun("r", { collective: "all_reduce", nodeIds: UP }, 0);
    run.rows[0] = { ...run.rows[0]!, outOfPlace: { timeUs: 0, algbwGBps: 0, busbwGBps: 0, wrong: 0 } };
    const points = curveOf(run, "outOfPlace");
    expect(points).toHaveLength(22);
    expect(points[0]).toMatchObject({ timeUs: null, busbwGBps: 0 });
    expect(curveOf(run, "inPlace")[0]?.timeUs).toBeGreaterThan(0);
  });
  it("draws axes that begin and end on a line", () => {
    expect(decades([12, 9000])).toEqual({ domain: [10, 10_000], ticks: [10, 100, 1000, 10_000] });
    expect(decades([100])).toEqual({ domain: [100, 1000], ticks: [100, 1000] });
    expect(decades([0, NaN])).toBeNull();
    expect(niceTop(2.87)).toEqual({ domain: [0, 3], ticks: [0, 1, 2, 3] });
    expect(niceTop(0.57)).toEqual({ domain: [0, 0.6], ticks: [0, 0.2, 0.4, 0.6] });
    expect(niceTop(0)).toEqual({ domain: [0, 1], ticks: [0, 1] });
    expect(sizeTicks(8, 16 * 1024 ** 2)).toEqual([8, 256, 8192, 262_144, 8_388_608]);
    expect(sizeTicks(8, 8)).toEqual([8]);
    expect([10, 999, 1000, 1e5, 1e6].map(timeTick)).toEqual(["10 µs", "999 µs", "1 ms", "100 ms", "1 s"]);
  });
});
