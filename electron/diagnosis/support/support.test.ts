import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { create } from "tar";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { OpenedBundle, SupportBundleView, type DiagnosisView, type NodeView } from "../../contract/index.js";
import { Uploads } from "../uploads.js";
import { Support } from "./service.js";

let dir: string;
let uploads: Uploads;
let support: Support;
const XID = "[ 10.2] gpu-07 NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus. from 10.77.0.12\n";
const node = { id: "n1", name: "gpu-07", host: "gpu-07.example.org", user: "alice", jump: ["bob@bastion:22"], phase: "up", keyPath: "/home/alice/.ssh/id", hostKey: { offered: "SHA256:x" }, facts: { hostname: "gpu-07.example.org" } } as unknown as NodeView;
const view: DiagnosisView = { nodeId: "n1", startedAtMs: 1, endedAtMs: 2, state: "done", verdict: "cause_found", findings: [], cannotTell: [], error: null, sources: [{ id: "kernel_log", command: "dmesg", state: "ok", collectedAtMs: 1, durationMs: 1, text: XID, truncatedBytes: 0, error: null }] };
const live = new AbortController().signal;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "support-"));
  uploads = new Uploads(join(dir, "uploads"));
  support = new Support({ folder: join(dir, "support"), version: "1.2.3", uploads, nodes: { list: () => [node], get: (id) => (id === "n1" ? node : undefined) }, diagnosis: { view: () => view, collected: () => undefined }, operations: () => [], mends: () => [] });
});
afterEach(async () => {
  await support.close();
  await uploads.close();
  await rm(dir, { recursive: true, force: true });
});
async function send(bytes: Buffer): Promise<string> {
  const { uploadId } = await uploads.begin("b.tar.gz", bytes.length);
  for (let at = 0; at < bytes.length; at += 100_000) await uploads.append(uploadId, at, bytes.subarray(at, at + 100_000).toString("base64"));
  return uploadId;
}
const codeOf = async (work: Promise<unknown>): Promise<string> => work.then(() => "none", (e: { view?: { code: string } }) => e.view?.code ?? String(e));

describe("a support bundle", () => {
  it("is redacted, can be looked at, and opens again with the same findings", async () => {
    const bundle = SupportBundleView.parse(await support.prepare([]));
    expect(bundle.files.map((f) => f.name)).toEqual(["manifest.json", "nodes.json", "operations.json", "mends.json", "diagnoses.json", "sources/node-1/kernel_log.txt"]);
    const kernel = await support.preview(bundle.bundleId, "sources/node-1/kernel_log.txt");
    expect(kernel.text).toBe("[ 10.2] host-1 NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus. from 198.18.0.1\n");
    for (const { name } of bundle.files) expect((await support.preview(bundle.bundleId, name)).text, name).not.toMatch(/gpu-07|alice|bob|bastion|10\.77|id_|SHA256/);
    let bytes = Buffer.alloc(0);
    for (let at = 0; at < bundle.sizeBytes;) { const piece = await support.read(bundle.bundleId, at); bytes = Buffer.concat([bytes, Buffer.from(piece.base64, "base64")]); at = piece.nextOffset; }
    expect(bytes.length).toBe(bundle.sizeBytes);
    const opened = OpenedBundle.parse(await support.open(await send(bytes), live));
    expect(opened).toMatchObject({ version: "1.2.3", nodes: [{ name: "host-1", phase: "up" }], diagnoses: [{ nodeId: "n1" }] });
    expect(opened.judged.findings[0]!.class).toBe("gpu.xid_79");
    expect(await support.openFile(await send(bytes), "sources/node-1/kernel_log.txt")).toMatchObject({ text: kernel.text, truncatedBytes: 0 });
  });
  it("nothing is left behind, and names that are not its own give nothing", async () => {
    const { bundleId } = await support.prepare(["n1"]);
    for (const name of ["../../etc/passwd", "/etc/passwd", "nothing", "sources/../../x"]) expect(await codeOf(support.preview(bundleId, name))).toBe("H609");
    expect(await codeOf(support.prepare(["n9"]))).toBe("H301");
    expect(await codeOf(support.read("nobody", 0))).toBe("H609");
    await support.close();
    expect(await readdir(join(dir, "support"))).toEqual([]);
  });
  it("what is no bundle, damaged, a link, an evil name or a bomb is refused", async () => {
    const tarOf = async (files: Record<string, string>, links: Record<string, string> = {}): Promise<Buffer> => {
      const at = await mkdtemp(join(dir, "t-"));
      for (const [name, text] of Object.entries(files)) await writeFile(join(at, name), text);
      for (const [name, target] of Object.entries(links)) await symlink(target, join(at, name));
      await create({ gzip: true, cwd: at, file: `${at}.tgz` }, await readdir(at));
      return readFile(`${at}.tgz`);
    };
    const open = async (bytes: Buffer): Promise<string> => codeOf(support.open(await send(bytes), live));
    expect(await open(Buffer.from("hello"))).toBe("H608");
    expect(await open(await tarOf({ "x.txt": "no manifest" }))).toBe("H608");
    expect(await open(await tarOf({ "manifest.json": "{}" }))).toBe("H608");
    expect(await open(await tarOf({ "manifest.json": "[[[" }))).toBe("H608");
    expect(await open(await tarOf({ "manifest.json": "{}" }, { passwd: "/etc/passwd" }))).toBe("H608");
    expect(await open(await tarOf({ "a b;c.txt": "x" }))).toBe("H608");
    expect(await open((await tarOf({ "manifest.json": "x".repeat(5000) })).subarray(0, 60))).toBe("H608");
    expect(await open(gzipSync(Buffer.alloc(4 * 1024 ** 2)))).toBe("H608");
  });
});
