import { defineConfig } from "vitest/config";
import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";

/** Unit tests beside what they test. Page tests run in happy-dom, all others in Node. */
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
          include: ["electron/**/*.test.ts", "native/addon/**/*.test.ts", "agent/**/*.test.ts", "build/**/*.test.ts", "e2e/**/*.test.ts"],
          exclude: ["build/out/**", "node_modules/**"],
        },
      },
      {
        extends: true,
        plugins: [react()],
        test: { name: "page", environment: "happy-dom", include: ["renderer/**/*.test.{ts,tsx}"], exclude: ["node_modules/**"] },
      },
    ],
  },
});
