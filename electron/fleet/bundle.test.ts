import { appendFileSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { describeBundle, loadBundle } from "./bundle.js";
import { KERNELS, makeBundle, MINIMAL } from "./testing/bundle.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "stepccl-bundle-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe("the bundle", () => {
  it("is read with its manifest and checked against its archive", async () => {
    const at = makeBundle(dir, MINIMAL, KERNELS);
    const bundle = await loadBundle(at);
    expect(bundle.kernels).toEqual(KERNELS);
    expect(bundle.has("bin/stepccld")).toBe(true);
    expect(bundle.has("bin/stepccl-dma")).toBe(false);
    expect(await describeBundle(at)).toEqual({ version: bundle.release, kernels: ["6.1.0"] });
    expect(await describeBundle(join(dir, "none"))).toBeNull();
  });

  const damage: [string, (at: string) => void, RegExp][] = [
    ["no manifest", (at) => rmSync(join(at, "manifest.json")), /no manifest/],
    ["half a manifest", (at) => truncateSync(join(at, "manifest.json"), 40), /no JSON/],
    ["a missing archive", (at) => rmSync(join(at, manifest(at).archive)), /is missing/],
    ["a longer archive", (at) => appendFileSync(join(at, manifest(at).archive), "x"), /bytes, not/],
    ["other bytes", (at) => flip(join(at, manifest(at).archive)), /another sha256/],
    ["a path that leaves the archive", (at) => rewrite(at, (m) => { m.files[0].path = "../../etc/passwd"; }), /files/],
    ["a path that a shell would read", (at) => rewrite(at, (m) => { m.files[0].path = "a;reboot"; }), /files/],
    ["an archive elsewhere", (at) => rewrite(at, (m) => { m.archive = "../x.tar.gz"; }), /is a path/],
    ["no daemon", (at) => rewrite(at, (m) => { m.files = m.files.filter((f: { path: string }) => f.path !== "bin/stepccld"); }), /lacks bin\/stepccld/],
    ["a kernel whose module is not in it", (at) => rewrite(at, (m) => { m.kernels["6.9.9"] = "driver/6.9.9/dma_engine.ko"; }), /lacks driver/],
    ["a release that looks like a temporary name", (at) => rewrite(at, (m) => { m.release = "1.part"; }), /temporary/],
  ];
  it.each(damage)("with %s is refused", async (_name, spoil, detail) => {
    const at = makeBundle(dir, MINIMAL, KERNELS);
    spoil(at);
    await expect(loadBundle(at)).rejects.toMatchObject({ view: { code: "H313", params: { detail: expect.stringMatching(detail) } } });
  });
});

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- the point is to write what the schema refuses
type Loose = any;
const manifest = (at: string): Loose => JSON.parse(readFileSync(join(at, "manifest.json"), "utf8"));
function rewrite(at: string, change: (m: Loose) => void): void {
  const m = manifest(at);
  change(m);
  writeFileSync(join(at, "manifest.json"), JSON.stringify(m));
}
function flip(path: string): void {
  const bytes = readFileSync(path);
  bytes[bytes.length - 1] = (bytes[bytes.length - 1] ?? 0) ^ 0xff;
  writeFileSync(path, bytes);
}
