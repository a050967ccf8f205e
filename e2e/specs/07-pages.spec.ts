import { expect, goTo, startRun, test } from "../fixtures.js";

test.describe.configure({ mode: "serial" });

test("a setting is staged, told to every daemon and stands in the history; what is recommended says why", async ({ page }) => {
  await goTo(page, "Settings");
  const table = page.getByTestId("settings-table");
  const row = table.locator('[data-setting="pipeline_depth"]');
  await expect(row.getByRole("textbox", { name: "Pipeline depth" })).toBeEnabled({ timeout: 30_000 });
  await row.getByRole("textbox", { name: "Pipeline depth" }).fill("0");
  await expect(page.getByTestId("settings-apply")).toBeDisabled();
  await row.getByRole("textbox", { name: "Pipeline depth" }).fill("6");
  await page.getByTestId("settings-apply").click();
  await expect(page.getByTestId("settings-staged")).toBeHidden({ timeout: 30_000 });
  await page.getByRole("button", { name: "Read again" }).click();
  await expect(row.getByRole("cell").first()).toHaveText("6");
  await expect(page.getByRole("region", { name: "Changes" })).toContainText("Pipeline depth");
  await row.getByRole("textbox", { name: "Pipeline depth" }).fill("");
  await page.getByTestId("settings-apply").click();
  await expect(row.getByRole("cell").first()).toHaveText("not set", { timeout: 30_000 });
});

test("an operation above its bound is an alert, which leads to the guide that fits it", async ({ page }) => {
  test.setTimeout(120_000);
  await goTo(page, "Alerts");
  const rule = page.getByTestId("thresholds").locator('[data-rule="latency"]');
  const limit = rule.getByRole("textbox");
  await limit.fill("1");
  await rule.getByRole("button", { name: "Save" }).click();
  await expect(rule.getByRole("button", { name: /^back to/ })).toBeVisible();
  try {
    const header = await startRun(page, { transport: "TCP", min: "256K", max: "1M", factor: 2, iterations: 5 });
    await expect(header).toHaveAttribute("data-state", "succeeded", { timeout: 60_000 });
    await goTo(page, "Alerts");
    const row = page.getByTestId("alerts-table").getByRole("row").filter({ hasText: "node1" }).first();
    await expect(row).toBeVisible({ timeout: 30_000 });
    await row.getByRole("button", { name: "Seen" }).click();
    await expect(row).toHaveAttribute("data-seen", "true");
    await row.getByRole("button", { name: "Diagnose" }).click();
    await expect(page.getByTestId("guide-slow")).toHaveAttribute("aria-current", "true");
  } finally {
    await goTo(page, "Alerts");
    await rule.getByRole("button", { name: /^back to/ }).click();
    await expect(rule.getByRole("button", { name: /^back to/ })).toBeHidden();
  }
});
