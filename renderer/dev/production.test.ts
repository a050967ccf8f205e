import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FAKE_MARK } from "./fake-data.js";

describe("the production build", () => {
  let out: string;
  let files: Map<string, string>;
  beforeAll(async () => {
    out = await mkdtemp(join(tmpdir(), "stepccl-page-"));
    await build({ configFile: join(import.meta.dirname, "../vite.config.ts"), mode: "production", logLevel: "error", build: { outDir: out, sourcemap: false } });
    const names = (await readdir(out, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
    files = new Map(await Promise.all(names.map(async (entry) => [entry.name, await readFile(join(entry.parentPath, entry.name), "utf8")] as const)));
  }, 180_000);
  afterAll(() => rm(out, { recursive: true, force: true }));

  it("holds nothing of the scripted host", () => {
    expect([...files].filter(([name, text]) => name.includes("fake") || text.includes(FAKE_MARK)).map(([name]) => name)).toEqual([]);
  });
  it("has no inline script or style, and only relative addresses, so that a strict CSP holds", () => {
    const html = files.get("index.html")!;
    expect(html).not.toMatch(/<script(?![^>]*\bsrc=)/);
    expect(html).not.toMatch(/<style|\son\w+=|style=/);
    expect([...html.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1]!).filter((address) => !address.startsWith("./"))).toEqual([]);
  });
  it("loads recharts only with a page that draws curves", () => {
    const charts = [...files].filter(([name, text]) => name.endsWith(".js") && text.includes("recharts-")).map(([name]) => name);
    expect(charts).not.toEqual([]);
    // What the entry imports by itself, and what that imports: everything that the first visit waits for.
    const first = new Set([/src="\.\/assets\/([^"]+)"/.exec(files.get("index.html")!)![1]!]);
    for (const name of first) for (const match of files.get(name)!.matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) first.add(match[1]!);
    expect(charts.filter((name) => first.has(name))).toEqual([]);
  });
});
