import { expect, goTo, nodeRow, startRun, test } from "../fixtures.js";
import * as lab from "../lab/lab.js";

test.describe.configure({ mode: "serial" });

test("a daemon that is killed in a run ends it within 5 s, names the rank, and leaves the others free", async ({ page }) => {
  const header = await startRun(page, { transport: "TCP", min: "4M", max: "16M", factor: 2, iterations: 200 });
  await expect(header).toHaveAttribute("data-state", "running", { timeout: 30_000 });
  await expect(page.getByText("sizes").first()).toBeVisible();
  await lab.fault(3, "daemon-killed", true);
  try {
    await expect(header).toHaveAttribute("data-state", "failed", { timeout: 5_000 });
    await expect(header.getByTestId("error-note").first()).toContainText("node3");
    await expect(header).toContainText("2 node3 · failed");
    // The form offers what is up: two nodes are left, and can be used at once.
    await expect(page.getByRole("form", { name: "New run" }).getByRole("checkbox", { name: "node3" })).toHaveCount(0, { timeout: 20_000 });
    const next = await startRun(page, { transport: "TCP", min: "8", max: "64", factor: 8, iterations: 2 });
    await expect(next).toHaveAttribute("data-state", "succeeded", { timeout: 60_000 });
  } finally {
    await lab.fault(3, "daemon-killed", false);
  }
  await goTo(page, "Nodes");
  await expect(nodeRow(page, "node3")).toContainText("Up", { timeout: 60_000 });
});

test("a node that loses power in a run is named, and comes back when it has power again", async ({ page }) => {
  test.setTimeout(400_000);
  const header = await startRun(page, { transport: "TCP", min: "4M", max: "16M", factor: 2, iterations: 200 });
  await expect(header).toHaveAttribute("data-state", "running", { timeout: 30_000 });
  await lab.powerOff(3);
  try {
    await expect(header).toHaveAttribute("data-state", "failed", { timeout: 90_000 });
    await expect(header).toContainText("node3");
  } finally {
    await lab.powerOn(3);
  }
  await goTo(page, "Nodes");
  await expect(nodeRow(page, "node3")).toContainText("Up", { timeout: 200_000 });
});
