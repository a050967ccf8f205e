import { readFileSync } from "node:fs";
import { expect, goTo, picture, startRun, test } from "../fixtures.js";

for (const transport of ["TCP", "RDMA"] as const) {
  test(`AllReduce over ${transport} across three nodes, every element right, drawn beside the model`, async ({ page }) => {
    test.setTimeout(400_000);
    const header = await startRun(page, { transport, min: "8", max: "1M", factor: 8, iterations: 5 });
    await expect(header).toHaveAttribute("data-state", /running|succeeded/, { timeout: 30_000 });
    await expect(header).toHaveAttribute("data-state", "succeeded", { timeout: 300_000 });
    await expect(header).toContainText("#wrong 0");
    const table = page.getByTestId("run-table");
    await expect(table.getByRole("row")).not.toHaveCount(0);
    await expect(page.getByTestId("run-charts").locator("svg.recharts-surface").first()).toBeVisible();
    await expect(page.getByText("Expected (α-β model)").first()).toBeVisible();
    await page.getByRole("button", { name: "Export" }).click();
    const download = page.waitForEvent("download");
    await page.getByRole("menuitem", { name: "CSV" }).click();
    const csv = readFileSync((await (await download).path())!, "utf8");
    expect(csv.split("\n")[0]).toMatch(/size/i);
    expect(csv.trim().split("\n").length).toBeGreaterThanOrEqual(7);
    await picture(page, `collectives-${transport.toLowerCase()}`);
  });
}

test("a run can be stopped, and the nodes are free at once", async ({ page }) => {
  const header = await startRun(page, { transport: "TCP", min: "4M", max: "16M", factor: 2, iterations: 100 });
  await expect(header).toHaveAttribute("data-state", "running", { timeout: 30_000 });
  await header.getByRole("button", { name: "Stop" }).click();
  await expect(header).toHaveAttribute("data-state", "stopped", { timeout: 15_000 });
  const next = await startRun(page, { transport: "TCP", min: "8", max: "64", factor: 8, iterations: 2 });
  await expect(next).toHaveAttribute("data-state", "succeeded", { timeout: 60_000 });
  await goTo(page, "Collectives");
});
