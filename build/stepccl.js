#!/usr/bin/env node
import { existsSync } from "node:fs";

const cli = new URL("./out/host/cli.mjs", import.meta.url);
if (existsSync(cli)) {
  await import(cli.href);
} else {
  console.error("stepccl: the console is not built yet; run npm run setup in the product's folder.");
  process.exitCode = 1;
}
