import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Collective, type RunRow } from "../contract/index.js";
import { algorithmsOf, modelOf } from "./model.js";

const built = existsSync(join(import.meta.dirname, "../../native/addon/build/Release/stepccl_addon.node"));
const row = (bytes: number, timeUs: number, algorithm = "ring"): RunRow => {
  const timing = { timeUs, algbwGBps: 0, busbwGBps: 0, wrong: 0 };
  return { bytes, count: bytes / 4, datatype: "float", redop: "sum", root: -1, algorithm, transport: "tcp", iterations: 5, outOfPlace: timing, inPlace: timing, expectedTimeUs: null };
};

describe.skipIf(!built)("modelOf, with the addon", () => {
  const load = () => import("../../native/addon/index.js");
  it("finds the parameters that made the times, and expects those times", async () => {
    const addon = await load();
    const truth = { alphaUs: 40, betaUsPerByte: 0.002 };
    const rows = [8, 1024, 65_536, 1 << 20, 1 << 24].map((bytes) => row(bytes, addon.expectedTimeUs({ collective: "all_reduce", algorithm: "ring", worldSize: 3, bytes, ...truth })));
    const { model, expectedUs } = modelOf(addon, "all_reduce", 3, rows);
    expect(model?.alphaUs).toBeCloseTo(40, 1);
    expect(model?.betaUsPerByte).toBeCloseTo(0.002, 5);
    expectedUs.forEach((expected, i) => expect(expected! / rows[i]!.outOfPlace.timeUs).toBeCloseTo(1, 2));
  });
  it("takes a send with its receive as one message", async () => {
    const rows = [1024, 65_536, 1 << 20].map((bytes) => row(bytes, 30 + bytes * 0.001, "direct"));
    const { model, expectedUs } = modelOf(await load(), "send_recv", 4, rows);
    expect(model?.alphaUs).toBeCloseTo(30, 1);
    expect(model?.betaUsPerByte).toBeCloseTo(0.001, 6);
    expectedUs.forEach((expected, i) => expect(expected! / rows[i]!.outOfPlace.timeUs).toBeCloseTo(1, 3));
  });
  it("knows which schedules each collective has among so many ranks", async () => {
    const addon = await load();
    const of3 = algorithmsOf(addon, 3);
    expect(Object.keys(of3)).toEqual([...Collective.options]);
    expect(of3.all_reduce).toEqual(expect.arrayContaining(["auto", "ring"]));
    // Each one named can be timed, and none that is left out can.
    for (const [collective, algorithms] of Object.entries(of3)) {
      for (const algorithm of algorithms) expect(addon.expectedTimeUs({ collective: collective as "barrier", algorithm: algorithm as "ring", worldSize: 3, bytes: 64, alphaUs: 1, betaUsPerByte: 1 })).toBeGreaterThan(0);
    }
    expect(of3.all_reduce).not.toContain("bruck");
  });
  it.each([
    ["no rows", []], ["one size", [row(8, 50)]], ["times of zero", [row(8, 0), row(16, 0)]], ["an algorithm that nobody knows", [row(8, 50, "<b>"), row(16, 60, "<b>")]], ["barriers", [row(0, 50), row(0, 60)]],
  ])("%s: no model, and no error", async (_name, rows) => {
    expect(modelOf(await load(), "all_reduce", 3, rows)).toEqual({ model: null, expectedUs: rows.map(() => null) });
  });
});
