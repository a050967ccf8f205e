import { spawn } from "node:child_process";
import { join } from "node:path";
import { electronBinary, productRoot } from "../paths.js";

export interface DesktopOptions {
  dataDir?: string;
  bundleDir?: string;
}

/** Starts the desktop shell as a process of its own and waits for its end; null where Electron's binary is not installed. */
export async function runDesktopShell(options: DesktopOptions, signal: AbortSignal): Promise<number | null> {
  const root = productRoot();
  const binary = electronBinary(root);
  if (!binary) return null;
  const args = [join(root, "build", "out", "host", "desktop.cjs")];
  if (options.dataDir !== undefined) args.push(`--stepccl-data-dir=${options.dataDir}`);
  if (options.bundleDir !== undefined) args.push(`--stepccl-bundle=${options.bundleDir}`);
  const env = { ...process.env };
  delete env["ELECTRON_RUN_AS_NODE"];
  const child = spawn(binary, args, { stdio: "inherit", env });
  const onAbort = (): void => void child.kill("SIGTERM");
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await new Promise<number>((done, fail) => {
      child.once("error", fail);
      child.once("exit", (code) => done(code ?? 1));
    });
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

export const NO_ELECTRON = "Electron's binary is not installed (npx install-electron fetches it where the network allows that): opening the console for a browser instead.";

/** The console in the best shell that is at hand. */
export async function runConsole(
  options: DesktopOptions & { port?: number; open?: boolean; shell?: "browser" | "desktop" }, signal: AbortSignal,
): Promise<number> {
  if (options.shell !== "browser" && options.port === undefined) {
    const status = await runDesktopShell(options, signal);
    if (status !== null) return status;
    console.error(NO_ELECTRON);
    if (options.shell === "desktop") return 1;
  }
  const { runBrowserShell } = await import("./browser-main.js");
  return runBrowserShell(options, signal);
}
