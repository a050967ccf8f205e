import { addByHand, expect, goTo, nodeRow, picture, test } from "../fixtures.js";

test.describe.configure({ mode: "serial" });

test("an empty console says what to do first", async ({ page }) => {
  await expect(page.getByTestId("empty-state")).toContainText("No nodes yet");
  await picture(page, "nodes-empty");
});

test("three nodes are added by hand, and nothing is sent before their keys are confirmed", async ({ page, lab }) => {
  for (const node of lab.nodes) {
    await addByHand(page, { host: node.sshHost, port: node.sshPort, user: node.user, name: node.name, keyPath: node.keyPath });
    const dialog = page.getByTestId("host-keys").getByRole("dialog");
    await expect(dialog.getByTestId("fingerprint")).toContainText(node.hostKeySha256, { timeout: 30_000 });
    if (node.index === 1) {
      await picture(page, "host-key");
      // Cancel is the default: the key stays unconfirmed.
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await expect(nodeRow(page, node.name)).toContainText("Confirm key");
    } else {
      await dialog.getByRole("button", { name: "Trust" }).click();
      await expect(dialog.getByText("Trusted")).toBeVisible();
      await dialog.getByRole("button", { name: "Close" }).last().click();
    }
  }
  await expect(page.getByTestId("node-count")).toContainText("3");
});

test("Bring up asks for the missing key first, then shows every step of every node", async ({ page, lab }) => {
  test.setTimeout(420_000);
  for (const node of lab.nodes) await nodeRow(page, node.name).getByRole("checkbox").check();
  await page.getByRole("button", { name: "Bring up 3 nodes" }).click();
  const dialog = page.getByTestId("host-keys").getByRole("dialog");
  await dialog.getByRole("button", { name: "Trust" }).click();
  await dialog.getByRole("button", { name: "Bring up 3 nodes" }).click();
  const operation = page.getByTestId("operation").first();
  await expect(operation).toHaveAttribute("data-state", "running");
  await expect(operation.getByText(/Preflight checks|Send the bundle|Verify checksums|Install/).first()).toBeVisible({ timeout: 60_000 });
  await picture(page, "bring-up");
  await expect(operation).toHaveAttribute("data-state", "succeeded", { timeout: 300_000 });
  for (const node of lab.nodes) await expect(nodeRow(page, node.name)).toContainText("Up");
  await picture(page, "nodes");
});

test("the detail of a node shows what its daemon read", async ({ page, lab }) => {
  await nodeRow(page, "node1").dblclick();
  const drawer = page.getByRole("dialog", { name: /node1/ });
  await expect(drawer.getByText(lab.kernelRelease).first()).toBeVisible();
  await expect(drawer.getByText("rxe0").first()).toBeVisible();
  await expect(drawer.getByText("10.77.0.1", { exact: false }).first()).toBeVisible();
  await picture(page, "node-detail");
});

test("a second bring-up finds everything in place", async ({ page }) => {
  test.setTimeout(300_000);
  await nodeRow(page, "node2").getByRole("checkbox").check();
  await page.getByRole("button", { name: "Bring up 1 node", exact: true }).click();
  const operation = page.getByTestId("operation").first();
  await expect(operation).toHaveAttribute("data-state", "succeeded", { timeout: 200_000 });
  await expect(operation.getByTestId("step-upload")).toHaveAttribute("data-state", "skipped");
});

test("the page speaks Chinese, and keeps the choice", async ({ page }) => {
  await page.getByRole("button", { name: "Language" }).click();
  await page.getByRole("menuitem", { name: "简体中文" }).click();
  await expect(page.getByRole("navigation").getByRole("link", { name: "节点" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("navigation").getByRole("link", { name: "节点" })).toBeVisible();
  await picture(page, "nodes-zh");
  await page.evaluate(() => localStorage.clear());
  await page.reload();
  await goTo(page, "Nodes");
});
