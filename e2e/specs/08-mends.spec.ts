import { cardOf, checkAll, mend, openReport } from "../diagnose.js";
import { expect, picture, test } from "../fixtures.js";
import type { FaultName } from "../lab/faults.js";
import * as lab from "../lab/lab.js";

test.describe.configure({ mode: "serial" });

interface Case { node: number; fault: FaultName; peer?: number; faultClass: string; commands?: RegExp }
const NAMES = ["node1", "node2", "node3"];

/** Faults that do not hide each other: one round of checks finds them all, each on its node. */
const ROUNDS: readonly (readonly Case[])[] = [
  [
    { node: 1, fault: "device-mode-000", faultClass: "perm.dma_device_node" },
    { node: 1, fault: "clock-skew", faultClass: "host.clock_skew" },
    { node: 2, fault: "module-missing", faultClass: "driver.not_installed" },
    { node: 2, fault: "memlock-small", faultClass: "host.memlock_service" },
    { node: 2, fault: "mtu-mismatch", faultClass: "link.mtu_mismatch" },
    { node: 3, fault: "netem-loss-5", faultClass: "rdma.packet_loss_counters", commands: /^tc qdisc del/ },
    { node: 3, fault: "daemon-killed", faultClass: "agent.down" },
  ],
  [
    { node: 1, fault: "firewall-drop", peer: 2, faultClass: "host.firewall", commands: /^nft delete rule/ },
    { node: 1, fault: "module-wrong-kernel", faultClass: "module.vermagic_mismatch" },
    { node: 2, fault: "rxe-removed", faultClass: "rdma.device_missing" },
    { node: 3, fault: "rdma-link-down", faultClass: "host.netdev_down" },
  ],
];

for (const [round, cases] of ROUNDS.entries()) {
  test(`round ${round + 1}: ${cases.map((each) => each.fault).join(", ")} are found in one check, mended by click, and the re-tests confirm it`, { tag: "@mends" }, async ({ page }) => {
    test.setTimeout(900_000);
    for (const { node, fault, peer } of cases) await lab.fault(node, fault, true, peer === undefined ? {} : { peer });
    try {
      await checkAll(page, NAMES);
      for (const { node, fault, faultClass } of cases) {
        await openReport(page, `node${node}`);
        await expect(cardOf(page, faultClass), `${fault} on node${node}`).toBeVisible();
      }
      await picture(page, `faults-found-${round + 1}`);
      for (const { node, faultClass, commands } of cases) {
        await openReport(page, `node${node}`);
        await mend(page, { card: cardOf(page, faultClass), faultClass, ...(commands ? { commands } : {}) });
      }
      await picture(page, `faults-mended-${round + 1}`);
    } finally {
      // What a mend does not undo of a fault's own doing, such as a drop-in of the unit.
      for (const { node, fault, peer } of cases) await lab.fault(node, fault, false, peer === undefined ? {} : { peer });
    }
  });
}
