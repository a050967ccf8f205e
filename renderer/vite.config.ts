import { defineConfig } from "vitest/config";
import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));

/**
 * `vite build` makes the page for both shells; `vite --mode fake` serves it over scripted, labelled data (dev/).
 * The base is relative, so that one build works under the desktop's own scheme and under the loopback server.
 */
export default defineConfig({
  root: here,
  base: "./",
  plugins: [react()],
  build: {
    outDir: "../build/out/page",
    emptyOutDir: true,
    sourcemap: true,
    target: "es2022",
    // Small assets as data: URLs would need a wider CSP than 'self'.
    assetsInlineLimit: 0,
    // The preload polyfill is an inline script in some outputs; every browser that we serve knows modulepreload.
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 800,
    rolldownOptions: {
      output: {
        // Together, so that zod is told not to compile before any schema of the contract is made.
        codeSplitting: { groups: [{ name: "zod", test: /node_modules[\\/]zod[\\/]|zod-without-eval/ }] },
      },
    },
  },
  server: { host: "127.0.0.1", port: 5199, strictPort: true },
  test: {
    name: "renderer",
    root: here,
    environment: "happy-dom",
    include: ["**/*.test.ts", "**/*.test.tsx"],
    setupFiles: ["./dev/test-setup.ts"],
    testTimeout: 60_000,
    // Two cores are shared by the whole suite.
    maxWorkers: 2,
  },
});
