import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { _electron, expect, test, type ElectronApplication, type Page } from "@playwright/test";
import { electronBinary } from "../../electron/paths.js";

const root = join(import.meta.dirname, "../..");
const binary = electronBinary(root);

/** The desktop window on the same page and host. Behaviour is the host's and has its tests; this is what Electron adds. */
test.describe("the desktop window", () => {
  test.skip(binary === null, "Electron's binary is not installed here: npx install-electron fetches it");
  let dataDir: string;
  let app: ElectronApplication;
  let page: Page;

  test.beforeAll(async () => {
    dataDir = mkdtempSync(join(tmpdir(), "stepccl-desktop-"));
    app = await start();
    page = await app.firstWindow();
  });
  test.afterAll(async () => {
    await app?.close();
    if (dataDir) rmSync(dataDir, { recursive: true, force: true });
  });
  const start = (): Promise<ElectronApplication> => _electron.launch({ executablePath: binary!, args: [join(root, "build/out/host/desktop.cjs"), `--stepccl-data-dir=${dataDir}`, "--no-sandbox"] });

  test("shows the console, over its own scheme and its own carrier", async () => {
    await expect(page.getByRole("navigation").getByRole("link", { name: "Nodes" })).toBeVisible();
    await expect(page.getByTestId("empty-state")).toContainText("No nodes yet");
    expect(new URL(page.url()).protocol).toBe("stepccl:");
    expect(await page.evaluate(() => [typeof (globalThis as { require?: unknown }).require, typeof (globalThis as { process?: unknown }).process, typeof window.stepccl])).toEqual(["undefined", "undefined", "object"]);
  });
  test("opens no other window and goes nowhere else", async () => {
    await page.evaluate(() => { window.open("https://example.invalid/"); location.href = "https://example.invalid/"; });
    await expect(page.getByRole("navigation")).toBeVisible();
    expect(new URL(page.url()).protocol).toBe("stepccl:");
    expect(app.windows()).toHaveLength(1);
  });
  test("offers the system's file dialog for a key", async () => {
    await app.evaluate(({ dialog }) => { dialog.showOpenDialog = () => Promise.resolve({ canceled: false, filePaths: ["/home/ops/.ssh/id_lab"] }); });
    await page.getByTestId("add-first-node").click();
    const drawer = page.getByRole("dialog", { name: "Add nodes" });
    await drawer.getByText("Key file", { exact: true }).click();
    await drawer.getByRole("button", { name: "Browse…" }).click();
    await expect(drawer.getByRole("textbox", { name: "Key file" })).toHaveValue("/home/ops/.ssh/id_lab");
    await page.keyboard.press("Escape");
  });
  test("keeps its nodes over a restart", async () => {
    await page.evaluate(() => new Promise<void>((done) => {
      const leave = window.stepccl!.onMessage((message) => { if (message.type === "result" && message.id === 9001) { leave(); done(); } });
      window.stepccl!.send({ type: "request", id: 9001, method: "nodes.add", params: { host: "gpu.lab", user: "ops" } });
    }));
    await app.close();
    app = await start();
    page = await app.firstWindow();
    await expect(page.getByTestId("nodes-table").getByText("gpu.lab").first()).toBeVisible();
  });
});
