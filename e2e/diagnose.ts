import { expect, type Locator, type Page } from "@playwright/test";
import { goTo } from "./fixtures.js";

/** Goes to one of the ways to diagnose. */
export async function openView(page: Page, view: "nodes" | "guides" | "pairs" | "hangs" | "files" | "support"): Promise<void> {
  await goTo(page, "Diagnose");
  await page.getByTestId(`view-${view}`).click();
}

/** Checks all nodes and waits until each has its verdict. */
export async function checkAll(page: Page, names: readonly string[]): Promise<void> {
  await openView(page, "nodes");
  await page.getByTestId("run-checks").click();
  await expect(page.getByRole("button", { name: "Cancel the checks" })).toBeVisible();
  await expect(page.getByTestId("run-checks")).toBeVisible({ timeout: 300_000 });
  for (const name of names) await openReport(page, name);
}

/** Checks these nodes alone, and waits until all have their verdict. */
export async function checkNodes(page: Page, names: readonly string[]): Promise<void> {
  await openView(page, "nodes");
  for (const name of names) await page.getByTestId("diagnose-nodes").getByRole("checkbox", { name: `Select ${name}` }).check();
  await page.getByRole("button", { name: `Check ${names.length} node${names.length === 1 ? "" : "s"}` }).click();
  await expect(page.getByRole("button", { name: "Cancel the checks" })).toBeVisible();
  await expect(page.getByTestId("run-checks")).toBeVisible({ timeout: 300_000 });
  await page.getByRole("button", { name: "Clear" }).click();
}

/** The report of one node, complete. */
export async function openReport(page: Page, name: string): Promise<Locator> {
  await page.getByTestId("diagnose-nodes").getByText(name, { exact: true }).click();
  const report = page.getByTestId("node-report").filter({ has: page.getByRole("heading", { name, exact: true }) });
  await expect(report).toHaveAttribute("data-state", "done");
  return report;
}

/** The card of a class of fault on the node whose report is open. */
export const cardOf = (page: Page, faultClass: string): Locator => page.locator(`[data-testid="finding"][data-class="${faultClass}"]`).first();

export interface MendOptions {
  /** Where to look: the open report, or a guide's card. */
  card: Locator;
  /** The commands to run: all that match. The first that can be applied where absent. */
  commands?: RegExp;
}

/** Starts the mend of a card by clicking, as a person does: reads the commands, consents (twice where it destroys). */
export async function applyMend(page: Page, { card, commands }: MendOptions): Promise<void> {
  await card.getByRole("button", { name: "Apply…" }).first().click();
  const dialog = page.getByTestId("apply-dialog").getByRole("dialog");
  await expect(dialog.getByText(/Read again afterwards/)).toBeVisible();
  if (commands) {
    for (const choice of await dialog.getByRole("listitem").all()) {
      await choice.getByRole("checkbox").setChecked(commands.test(await choice.locator("code").innerText()));
    }
    await expect(dialog.getByText(/Read again afterwards/)).toBeVisible();
  }
  const second = dialog.getByTestId("second-consent");
  if (await second.isVisible()) {
    await expect(dialog.getByTestId("apply-mend")).toBeDisabled();
    await second.fill((await dialog.getByRole("heading").innerText()).replace(/^Apply on (.*)\?$/, "$1"));
  }
  await dialog.getByTestId("apply-mend").click();
  await expect(dialog).toBeHidden();
}

/** Waits for what the re-test says of the newest mend of a class on the node whose report, or in the guide which, is open. */
export async function expectMended(page: Page, faultClass: string): Promise<void> {
  const run = page.locator(`[data-class="${faultClass}"] [data-testid="mend-run"]`).first();
  await expect(run, faultClass).toHaveAttribute("data-state", /^(mended|not_mended|unknown|failed|cancelled)$/, { timeout: 120_000 });
  await expect(run, faultClass).toHaveAttribute("data-state", "mended");
  await expect(run.getByTestId("before-after")).toContainText("Not found any more");
}
