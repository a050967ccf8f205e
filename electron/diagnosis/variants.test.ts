import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { analyse, type Source } from "./engine.js";

/**
 * Short inputs in the wordings of many versions, tools and vendors, among them ordinary ones that name faults and have none. One begins
 * with `== class|class :: name`; `info` stands for "nothing above info"; `-- name` begins another file of it.
 */
interface Variant { name: string; wanted: string[]; sources: Source[] }
function read(path: string): Variant[] {
  return readFileSync(path, "utf8").split(/^== /m).slice(1).map((block) => {
    const end = block.indexOf("\n");
    const [wanted, name] = block.slice(0, end).split(" :: ");
    const [first, ...rest] = block.slice(end + 1).split(/^-- (.+)\n/m);
    const sources: Source[] = first!.trim() === "" ? [] : [{ name: "pasted.txt", data: first! }];
    for (let i = 0; i + 1 < rest.length; i += 2) sources.push({ name: rest[i]!.trim(), data: rest[i + 1]! });
    return { name: name!, wanted: wanted!.split("|"), sources };
  });
}
const variants = read(join(import.meta.dirname, "cases", "variants.txt"));

describe("wordings of many versions", () => {
  it.each(variants.map((v) => [v.name, v] as const))("%s", (_name, { wanted, sources }) => {
    const { findings } = analyse(sources);
    const told = findings.filter((f) => f.severity !== "info").map((f) => f.class);
    const first = findings[0]?.class ?? "nothing";
    if (!(wanted.includes("info") && told.length === 0)) expect(wanted).toContain(first);
  });
  it("has ordinary inputs too, and names of their own", () => {
    expect(variants.length).toBeGreaterThan(150);
    expect(variants.filter((v) => v.wanted[0] === "info").length).toBeGreaterThan(15);
    expect(new Set(variants.map((v) => v.name)).size).toBe(variants.length);
  });
});
