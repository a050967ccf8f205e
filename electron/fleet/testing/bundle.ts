import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

/** A bundle with the given files, in the form of build/bundle.mjs. Gives its folder. */
export function makeBundle(dir: string, files: Record<string, { text: string; mode?: number }>, kernels: Record<string, string> = {}): string {
  const out = join(dir, "bundle");
  const stage = join(dir, "stage");
  mkdirSync(out, { recursive: true });
  const listed = Object.entries(files).map(([path, { text, mode = 0o644 }]) => {
    const at = join(stage, path);
    mkdirSync(dirname(at), { recursive: true });
    writeFileSync(at, text);
    chmodSync(at, mode);
    return { path, mode, sizeBytes: Buffer.byteLength(text), sha256: sha256(Buffer.from(text)) };
  });
  const release = `0.1.0-${sha256(Buffer.from(JSON.stringify(listed))).slice(0, 8)}`;
  const archive = `stepccl-node-${release}.tar.gz`;
  execFileSync("tar", ["-C", stage, "--owner=0", "--group=0", "-czf", join(out, archive), "."]);
  const packed = readFileSync(join(out, archive));
  writeFileSync(join(out, "manifest.json"), JSON.stringify({
    version: "0.1.0", release, archive, sha256: sha256(packed), sizeBytes: packed.length, unpackedBytes: listed.reduce((n, f) => n + f.sizeBytes, 0), kernels, files: listed,
  }));
  return out;
}

export const MINIMAL = {
  "bin/stepccld": { text: "#!/bin/sh\n", mode: 0o755 }, "etc/stepccld.service": { text: "[Service]\n" },
  "etc/stepccl.sysusers": { text: "g stepccl - -\n" }, "etc/70-stepccl.rules": { text: "# rule\n" }, "driver/6.1.0/dma_engine.ko": { text: "ko" },
};
export const KERNELS = { "6.1.0": "driver/6.1.0/dma_engine.ko" };
