import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadBundle, type Bundle } from "./bundle.js";
import { runScript, type Fields } from "./remote.js";
import { DRIVER_BUILD } from "./scripts/driver.js";
import { FakeNode } from "./testing/fakes.js";

const bundleDir = join(import.meta.dirname, "../../build/out/bundle");
const kernel = existsSync("/lib/modules") ? readdirSync("/lib/modules").find((release) => existsSync(`/lib/modules/${release}/build/Makefile`)) : undefined;
/** A mount namespace in which this user may put a folder of its own at /opt and /run. */
const namespaces = spawnSync("unshare", ["-rm", "true"]).status === 0;
const missing = !existsSync(join(bundleDir, "manifest.json")) ? "no bundle is built" : kernel === undefined ? "no kernel headers are installed" : namespaces ? null : "unshare -rm is not permitted";

/** The node's part of a bring-up where the bundle has no module for its kernel, with the bundle that is really sent. */
describe.skipIf(missing !== null)(`the module built on the node${missing === null ? "" : ` (skipped: ${missing})`}`, () => {
  let folder: string;
  let bundle: Bundle;
  const place = (): string => join(folder, "opt/stepccl/releases", bundle.release);
  const build = (release: string): Promise<Fields> => runScript(new FakeNode("here", (command, options) => {
    const inside = `mount --bind "$1/opt" /opt && mount -t tmpfs none /run && exec /bin/sh -c "$2"`;
    const done = spawnSync("unshare", ["-rm", "/bin/sh", "-c", inside, "sh", folder, command], { input: String(options.stdin ?? ""), encoding: "utf8" });
    return { status: done.status ?? 1, stdout: done.stdout, stderr: done.stderr };
  }), "here", "building the module", DRIVER_BUILD, [bundle.release, release], { timeoutMs: 300_000 });

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "stepccl-node-"));
    bundle = await loadBundle(bundleDir);
    mkdirSync(place(), { recursive: true });
    mkdirSync(join(folder, "opt/stepccl/.tx"), { recursive: true });
    execFileSync("tar", ["-xzf", bundle.archivePath, "-C", place(), "--no-same-owner", "--preserve-permissions"]);
  });
  afterAll(() => {
    chmodSync(folder, 0o700);
    rmSync(folder, { recursive: true, force: true });
  });

  it("comes from folders and files that everybody may read, with a header that compiles alone", () => {
    const listed = execFileSync("tar", ["-tvzf", bundle.archivePath], { encoding: "utf8" }).trim().split("\n");
    expect(listed.filter((line) => line.startsWith("d") && !line.startsWith("drwxr-xr-x "))).toEqual([]);
    execFileSync("cc", ["-fsyntax-only", "-x", "c", "-std=c11", `-I${join(place(), "include")}`, join(place(), "include/stepccl/stepccl.h")]);
  });
  it("is for the node's kernel, and is built once", async () => {
    const fields = await build(kernel!);
    expect(fields.one("detail")).toBeNull();
    expect(fields.one("built")).toBe(`/opt/stepccl/releases/${bundle.release}/built/${kernel!}/dma_engine.ko`);
    const module = join(place(), "built", kernel!, "dma_engine.ko");
    expect(execFileSync("modinfo", ["-F", "vermagic", module], { encoding: "utf8", env: { ...process.env, PATH: `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin` } })).toMatch(new RegExp(`^${kernel!.replaceAll(".", "\\.")} `));
    const madeMs = statSync(module).mtimeMs;
    expect((await build(kernel!)).one("built")).toBe(fields.one("built"));
    expect(statSync(module).mtimeMs).toBe(madeMs);
  }, 300_000);
  it("without the kernel's headers: says so and leaves nothing", async () => {
    const fields = await build("6.99.0-none");
    expect(fields.one("failed")).toBe("build");
    expect(fields.one("detail")).toContain("no kernel headers for 6.99.0-none");
    expect(existsSync(join(place(), "built/6.99.0-none"))).toBe(false);
  });
});
