import { expect, goTo, picture, test } from "../fixtures.js";
import * as lab from "../lab/lab.js";

test("a device that nobody may open is found, with the line that shows it and the mend", async ({ page }) => {
  test.setTimeout(420_000);
  await lab.fault(2, "device-mode-000", true);
  try {
    await goTo(page, "Diagnose");
    await page.getByTestId("run-checks").click();
    await page.getByTestId("diagnose-nodes").getByText("node2", { exact: true }).click();
    const report = page.getByTestId("node-report");
    await expect(report).toHaveAttribute("data-state", "done", { timeout: 300_000 });
    const finding = report.getByTestId("finding").filter({ hasText: "/dev/dma_device" }).first();
    await expect(finding).toBeVisible();
    await expect(finding.getByText(/c-{9}/).first()).toBeVisible();
    await expect(finding.getByText("udevadm", { exact: false }).first()).toBeVisible();
    await picture(page, "diagnose");
    await page.getByTestId("diagnose-nodes").getByText("node1", { exact: true }).click();
    await expect(report.getByTestId("finding").filter({ hasText: "/dev/dma_device" })).toHaveCount(0);
  } finally {
    await lab.fault(2, "device-mode-000", false);
  }
});

test("what was read can be looked at as it was", async ({ page }) => {
  await goTo(page, "Diagnose");
  await page.getByTestId("diagnose-nodes").getByText("node1", { exact: true }).click();
  const report = page.getByTestId("node-report");
  if (!(await report.getByTestId("sources").evaluate((fold: HTMLDetailsElement) => fold.open))) await report.getByTestId("sources").locator("summary").click();
  await report.getByTestId("source-kernel_log").getByRole("button").first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Find in lines").fill("eth1");
  await expect(dialog.getByText("eth1", { exact: false }).first()).toBeVisible();
  await dialog.getByLabel("Find in lines").fill("no such words in any kernel");
  await expect(dialog.getByText(/^0 of \d+ lines/)).toBeVisible();
});
