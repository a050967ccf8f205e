import { join } from "node:path";
import { addByHand, expect, nodeRow, test, type NodeFields } from "../fixtures.js";

/** Adds a node that cannot work, lets the key be confirmed when there is one, and gives the code of the error shown. */
test.describe("a node that cannot be reached says why, and what to do next", () => {
  const cases: Array<{ title: string; change: (fields: NodeFields) => NodeFields; code: string }> = [
    { title: "a host that is down", change: (fields) => ({ ...fields, port: 9 }), code: "H201" },
    { title: "a wrong user", change: (fields) => ({ ...fields, user: "nobody-here" }), code: "H204" },
    { title: "a key file that is not there", change: (fields) => ({ ...fields, user: "ops2", keyPath: join("/nonexistent", "key") }), code: "H205" },
  ];
  for (const [index, { title, change, code }] of cases.entries()) {
    test(title, async ({ page, lab }) => {
      const node = lab.nodes[2]!;
      const name = `bad${index}`;
      await addByHand(page, change({ host: node.sshHost, port: node.sshPort, user: node.user, name, keyPath: node.keyPath }));
      if (code === "H201") {
        // Nobody answers, so there is no key to confirm, and the dialog says why. The others' address has a known key.
        const dialog = page.getByTestId("host-keys").getByRole("dialog");
        await expect(dialog.getByTestId("error-note")).toHaveAttribute("data-code", code, { timeout: 30_000 });
        await dialog.getByRole("button", { name: "Cancel" }).click();
      }
      await nodeRow(page, name).dblclick();
      const drawer = page.getByRole("dialog", { name: new RegExp(name) });
      if (code !== "H201") await drawer.getByRole("button", { name: "Connect", exact: true }).click();
      await expect(drawer.getByTestId("error-note").first()).toHaveAttribute("data-code", code, { timeout: 60_000 });
      await page.keyboard.press("Escape");
      await nodeRow(page, name).getByRole("checkbox").check();
      await page.getByRole("button", { name: "More" }).click();
      await page.getByRole("menuitem", { name: "Forget" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Forget" }).click();
      await expect(nodeRow(page, name)).toHaveCount(0);
    });
  }
});
