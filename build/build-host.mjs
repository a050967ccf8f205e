#!/usr/bin/env node
/**
 * Bundles the console host: build/out/host/{cli,start,browser}.mjs for Node, desktop.cjs and preload.cjs for Electron.
 * Packages stay outside (they are in node_modules beside the product); the addon stays where it is built.
 */
import { build } from "esbuild";
import { mkdirSync, rmSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const outdir = join(root, "build/out/host");
const shells = join(root, "electron/shells");

/** The addon is loaded from its own folder, wherever the bundle lies. */
const addonOutside = {
  name: "addon-outside",
  setup(context) {
    context.onResolve({ filter: /(^|\/)native\/addon\/index\.js$/ }, () => ({ path: relative(outdir, join(root, "native/addon/index.js")), external: true }));
  },
};
const common = {
  bundle: true, platform: "node", target: "node20", packages: "external", external: ["electron"], sourcemap: true, legalComments: "none",
  outdir, plugins: [addonOutside], logLevel: "warning", absWorkingDir: root,
};

rmSync(outdir, { recursive: true, force: true });
mkdirSync(outdir, { recursive: true });
await build({
  ...common, format: "esm", outExtension: { ".js": ".mjs" }, splitting: true, chunkNames: "part-[hash]",
  entryPoints: { cli: join(shells, "cli-main.ts"), start: join(shells, "start.ts"), browser: join(shells, "browser-main.ts") },
});
await build({
  ...common, format: "cjs", outExtension: { ".js": ".cjs" }, define: { "import.meta.url": "__bundleUrl" },
  banner: { js: 'const __bundleUrl = require("node:url").pathToFileURL(__filename).href;' }, entryPoints: { desktop: join(shells, "desktop.ts") },
});
// The sandboxed preload has no require but Electron's own: it is one file.
await build({ ...common, format: "cjs", packages: undefined, outExtension: { ".js": ".cjs" }, entryPoints: { preload: join(shells, "preload.ts") } });
console.log(`host: ${relative(root, outdir)}`);
