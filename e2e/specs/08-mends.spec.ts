import { applyMend, cardOf, checkAll, expectMended, openReport } from "../diagnose.js";
import { expect, picture, test } from "../fixtures.js";
import type { FaultName } from "../lab/faults.js";
import * as lab from "../lab/lab.js";

test.describe.configure({ mode: "serial" });

interface Case { node: number; fault: FaultName; peer?: number; faultClass: string; commands?: RegExp }
const NAMES = ["node1", "node2", "node3"];

/**
 * Faults that do not hide each other: one round of checks finds them all, each on its node. A node's are mended in this order, the
 * nodes beside each other; a full disk comes first, since other mends write.
 */
const ROUNDS: readonly (readonly Case[])[] = [
  [
    { node: 1, fault: "device-mode-000", faultClass: "perm.dma_device_node" },
    { node: 1, fault: "clock-skew", faultClass: "host.clock_skew" },
    { node: 1, fault: "wrong-gid-index", faultClass: "roce.gid_wrong_index" },
    { node: 2, fault: "disk-full", faultClass: "host.disk_full", commands: /^rm -- .*\/fill$/ },
    { node: 2, fault: "memlock-small", faultClass: "host.memlock_service" },
    { node: 2, fault: "mtu-mismatch", faultClass: "link.mtu_mismatch" },
    { node: 3, fault: "netem-loss-5", faultClass: "rdma.packet_loss_counters", commands: /^tc qdisc del/ },
    { node: 3, fault: "dmar-fault", faultClass: "iommu.dmar_fault" },
    { node: 3, fault: "daemon-killed", faultClass: "agent.down" },
  ],
  [
    { node: 1, fault: "firewall-drop", peer: 2, faultClass: "host.firewall", commands: /^nft delete rule/ },
    { node: 1, fault: "module-wrong-kernel", faultClass: "module.vermagic_mismatch" },
    { node: 2, fault: "rxe-removed", faultClass: "rdma.device_missing" },
    { node: 2, fault: "module-missing", faultClass: "driver.not_installed" },
    { node: 3, fault: "rdma-link-down", faultClass: "host.netdev_down" },
  ],
];

for (const [round, cases] of ROUNDS.entries()) {
  test(`round ${round + 1}: ${cases.map((each) => each.fault).join(", ")} are found in one check, mended by click, and the re-tests confirm it`, async ({ page }) => {
    test.setTimeout(600_000);
    const set = async (order: readonly Case[], on: boolean): Promise<void> => { for (const { node, fault, peer } of order) await lab.fault(node, fault, on, peer === undefined ? {} : { peer }); };
    try {
      // Who fills a disk does so last, and frees it first.
      await test.step("break", () => set(cases.toReversed(), true));
      await test.step("check", () => checkAll(page, NAMES));
      for (const { node, fault, faultClass } of cases) {
        await openReport(page, `node${node}`);
        await expect(cardOf(page, faultClass), `${fault} on node${node}`).toBeVisible();
      }
      await picture(page, `faults-found-${round + 1}`);
      for (let turn = 0; ; turn++) {
        const now = [1, 2, 3].flatMap((node) => cases.filter((each) => each.node === node).slice(turn, turn + 1));
        if (now.length === 0) break;
        await test.step(`mend ${now.map((each) => each.fault).join(", ")}`, async () => {
          for (const { node, faultClass, commands } of now) {
            await openReport(page, `node${node}`);
            await applyMend(page, { card: cardOf(page, faultClass), ...(commands ? { commands } : {}) });
          }
          for (const { node, faultClass } of now) {
            await openReport(page, `node${node}`);
            await expectMended(page, faultClass);
          }
        });
      }
      await picture(page, `faults-mended-${round + 1}`);
    } finally {
      // What a mend does not undo of a fault's own doing, such as a drop-in of the unit or the plugged device.
      await test.step("take back", () => set(cases, false));
    }
  });
}
