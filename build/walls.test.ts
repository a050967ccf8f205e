import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const root = join(import.meta.dirname, "..");

/** Every file under `folder` that ends in one of `endings`, build outputs left out. */
function files(folder: string, endings: readonly string[]): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((path) => endings.some((ending) => path.endsWith(ending)) && !/(^|\/)(node_modules|build)\//.test(path))
    .map((path) => join(folder, path));
}
const includesOf = (path: string): string[] =>
  [...readFileSync(join(root, path), "utf8").matchAll(/^\s*#\s*include\s*[<"]([^>"\n]{1,200})[>"]/gm)].map((match) => match[1] ?? "");

const CPP = [".h", ".hpp", ".c", ".cc", ".cpp", ".cu"];

describe("the walls between the native rooms", () => {
  it("libstepccl knows neither the daemon nor Node", () => {
    const bad = files("native", CPP).filter((path) => !path.startsWith("native/addon/"))
      .flatMap((path) => includesOf(path).filter((name) => /(^|\/)agent\/|^napi\.h$|^node_api\.h$/.test(name)).map((name) => `${path}: ${name}`));
    expect(bad).toEqual([]);
  });

  it("the daemon links no CUDA and opens no shared library", () => {
    const sources = files("agent", CPP);
    expect(sources.length).toBeGreaterThan(3);
    const bad = sources.flatMap((path) => includesOf(path).filter((name) => /cuda|nvml|^dlfcn\.h$/.test(name)).map((name) => `${path}: ${name}`));
    expect(bad).toEqual([]);
  });

  it("the driver shares nothing but its uapi header", () => {
    const bad = files("native", CPP).concat(files("agent", CPP))
      .flatMap((path) => includesOf(path).filter((name) => /driver\//.test(name) && !/driver\/include\/uapi\//.test(name)).map((name) => `${path}: ${name}`));
    expect(bad).toEqual([]);
  });
});

describe("the top level", () => {
  it("holds the folders of the house and no other", () => {
    const folders = readdirSync(root, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !entry.name.startsWith(".") && !["node_modules", "test-results"].includes(entry.name)).map((entry) => entry.name).sort();
    expect(folders).toEqual(["agent", "build", "driver", "e2e", "electron", "native", "renderer"]);
  });
});
