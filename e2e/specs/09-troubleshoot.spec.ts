import { applyMend, cardOf, checkNodes, expectMended, openReport, openView } from "../diagnose.js";
import { expect, goTo, picture, startRun, test } from "../fixtures.js";
import * as lab from "../lab/lab.js";

test.describe.configure({ mode: "serial" });

test("a filter between two members: pair tests name the pair, a guide leads from the symptom to the card, whose mend lets them meet again", async ({ page }) => {
  test.setTimeout(600_000);
  await lab.fault(1, "firewall-drop", true, { peer: 2 });
  try {
    await openView(page, "pairs");
    await page.getByRole("form", { name: "New pair test" }).getByText("Ring", { exact: true }).click();
    await page.getByTestId("pairs-start").click();
    const pairs = page.getByTestId("pair-test");
    await expect(pairs).toHaveAttribute("data-state", "done", { timeout: 200_000 });
    const cell = (from: number, to: number) => pairs.locator(`[data-pair]`).and(pairs.getByLabel(new RegExp(`^node${from} → node${to}:`)));
    await expect(cell(1, 2)).toHaveAttribute("data-state", "failed");
    await expect(cell(2, 3)).toHaveAttribute("data-state", "ok");
    await expect(cell(3, 1)).toHaveAttribute("data-state", "ok");
    await cell(1, 2).click();
    await expect(pairs.getByTestId("pair-detail")).toContainText("nothing passes between node1 and node2");
    await picture(page, "pairs");

    await openView(page, "guides");
    await page.getByTestId("guide-rdma_connection_fails").click();
    for (const name of ["node1", "node2"]) await page.getByRole("group", { name: /Between which two nodes/ }).getByRole("checkbox", { name }).check();
    await page.getByTestId("guide-start").click();
    const guide = page.getByTestId("guide-run");
    await expect(guide).toHaveAttribute("data-state", "done", { timeout: 300_000 });
    await expect(guide).toHaveAttribute("data-verdict", "cause_found");
    await expect(guide.getByTestId("guide-step").filter({ hasText: "Does something filter" }).first()).toHaveAttribute("data-state", "fault");
    await picture(page, "guide");
    await applyMend(page, { card: cardOf(page, "host.firewall"), commands: /^nft delete rule/ });
    await expectMended(page, "host.firewall");
  } finally {
    await lab.fault(1, "firewall-drop", false, { peer: 2 });
  }
});

test("a rank that is stopped in an AllReduce is named and goes on by click; the loss of a link is found with it, and gone with its cause", async ({ page }) => {
  test.setTimeout(400_000);
  const header = await startRun(page, { transport: "TCP", min: "4M", max: "8M", factor: 2, iterations: 400, timeoutSeconds: 580 });
  await expect(header).toHaveAttribute("data-state", "running", { timeout: 30_000 });
  await expect(page.getByText("sizes").first()).toBeVisible();
  await lab.fault(3, "rank-stopped", true);
  await lab.fault(2, "loss-5", true);
  try {
    await openView(page, "hangs");
    await page.getByTestId("hangs-check").click();
    // Recordings of jobs that ended otherwise may lie on a node too.
    const group = page.getByTestId("hang-group").filter({ has: page.locator('[data-verdict="stopped"]') });
    await expect(group.getByTestId("hang-rank-2")).toHaveAttribute("data-verdict", "stopped", { timeout: 120_000 });
    await expect(group.getByTestId("hang-rank-0")).toHaveAttribute("data-verdict", "waiting");
    await picture(page, "hang");
    await checkNodes(page, ["node2", "node3"]);
    await openReport(page, "node2");
    const loss = cardOf(page, "rdma.packet_loss_counters");
    await expect(loss).toContainText("it is this node's own link");
    // A cable is not mended by a command: nothing is offered that would not help.
    await expect(loss.getByRole("button", { name: "Apply…" })).toHaveCount(0);
    await openReport(page, "node3");
    await applyMend(page, { card: cardOf(page, "host.process_stopped") });
    await expectMended(page, "host.process_stopped");
  } finally {
    await lab.fault(2, "loss-5", false);
    await lab.fault(3, "rank-stopped", false);
  }
  await openView(page, "hangs");
  await expect(async () => {
    await page.getByTestId("hangs-check").click();
    await expect(page.locator('[data-testid="hang-group"][data-verdict="running"]')).toBeVisible({ timeout: 30_000 });
  }).toPass({ timeout: 120_000 });
  await expect(page.locator('[data-verdict="stopped"]')).toHaveCount(0);
  await goTo(page, "Collectives");
  await header.getByRole("button", { name: "Stop" }).click();
  await expect(header).toHaveAttribute("data-state", "stopped", { timeout: 60_000 });
  await openView(page, "nodes");
  await openReport(page, "node2");
  await page.getByTestId("check-again").click();
  await expect(page.getByTestId("node-report")).toHaveAttribute("data-state", "running");
  await expect(page.getByTestId("node-report")).toHaveAttribute("data-state", "done", { timeout: 200_000 });
  await expect(cardOf(page, "rdma.packet_loss_counters")).toHaveCount(0);
});

test("a support bundle is looked through before it is saved, names nobody, and opens without a cluster", async ({ page, lab: { nodes } }) => {
  await openView(page, "support");
  await page.getByTestId("support-prepare").click();
  const bundle = page.getByTestId("support-bundle");
  await expect(bundle).toBeVisible({ timeout: 60_000 });
  await bundle.getByRole("button", { name: /ip_addr/ }).first().click();
  const preview = page.getByTestId("bundle-preview").getByRole("dialog");
  await expect(preview.locator("mark").first()).toBeVisible();
  for (const node of nodes) await expect(preview).not.toContainText(node.dataAddress);
  await page.keyboard.press("Escape");
  await picture(page, "support");
  const download = page.waitForEvent("download");
  await page.getByTestId("bundle-save").click();
  const file = (await download).suggestedFilename();
  const path = test.info().outputPath(file);
  await (await download).saveAs(path);
  await openView(page, "files");
  await page.locator("input[type=file]").setInputFiles(path);
  const opened = page.getByTestId("opened-bundle");
  await expect(opened).toBeVisible({ timeout: 60_000 });
  await expect(opened.getByTestId("node-report")).toHaveAttribute("data-state", "done");
  await expect(opened).not.toContainText(nodes[0]!.dataAddress);
});
