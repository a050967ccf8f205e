import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test as base, expect, type BrowserContext, type Locator, type Page } from "@playwright/test";
import * as labApi from "./lab/lab.js";

const root = join(import.meta.dirname, "..");

/** A console of its own: the browser shell as `npm start` runs it, on a data folder that is thrown away. */
export class Console {
  private constructor(readonly address: string, readonly dataDir: string, private readonly ours: boolean, private readonly child: ChildProcess) {}

  static async start(kept?: string): Promise<Console> {
    const dataDir = kept ?? mkdtempSync(join(tmpdir(), "stepccl-e2e-"));
    const child = spawn(process.execPath, [join(root, "build/out/host/start.mjs"), "--shell", "browser", "--data-dir", dataDir], { stdio: ["ignore", "pipe", "inherit"] });
    const address = await new Promise<string>((found, failed) => {
      child.once("exit", (status) => failed(new Error(`the console ended with status ${status}`)));
      createInterface({ input: child.stdout! }).on("line", (line) => {
        const match = /(http:\/\/127\.0\.0\.1:\d+\/\S*)/.exec(line);
        if (match) found(match[1]!);
      });
    });
    return new Console(address, dataDir, kept === undefined, child);
  }

  async stop(): Promise<void> {
    const ended = new Promise<void>((done) => this.child.once("exit", () => done()));
    this.child.kill("SIGTERM");
    await ended;
    if (this.ours) rmSync(this.dataDir, { recursive: true, force: true });
  }
}

interface Shared {
  lab: labApi.LabState;
  console_: Console;
  /** One browser session for all tests of the worker: the address works once. */
  session: BrowserContext;
}

export const test = base.extend<{ page: Page }, Shared>({
   
  lab: [async ({}, use) => {
    const { lab } = await labApi.status();
    if (!lab) throw new Error("the lab is not up");
    await use(lab);
  }, { scope: "worker" }],
   
  console_: [async ({}, use) => {
    // A developer who works on a later spec keeps the nodes of an earlier run by STEPCCL_E2E_DATA_DIR.
    const shell = await Console.start(process.env.STEPCCL_E2E_DATA_DIR);
    await use(shell);
    await shell.stop();
  }, { scope: "worker" }],
  session: [async ({ browser, console_ }, use) => {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, locale: "en-US", colorScheme: "light", acceptDownloads: true });
    const page = await context.newPage();
    await page.goto(console_.address);
    await expect(page.getByRole("navigation")).toBeVisible();
    await page.close();
    await use(context);
    await context.close();
  }, { scope: "worker" }],
  page: async ({ session, console_ }, use) => {
    const page = await session.newPage();
    const problems: string[] = [];
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => { if (message.type() === "error") problems.push(message.text()); });
    await page.goto(new URL("/", console_.address).href);
    await use(page);
    await page.close();
    // A page that throws, or that its own content policy stops, is broken even where it looks right.
    expect(problems).toEqual([]);
  },
});
export { expect };

export async function goTo(page: Page, name: "Nodes" | "Topology" | "Collectives" | "Memory" | "Diagnose" | "Alerts" | "Settings"): Promise<void> {
  await page.getByRole("navigation").getByRole("link", { name }).click();
}

/** The row of a node in the table of the Nodes page. */
export const nodeRow = (page: Page, name: string): Locator => page.getByTestId("nodes-table").getByRole("row").filter({ has: page.getByText(name, { exact: true }) });

export interface NodeFields { host: string; port: number; user: string; name: string; keyPath: string }

/** Adds one node by hand, as a person does; leaves the drawer closed. */
export async function addByHand(page: Page, fields: NodeFields): Promise<void> {
  const open = page.getByRole("button", { name: "Add nodes" }).first();
  await open.click();
  const drawer = page.getByRole("dialog", { name: "Add nodes" });
  await drawer.getByLabel("Host name or address").fill(fields.host);
  await drawer.getByLabel("Port").fill(String(fields.port));
  await drawer.getByLabel("User", { exact: false }).first().fill(fields.user);
  await drawer.getByLabel("Name shown").fill(fields.name);
  await drawer.getByText("Key file", { exact: true }).click();
  await drawer.getByRole("textbox", { name: "Key file" }).fill(fields.keyPath);
  await drawer.getByTestId("add-submit").click();
  await expect(drawer).toBeHidden();
}

/** Takes both pictures of what is shown, light and dark, for the README and for human eyes. */
export async function picture(page: Page, name: string): Promise<void> {
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForTimeout(300);
    await page.screenshot({ path: join(root, "build/out/pictures", `${name}-${scheme}.png`) });
  }
  await page.emulateMedia({ colorScheme: "light" });
}

/** Fills the form of the Collectives page and presses Run; gives the header of the run that appears. */
export async function startRun(page: Page, options: { transport: "Auto" | "TCP" | "RDMA"; min: string; max: string; factor: number; iterations: number; warmup?: number; timeoutSeconds?: number }): Promise<Locator> {
  await goTo(page, "Collectives");
  const form = page.getByRole("form", { name: "New run" });
  await form.getByText(options.transport, { exact: true }).click();
  await form.getByLabel("From (B)").fill(options.min);
  await form.getByLabel("To (B)").fill(options.max);
  await form.getByLabel("Times").fill(String(options.factor));
  await form.getByLabel("Iterations").fill(String(options.iterations));
  await form.getByLabel("Warm-up").fill(String(options.warmup ?? 1));
  await form.getByLabel("Timeout (s)").fill(String(options.timeoutSeconds ?? 60));
  await form.getByTestId("run-start").click();
  return page.getByTestId("run-header");
}
