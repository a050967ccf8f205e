import { readFileSync } from "node:fs";
import { encodeBoard } from "../../electron/link/testing.js";
import { expect, goTo, nodeRow, picture, test } from "../fixtures.js";
import { sshExec } from "../lab/ssh.js";

const RINGS = "/run/stepccl/rings";

test("what a process says of its GPU's pool stands on the Memory page, and goes with the process", async ({ page, lab }) => {
  const node = lab.nodes[1]!;
  await expect(nodeRow(page, node.name)).toContainText("Up");
  const target = { port: node.sshPort, user: node.user, privateKey: readFileSync(node.keyPath, "utf8"), hostKeySha256: node.hostKeySha256 };
  const asRoot = async (script: string): Promise<string> => {
    const { code, stdout, stderr } = await sshExec(target, "sudo sh -s", { input: script });
    expect(code, stderr).toBe(0);
    return stdout.trim();
  };
  // The nodes have no GPU: a process that sleeps shows the board which the runtime would write for one.
  const [pid, uptime] = (await asRoot("sleep 600 >/dev/null 2>&1 & echo $! $(cut -d' ' -f1 /proc/uptime)")).split(" ").map(Number) as [number, number];
  try {
    const board = encodeBoard({
      pid, rank: 1, commId: 0xabcn, monotonicNs: BigInt(Math.round(uptime * 1000)) * 1_000_000n, job: "llama <b>70b</b>", heldBytes: 768 * 2 ** 20, usedBytes: 512 * 2 ** 20,
      ranges: [{ offset: 0, bytes: 512 * 2 ** 20, kind: 1 }, { offset: 512 * 2 ** 20, bytes: 256 * 2 ** 20, kind: 0 }], settings: [{ wanted: 0, inForce: 4, state: 0, reason: 0 }],
    });
    await asRoot(`base64 -d >${RINGS}/${pid}.1.0000000000000abc.gpu <<'EOF'\n${board.toString("base64")}\nEOF`);
    await goTo(page, "Memory");
    const row = page.getByTestId("memory-table").getByRole("row").filter({ hasText: node.name });
    await expect(row).toContainText("llama <b>70b</b>");
    await expect(row).toContainText("768 MiB");
    await expect(row).toContainText("25");
    const detail = page.getByTestId("pool-detail");
    await expect(detail.getByRole("option")).toHaveCount(2);
    await detail.getByRole("option").last().hover();
    await expect(detail.getByTestId("range-words")).toContainText("256 MiB");
    await picture(page, "memory");
    await page.getByText("Host memory", { exact: true }).click();
    await expect(page.getByTestId("host-memory-table").getByRole("row")).toHaveCount(lab.nodes.length + 1);
    await page.getByText("GPU pools", { exact: true }).click();
    await asRoot(`kill ${pid}`);
    await expect(row).toHaveCount(0, { timeout: 30_000 });
  } finally {
    await asRoot(`kill ${pid} 2>/dev/null; rm -f ${RINGS}/${pid}.1.0000000000000abc.gpu`);
  }
});
