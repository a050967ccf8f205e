import { defineConfig } from "@playwright/test";

/**
 * The whole job in Debian's Chromium against three real nodes. One worker: the specs share the lab and build on each
 * other in the order of their names, as an operator's day does.
 */
export default defineConfig({
  testDir: "specs",
  outputDir: "../build/out/test/e2e",
  workers: 1,
  fullyParallel: false,
  retries: 0,
  timeout: 240_000,
  expect: { timeout: 20_000 },
  reporter: [["list"], ["json"]],
  globalSetup: "./global-setup.ts",
  use: {
    viewport: { width: 1440, height: 900 },
    trace: "retain-on-failure",
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    },
  },
});
