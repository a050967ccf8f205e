import { defineConfig } from "vitest/config";
import { fileURLToPath } from "node:url";

/** Unit tests beside what they test. The page has its own project, in happy-dom; all others run in Node. */
export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  test: {
    // Real SSH servers and child processes are part of many suites: two workers on two cores, and room for a slow machine.
    maxWorkers: 2,
    testTimeout: 20_000,
    hookTimeout: 30_000,
    projects: [
      {
        extends: true,
        test: {
          name: "host", environment: "node",
          include: ["electron/**/*.test.ts", "native/addon/**/*.test.ts", "native/bench/**/*.test.ts", "agent/**/*.test.ts", "build/**/*.test.ts", "e2e/**/*.test.ts"],
          exclude: ["build/out/**", "node_modules/**"],
        },
      },
      "renderer/vite.config.ts",
    ],
  },
});
