import { execFile } from "node:child_process";
import { connect } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { Console, addByHand, expect, goTo, nodeRow, startRun, test } from "../fixtures.js";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

test("a second console at the same nodes sees them up and is told when they are busy", async ({ page, lab, browser }) => {
  test.setTimeout(300_000);
  const second = await Console.start();
  const context = await browser.newContext({ locale: "en-US" });
  try {
    const other = await context.newPage();
    await other.goto(second.address);
    for (const node of lab.nodes) {
      await addByHand(other, { host: node.sshHost, port: node.sshPort, user: node.user, name: node.name, keyPath: node.keyPath });
      const dialog = other.getByTestId("host-keys").getByRole("dialog");
      await dialog.getByRole("button", { name: "Trust" }).click({ timeout: 30_000 });
      await expect(dialog.getByText("Trusted")).toBeVisible();
      await dialog.getByRole("button", { name: "Close" }).last().click();
      await expect(nodeRow(other, node.name)).toContainText("Up", { timeout: 60_000 });
    }
    const header = await startRun(page, { transport: "TCP", min: "4M", max: "16M", factor: 2, iterations: 100 });
    await expect(header).toHaveAttribute("data-state", "running", { timeout: 30_000 });
    await startRun(other, { transport: "TCP", min: "8", max: "64", factor: 8, iterations: 2 });
    await expect(other.getByTestId("error-note").first()).toHaveAttribute("data-code", /H506/, { timeout: 30_000 });
    await header.getByRole("button", { name: "Stop" }).click();
    await expect(header).toHaveAttribute("data-state", "stopped", { timeout: 15_000 });
  } finally {
    await context.close();
    await second.stop();
  }
});

test("a request that breaks the contract is answered with H101 and does nothing", async ({ page }) => {
  await goTo(page, "Nodes");
  const before = await page.getByTestId("node-count").textContent();
  const answer = await page.evaluate(() => new Promise<{ error?: { code: string } }>((done, failed) => {
    const socket = new WebSocket(`ws://${location.host}/ws`);
    socket.onopen = () => socket.send(JSON.stringify({ type: "request", id: 1, method: "nodes.add", params: { host: "-oProxyCommand=x", port: 0, user: "root" } }));
    socket.onmessage = (event) => { const message = JSON.parse(String(event.data)) as { id?: number; error?: { code: string } }; if (message.id === 1) { done(message); socket.close(); } };
    socket.onerror = () => failed(new Error("no socket"));
  }));
  expect(answer.error?.code).toBe("H101");
  await expect(page.getByTestId("node-count")).toHaveText(before ?? "");
});

test("whoever has no token gets nothing", async ({ console_, playwright }) => {
  const origin = new URL(console_.address).origin;
  const stranger = await playwright.request.newContext();
  const page = await stranger.get(`${origin}/ws`);
  expect(page.status()).toBeGreaterThanOrEqual(400);
  const rebound = await stranger.post(`${origin}/session`, { headers: { host: "127.evil.example", origin: "http://127.evil.example" }, data: { token: "0".repeat(64) } });
  expect(rebound.status()).toBeGreaterThanOrEqual(400);
  await stranger.dispose();
  const port = Number(new URL(console_.address).port);
  await expect(new Promise((done) => connect(port, "127.0.0.2").once("error", (error) => done((error as NodeJS.ErrnoException).code)).once("connect", () => done("connected")))).resolves.toBe("ECONNREFUSED");
});

test("the command line reaches the same nodes", async ({ lab, console_ }) => {
  test.setTimeout(200_000);
  const cli = async (...args: string[]): Promise<unknown> => {
    const { stdout } = await run(process.execPath, [join(root, "build/stepccl.js"), "--data-dir", console_.dataDir, "--json", ...args], { maxBuffer: 1 << 24 });
    const lines = stdout.trim().split("\n");
    return lines.length === 1 ? JSON.parse(lines[0]!) : lines.map((line) => { try { return JSON.parse(line) as unknown; } catch { return line; } });
  };
  const status = JSON.stringify(await cli("status"));
  for (const node of lab.nodes) expect(status).toContain(node.name);
  const result = JSON.stringify(await cli("run", "all_reduce", "--transport", "rdma", "--min-bytes", "8", "--max-bytes", "64K", "--step-factor", "16", "--iterations", "2"));
  expect(result).toContain("\"wrong\":0");
});
