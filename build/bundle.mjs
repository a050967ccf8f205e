#!/usr/bin/env node
/**
 * Puts what a node needs into one archive with a manifest: build/out/bundle/{manifest.json, stepccl-node-<release>.tar.gz}.
 * The release is "<version>-<first 8 hex digits of the content's sha256>", so equal content has an equal name,
 * and the archive is reproducible (sorted names, no times, no owners).
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

// Folders and files are for everybody to read on a node, whatever the mask of who builds.
process.umask(0o022);
const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const out = join(root, "build/out/bundle");
const version = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version;
mkdirSync(dirname(out), { recursive: true });
const stage = mkdtempSync(join(root, "build/out/bundle-stage-"));
chmodSync(stage, 0o755);
process.on("exit", () => rmSync(stage, { recursive: true, force: true }));

function fail(what, next) {
  console.error(`bundle: ${what}. ${next}`);
  process.exit(1);
}

function put(from, to, mode, { strip = false } = {}) {
  const source = join(root, from);
  if (!existsSync(source)) fail(`${from} is missing`, "Run npm run setup, which builds it");
  const target = join(stage, to);
  mkdirSync(dirname(target), { recursive: true });
  cpSync(source, target, { dereference: true });
  chmodSync(target, mode);
  if (strip) execFileSync("strip", ["--strip-unneeded", target]);
}

put("build/out/agent/stepccld", "bin/stepccld", 0o755, { strip: true });
put("build/out/native/stepccl-perf", "bin/stepccl-perf", 0o755, { strip: true });
put("build/out/native/stepccl-gpuinfo", "bin/stepccl-gpuinfo", 0o755, { strip: true });
put("build/out/driver/tools/stepccl-dma", "bin/stepccl-dma", 0o755, { strip: true });
put("agent/stepccld.service", "etc/stepccld.service", 0o644);
put("agent/stepccl.sysusers", "etc/stepccl.sysusers", 0o644);
put("driver/70-stepccl.rules", "etc/70-stepccl.rules", 0o644);

const library = readdirSync(join(root, "build/out/native")).find((name) => /^libstepccl\.so\.\d+$/.test(name));
if (!library) fail("build/out/native/libstepccl.so.* is missing", "Run npm run setup, which builds it");
put(`build/out/native/${library}`, `lib/${library}`, 0o755, { strip: true });
for (const header of readdirSync(join(root, "native/include/stepccl")).filter((name) => name.endsWith(".h"))) put(`native/include/stepccl/${header}`, `include/stepccl/${header}`, 0o644);

// The driver's sources, for a node whose kernel no module here was built for.
const sources = execFileSync("git", ["-C", root, "ls-files", "-co", "--exclude-standard", "--", "driver"], { encoding: "utf8" }).split("\n").filter(Boolean);
for (const file of sources) {
  if (/^driver\/(tests|tools|unit)\//.test(file) || !existsSync(join(root, file))) continue;
  put(file, `driver/src/${file.slice("driver/".length)}`, statSync(join(root, file)).mode & 0o100 ? 0o755 : 0o644);
}
const kernels = {};
for (const release of readdirSync(join(root, "build/out/driver"))) {
  const module = `build/out/driver/${release}/dma_engine.ko`;
  if (!existsSync(join(root, module))) continue;
  put(module, `driver/${release}/dma_engine.ko`, 0o644);
  kernels[release] = `driver/${release}/dma_engine.ko`;
}
if (Object.keys(kernels).length === 0) fail("no driver module was built", "Install linux-headers-amd64 and run npm run setup");

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const files = [];
(function walk(dir) {
  for (const entry of readdirSync(dir, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) walk(path);
    else {
      const bytes = readFileSync(path);
      files.push({ path: relative(stage, path), mode: statSync(path).mode & 0o777, sizeBytes: bytes.length, sha256: sha256(bytes) });
    }
  }
})(stage);

const release = `${version}-${sha256(JSON.stringify(files)).slice(0, 8)}`;
const archive = `stepccl-node-${release}.tar.gz`;
// The list travels inside too, so that a node can check what it unpacked by itself: `sha256sum -c SHA256SUMS`.
writeFileSync(join(stage, "SHA256SUMS"), files.map((f) => `${f.sha256}  ${f.path}\n`).join(""), { mode: 0o644 });
writeFileSync(join(stage, "RELEASE"), `${release}\n`, { mode: 0o644 });

const fresh = mkdtempSync(join(root, "build/out/bundle-new-"));
const tar = join(fresh, archive);
execFileSync("sh", ["-c", 'tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$1" -cf - . | gzip -n6 > "$2"', "sh", stage, tar]);
const packed = readFileSync(tar);
writeFileSync(join(fresh, "manifest.json"), JSON.stringify({
  version, release, archive, sha256: sha256(packed), sizeBytes: packed.length,
  unpackedBytes: files.reduce((sum, f) => sum + f.sizeBytes, 0), kernels, files,
}, null, 1));
chmodSync(fresh, 0o755);
rmSync(out, { recursive: true, force: true });
renameSync(fresh, out);
console.log(`bundle: ${release}, ${(packed.length / 1e6).toFixed(1)} MB, kernels ${Object.keys(kernels).join(" ")}`);
