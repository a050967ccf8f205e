import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseBlocks } from "./case-blocks.js";
import { analyse } from "./engine.js";

/** Short inputs in the wordings of many versions, tools and vendors, among them ordinary ones that name faults and have none. */
const FILES = ["variants.blocks", "found/reports.blocks", "found/reports-later.blocks", "found/formats.blocks", "found/formats-short.blocks"];
const cases = FILES.flatMap((file) => parseBlocks(readFileSync(join(import.meta.dirname, "cases", file), "utf8")).map((b) => ({ ...b, file })));

describe("wordings of many versions", () => {
  it.each(cases.map((c) => [`${c.file}: ${c.name}`, c] as const))("%s", (_name, { wanted, severity, inputs }) => {
    const { findings } = analyse(inputs.map((i) => ({ name: i.name, data: i.text })));
    const told = findings.filter((f) => f.severity !== "info").map((f) => f.class);
    const first = findings[0]?.class ?? "nothing";
    if (!(wanted.includes("info") && told.length === 0)) expect(wanted).toContain(first);
    if (severity !== null) expect(findings[0]?.severity).toBe(severity);
  });
  it("has ordinary inputs too, and names of their own", () => {
    expect(cases.length).toBeGreaterThan(450);
    expect(cases.filter((c) => c.wanted[0] === "info").length).toBeGreaterThan(60);
    expect(new Set(cases.map((c) => `${c.file}: ${c.name}`)).size).toBe(cases.length);
  });
  it("refuses a header without a name", () => {
    expect(() => parseBlocks("== gpu.xid_79\nNVRM\n")).toThrow("no case header");
  });
});
