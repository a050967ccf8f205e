import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, goTo, nodeRow, test } from "../fixtures.js";
import * as lab from "../lab/lab.js";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

test("a node whose disk is full says so and keeps what it has; the others come up", async ({ page }) => {
  test.setTimeout(300_000);
  await goTo(page, "Nodes");
  await lab.fault(2, "disk-full", true);
  try {
    for (const name of ["node1", "node2"]) await nodeRow(page, name).getByRole("checkbox").check();
    await page.getByRole("button", { name: "Bring up 2 nodes" }).click();
    const operation = page.getByTestId("operation").first();
    await expect(operation).toHaveAttribute("data-state", "failed", { timeout: 200_000 });
    await expect(operation.getByTestId("error-note").first()).toHaveAttribute("data-code", "H305");
    await expect(operation.getByTestId("error-note").first()).toContainText("Free space");
  } finally {
    await lab.fault(2, "disk-full", false);
  }
  for (const name of ["node1", "node2"]) await expect(nodeRow(page, name)).toContainText("Up", { timeout: 60_000 });
});

test("a kernel for which no module exists, on a node without headers, is refused before anything is changed", async ({ page, lab: { nodes } }) => {
  test.setTimeout(200_000);
  const folder = mkdtempSync(join(tmpdir(), "stepccl-no-module-"));
  try {
    cpSync(join(root, "build/out/bundle"), join(folder, "bundle"), { recursive: true });
    const file = join(folder, "bundle/manifest.json");
    writeFileSync(file, JSON.stringify({ ...(JSON.parse(readFileSync(file, "utf8")) as object), kernels: {} }));
    const node = nodes[2]!;
    const cli = (...args: string[]): Promise<{ stdout: string }> => run(process.execPath, [join(root, "build/stepccl.js"), "--data-dir", join(folder, "data"), "--bundle", join(folder, "bundle"), "--json", ...args]);
    await cli("nodes", "add", `${node.user}@${node.sshHost}:${node.sshPort}`, "--name", "bare", "--key", node.keyPath, "--accept-fingerprint", node.hostKeySha256);
    const failed = await cli("up", "bare").then(() => null, (error: unknown) => error as { stdout: string });
    const operation = JSON.parse(failed!.stdout) as { nodes: { error: { code: string; next: string }; steps: { id: string; state: string }[] }[] };
    expect(operation.nodes[0]!.error).toMatchObject({ code: "H306", next: expect.stringContaining("linux-headers-") });
    expect(operation.nodes[0]!.steps.filter((step) => step.state !== "pending").map((step) => `${step.id} ${step.state}`)).toEqual(["connect done", "preflight failed"]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  await goTo(page, "Nodes");
  await expect(nodeRow(page, "node3")).toContainText("Up");
});
