import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createHost } from "../host.js";
import { bundleDirOf, defaultDataDir, productRoot } from "../paths.js";
import { runCli } from "./cli.js";
import { runConsole } from "./desktop-launch.js";
import { endSignal } from "./signals.js";

/** `stepccl`: the CLI over the same host as the page. */
const root = productRoot();
const signal = endSignal();
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };

process.exitCode = await runCli(process.argv.slice(2), {
  io: { stdin: process.stdin, stdout: process.stdout, stderr: process.stderr }, version, signal,
  openHost: ({ dataDir, bundleDir }) => createHost({ dataDir: dataDir === undefined ? defaultDataDir() : resolve(dataDir), bundleDir: bundleDir === undefined ? bundleDirOf(root) : resolve(bundleDir), shell: "cli" }),
  console: (options) => runConsole({
    ...options, ...(options.dataDir === undefined ? {} : { dataDir: resolve(options.dataDir) }), ...(options.bundleDir === undefined ? {} : { bundleDir: resolve(options.bundleDir) }),
  }, signal),
});
