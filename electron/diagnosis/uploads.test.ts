import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { diagnoseFilesView } from "./files.js";
import { Uploads } from "./uploads.js";

let dir: string;
let uploads: Uploads;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "uploads-"));
  uploads = new Uploads(join(dir, "uploads"));
});
afterEach(async () => {
  await uploads.close();
  await rm(dir, { recursive: true, force: true });
});

const send = async (name: string, bytes: Buffer, piece = 1000): Promise<string> => {
  const { uploadId } = await uploads.begin(name, bytes.length);
  for (let at = 0; at < bytes.length; at += piece) await uploads.append(uploadId, at, bytes.subarray(at, at + piece).toString("base64"));
  return uploadId;
};
const judge = (...ids: string[]) => diagnoseFilesView(uploads.open(ids.map((uploadId) => ({ kind: "upload" as const, uploadId }))), new AbortController().signal);
const XID = "[ 10.2] NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus.\n";

describe("files that were sent", () => {
  it("are judged as one machine, unpacked where they are gzip, whatever their pieces", async () => {
    const view = await judge(await send("dmesg.gz", gzipSync(`${"[ 1.0] usb 1-1: new device\n".repeat(500)}${XID}`), 7), await send("more.txt", Buffer.from("nothing\n")));
    expect(view.findings[0]).toMatchObject({ class: "gpu.xid_79" });
    expect(view).toMatchObject({ verdict: "cause_found", lines: 502, inputs: ["kernel_log"], files: [{ name: "dmesg.gz" }, { name: "more.txt", sizeBytes: 8 }] });
  });
  it("a pasted text needs no sending", async () => {
    const view = await diagnoseFilesView(uploads.open([{ kind: "text", name: "pasted", text: XID }]), new AbortController().signal);
    expect(view.findings[0]!.class).toBe("gpu.xid_79");
  });
  it("a piece out of place, a file that is not whole, a broken archive and an unknown id are refused", async () => {
    const { uploadId } = await uploads.begin("a", 10);
    await expect(uploads.append(uploadId, 5, "AAAA")).rejects.toMatchObject({ view: { code: "H608" } });
    await expect(uploads.append(uploadId, 0, Buffer.alloc(11).toString("base64"))).rejects.toMatchObject({ view: { code: "H608" } });
    expect(() => uploads.open([{ kind: "upload", uploadId }])).toThrow(/H608/);
    const broken = await send("b.gz", gzipSync(Buffer.alloc(5000, 7)).subarray(0, 20));
    await expect(judge(broken)).rejects.toMatchObject({ view: { code: "H608" } });
    await expect(uploads.append("nobody", 0, "AAAA")).rejects.toMatchObject({ view: { code: "H609" } });
    await expect(uploads.begin("big", 9 * 1024 ** 3)).rejects.toMatchObject({ view: { code: "H608" } });
  });
  it("pieces that arrive together are written in their order, and all is gone in the end", async () => {
    const { uploadId } = await uploads.begin("c", 8);
    await Promise.all([uploads.append(uploadId, 0, Buffer.from("[ 1.").toString("base64")), uploads.append(uploadId, 4, Buffer.from("0] u").toString("base64"))]);
    expect(await readdir(join(dir, "uploads"))).toEqual([uploadId]);
    await uploads.close();
    expect(await readdir(dir)).toEqual([]);
  });
  it("a cancelled request ends", async () => {
    const id = await send("d", Buffer.from(XID));
    await expect(diagnoseFilesView(uploads.open([{ kind: "upload", uploadId: id }]), AbortSignal.abort())).rejects.toMatchObject({ view: { code: "H104" } });
  });
});
