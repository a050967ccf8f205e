import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { delimiter, join } from "node:path";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";
import { createHost } from "../host.js";
import { bundleDirOf, defaultDataDir, pageDirOf, productRoot } from "../paths.js";
import { startBrowserShell } from "./browser.js";

export interface BrowserMainOptions {
  dataDir?: string;
  bundleDir?: string;
  port?: number;
  /** Open a window where there is a display and a Chromium. */
  open?: boolean;
}

/**
 * Serves the console to a browser until the signal comes: one line with the address on standard output; a line typed on a
 * terminal prints a fresh address, since each opens one browser. Gives the exit status.
 */
export async function runBrowserShell(options: BrowserMainOptions, signal: AbortSignal): Promise<number> {
  const root = productRoot();
  if (!existsSync(join(pageDirOf(root), "index.html"))) {
    console.error("The page is not built. Run: npm run build");
    return 1;
  }
  const host = await createHost({ dataDir: options.dataDir ?? defaultDataDir(), bundleDir: options.bundleDir ?? bundleDirOf(root), shell: "browser" });
  let window: AppWindow | null = null;
  try {
    const shell = await startBrowserShell({ host: host.wire, pageDir: pageDirOf(root), port: options.port ?? 0 });
    try {
      console.log(`StepCCL Console: ${shell.address()}`);
      if (options.open) {
        window = openWindow(shell.address());
        if (!window) console.error("There is no display or no Chromium here: open the address in a browser.");
      }
      const lines = process.stdin.isTTY ? createInterface({ input: process.stdin }) : null;
      lines?.on("line", () => console.log(`StepCCL Console: ${shell.address()}`));
      await new Promise<void>((done) => {
        if (signal.aborted) return done();
        signal.addEventListener("abort", () => done(), { once: true });
      });
      lines?.close();
    } finally {
      window?.close();
      await shell.close();
    }
  } finally {
    await host.close();
  }
  return 0;
}

interface AppWindow {
  close(): void;
}

const BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge"];

/** Chromium as a window of its own, with a profile that is thrown away; null without display or browser. */
function openWindow(address: string): AppWindow | null {
  if (!process.env["DISPLAY"] && !process.env["WAYLAND_DISPLAY"]) return null;
  const binary = BROWSERS.flatMap((name) => (process.env["PATH"] ?? "").split(delimiter).map((folder) => join(folder, name))).find((path) => existsSync(path));
  if (!binary) return null;
  const profile = mkdtempSync(join(tmpdir(), "stepccl-window-"));
  const flags = [`--app=${address}`, `--user-data-dir=${profile}`, "--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1360,860"];
  // Chromium's own sandbox cannot start under root.
  if (process.getuid?.() === 0) flags.push("--no-sandbox");
  const child: ChildProcess = spawn(binary, flags, { stdio: "ignore" });
  child.on("error", (error) => console.error(`The window did not open: ${error.message}`));
  child.on("exit", () => rmSync(profile, { recursive: true, force: true, maxRetries: 3 }));
  return { close: () => void child.kill("SIGTERM") };
}
