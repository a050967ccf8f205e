import { expect, goTo, picture, startRun, test } from "../fixtures.js";

test("every pair of nodes is joined over TCP and RDMA, with live bytes while a run goes on", async ({ page }) => {
  test.setTimeout(480_000);
  await goTo(page, "Topology");
  await page.getByRole("button", { name: "Measure links" }).click();
  const links = page.getByRole("grid", { name: "Links" });
  await expect(links.getByRole("row").filter({ hasText: "RDMA" }).filter({ hasText: "Up" })).toHaveCount(3, { timeout: 30_000 });
  await expect(links.getByRole("row").filter({ hasText: "TCP" }).filter({ hasText: "Up" })).toHaveCount(3);

  const header = await startRun(page, { transport: "TCP", min: "1M", max: "2M", factor: 2, iterations: 10 });
  await expect(header).toHaveAttribute("data-state", /running|succeeded/, { timeout: 30_000 });
  await goTo(page, "Topology");
  const busy = links.getByRole("row").filter({ hasText: "TCP" }).filter({ hasText: /[1-9][\d.]* (k|M|G)B\/s/ });
  await expect(busy.first()).toBeVisible({ timeout: 60_000 });
  await picture(page, "topology");
  await goTo(page, "Collectives");
  await expect(header).toHaveAttribute("data-state", "succeeded", { timeout: 300_000 });
});
