import { cardOf, checkAll, mend, openReport } from "../diagnose.js";
import { expect, picture, test } from "../fixtures.js";
import type { FaultName } from "../lab/faults.js";
import * as lab from "../lab/lab.js";

test.describe.configure({ mode: "serial" });

interface Case { node: number; fault: FaultName; faultClass: string; commands?: RegExp }
const NAMES = ["node1", "node2", "node3"];

/** Faults that do not hide each other: one round of checks finds them all, each on its node. */
const CASES: readonly Case[] = [
  { node: 1, fault: "device-mode-000", faultClass: "perm.dma_device_node" },
  { node: 1, fault: "clock-skew", faultClass: "host.clock_skew" },
  { node: 2, fault: "module-missing", faultClass: "driver.not_installed" },
  { node: 2, fault: "memlock-small", faultClass: "host.memlock_service" },
  { node: 2, fault: "mtu-mismatch", faultClass: "link.mtu_mismatch" },
  { node: 3, fault: "netem-loss-5", faultClass: "rdma.packet_loss_counters", commands: /^tc qdisc del/ },
  { node: 3, fault: "daemon-killed", faultClass: "agent.down" },
];

test("faults of three nodes are found in one check, mended by click, and the re-tests confirm it", { tag: "@mends" }, async ({ page }) => {
  test.setTimeout(900_000);
  for (const { node, fault } of CASES) await lab.fault(node, fault, true);
  try {
    await checkAll(page, NAMES);
    for (const { node, fault, faultClass } of CASES) {
      await openReport(page, `node${node}`);
      await expect(cardOf(page, faultClass), `${fault} on node${node}`).toBeVisible();
    }
    await picture(page, "faults-found");
    for (const { node, faultClass, commands } of CASES) {
      await openReport(page, `node${node}`);
      await mend(page, { card: cardOf(page, faultClass), faultClass, ...(commands ? { commands } : {}) });
    }
    await picture(page, "faults-mended");
  } finally {
    // What a mend does not undo of a fault's own doing, such as a drop-in of the unit.
    for (const { node, fault } of CASES) await lab.fault(node, fault, false);
  }
});
