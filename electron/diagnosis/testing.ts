import type { Collected } from "./collect.js";
import { sourcesOf, type NodeSources } from "./facts.js";
import { SOURCES, type SourceId } from "./sources.js";

/** For tests: a node's sources from plain texts. A source that is not given could not be read. */

/** A node on which all is well, as the lab's nodes look. */
export const HEALTHY: Record<SourceId, string> = {
  kernel_log: "[    0.000000] Linux version 6.1.0-57-amd64\n[   12.000000] dma_engine: DE001 loaded version=0.1.0 abi=1.0 git=abc kernel=6.1.0-57-amd64\n",
  dma_device: "crw-rw---- 1 root stepccl 10, 122 Nov 30 17:00 /dev/dma_device\n",
  identity: "uid=1000(ops) gid=1000(ops) groups=1000(ops),27(sudo),998(stepccl)\n",
  group: "stepccl:x:998:ops\n",
  kernel: "6.1.0-57-amd64\n",
  modules: "dma_engine 65536 0 - Live 0x0000000000000000 (OE)\nib_uverbs 180224 1 rdma_rxe, Live 0x0000000000000000\n",
  module_info: "filename:       /lib/modules/6.1.0-57-amd64/updates/dma_engine.ko\nvermagic:       6.1.0-57-amd64 SMP preempt mod_unload modversions \n",
  service: "Result=success\nNRestarts=0\nExecMainCode=0\nExecMainStatus=0\nMainPID=512\nLoadState=loaded\nActiveState=active\nSubState=running\n",
  service_log: "2026-11-30T17:00:01+0000 n1 stepccld[512]: listening on /run/stepccl/agent.sock\n",
  daemon_limits: "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         unlimited            unlimited            bytes     \n",
  rdma_sysfs: "port rxe0 1\nstate 4: ACTIVE\nphys_state 5: LinkUp\nlink_layer Ethernet\nrate 2.5 Gb/sec (1X SDR)\nnetdev eth1\ngid 0 fe80:0000:0000:0000:5054:00ff:fe77:0001 RoCE v2\ngid 1 0000:0000:0000:0000:0000:ffff:0a4d:000b RoCE v2\n",
  ibstat: "CA 'rxe0'\n\tCA type: \n\tNumber of ports: 1\n", ibv_devinfo: "hca_id:\trxe0\n", rdma_link: "link rxe0/1 state ACTIVE physical_state LINK_UP netdev eth1 \n",
  ip_addr: "1: lo    inet 127.0.0.1/8 scope host lo\n3: eth1    inet 10.77.0.11/24 brd 10.77.0.255 scope global eth1\n",
  ip_link: "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000\n    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n3: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc pfifo_fast state UP mode DEFAULT group default qlen 1000\n",
  disk: "Filesystem     1024-blocks   Used Available Capacity Mounted on\n/dev/vda            498000 221000    266000      46% /\ntmpfs                98000      0     98000       0% /dev/shm\n",
  clock: "1764520000.000000000\n", uptime: " 17:00:00 up 1 min,  0 users,  load average: 0.10, 0.03, 0.01\n",
};

export function sourcesFor(texts: Partial<Record<SourceId, string>>, atMs = 1_764_520_000_000, nodeId = "n1"): NodeSources {
  const entries = SOURCES.map((spec): [SourceId, Collected] => {
    const text = texts[spec.id];
    const state = text === undefined ? "not_permitted" : "ok";
    return [spec.id, { text: text ?? "", beganAtMs: atMs - 10, endedAtMs: atMs + 10, view: { id: spec.id, command: spec.attempts[0].command, state, collectedAtMs: atMs, durationMs: 20, text: text ?? "", truncatedBytes: 0, error: null } }];
  });
  return sourcesOf(nodeId, new Map(entries));
}
/** The healthy node with some sources changed; `null` = could not be read. */
export function nodeWith(changes: Partial<Record<SourceId, string | null>>, atMs?: number, nodeId?: string): NodeSources {
  const texts: Partial<Record<SourceId, string>> = { ...HEALTHY };
  for (const [id, text] of Object.entries(changes) as [SourceId, string | null][]) {
    if (text === null) delete texts[id];
    else texts[id] = text;
  }
  return sourcesFor(texts, atMs, nodeId);
}
