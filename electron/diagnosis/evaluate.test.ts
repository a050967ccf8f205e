import { describe, expect, it } from "vitest";
import { FindingView } from "../contract/index.js";
import { evaluateCluster, evaluateNode, NODE_RULES } from "./evaluate.js";
import { clusterRules, type ClusterNode } from "./rules/cluster.js";
import type { SourceId } from "./sources.js";
import { HEALTHY, nodeWith } from "./testing.js";
import { FINDING_TEXTS } from "./texts.js";

const classes = (changes: Partial<Record<SourceId, string | null>>): string[] => evaluateNode(nodeWith(changes)).findings.map((finding) => finding.class);
const only = (changes: Partial<Record<SourceId, string | null>>): FindingView => {
  const { findings } = evaluateNode(nodeWith(changes));
  expect(findings).toHaveLength(1);
  return FindingView.parse(findings[0]);
};
const log = (...lines: string[]): Partial<Record<SourceId, string>> => ({ kernel_log: `${HEALTHY.kernel_log}${lines.join("\n")}\n` });
const port = (...lines: string[]): string => `port rxe0 1\n${lines.join("\n")}\n`;

describe("a healthy node", () => {
  it("has no finding, and every check could be made", () => {
    expect(evaluateNode(nodeWith({}))).toEqual({ findings: [], cannotTell: [] });
  });
  it.each([
    ["taint notes", "[   10.1] dma_engine: loading out-of-tree module taints kernel.", "[   10.2] dma_engine: module verification failed: signature and/or required key missing - tainting kernel"],
    ["the driver's ordinary words", "[ 20.0] dma_engine: DE002 engine ready chan=dma0chan0", "[ 21.0] dma_engine: DE202 node 7 is remote, refused", "[ 22.0] dma_engine: DE401 unloading"],
    ["other uses of the words", "[ 5.0] DMAR: Host address width 46", "[ 5.1] DMAR: DRHD base: 0x000000fed90000 flags: 0x0", "[ 5.2] version magic is a fine thing"],
    ["text that only looks like the driver", "[ 9.0] usb 1-1: Product: my dma_engine:DE301 stick"],
  ])("%s are no finding", (_name, ...lines) => {
    expect(classes(log(...lines))).toEqual([]);
  });
});

describe("the driver", () => {
  it.each([
    ["module for another kernel, by the log", { ...log("[   40.5] dma_engine: version magic '6.1.0-50-amd64 SMP preempt mod_unload modversions ' should be '6.1.0-57-amd64 SMP preempt mod_unload modversions '"), modules: "ext4 1 0\n", dma_device: "ls: cannot access '/dev/dma_device': No such file or directory\n" }, "module.vermagic_mismatch", { module: "dma_engine", found: "6.1.0-50-amd64 SMP preempt mod_unload modversions" }],
    ["module for another kernel, by modinfo", { modules: "ext4 1 0\n", kernel: "6.1.0-58-amd64\n", dma_device: "ls: cannot access '/dev/dma_device': No such file or directory\n" }, "module.wrong_kernel", { found: "6.1.0-57-amd64", expected: "6.1.0-58-amd64" }],
    ["Secure Boot", { kernel_log: "Apr 22 18:10:16 node01 systemd-modules-load[602]: Failed to insert module 'dma_engine': Key was rejected by service\n", modules: "ext4 1 0\n" }, "module.key_rejected", { module: "dma_engine" }],
    ["lockdown", { ...log("[ 9.0] Lockdown: insmod: unsigned module loading is restricted; see man kernel_lockdown.7"), modules: "ext4 1 0\n" }, "module.lockdown_eperm", {}],
    ["not loaded", { modules: "ext4 1 0\n", dma_device: "ls: cannot access '/dev/dma_device': No such file or directory\n" }, "driver.not_loaded", {}],
    ["device missing", { dma_device: "ls: cannot access '/dev/dma_device': No such file or directory\n" }, "dma.channel_unavailable", {}],
    ["device for root alone", { dma_device: "crw------- 1 root root 10, 122 Nov 30 17:00 /dev/dma_device\n" }, "perm.dma_device_node", { mode: "0600", owner: "root", group: "root" }],
    ["device open to all", { dma_device: "crw-rw-rw-+ 1 root stepccl 10, 122 Nov 30 17:00 /dev/dma_device\n" }, "perm.dma_device_node", { mode: "0666" }],
    ["user outside the group", { identity: "uid=1000(ops) gid=1000(ops) groups=1000(ops)\n" }, "perm.user_not_in_group", { user: "ops" }],
    ["what the driver reports", log("[ 99.5] dma_engine: DE101 memlock pid=812 comm=rank0 need=65536 pinned=2048 limit=2048 pages", "[ 99.6] dma_engine: DE101 memlock pid=813"), "driver.de101", { code: "DE101", text: "memlock pid=813" }],
  ] as const)("%s", (_name, changes, name, params) => {
    const finding = only(changes);
    expect(finding).toMatchObject({ class: name, params });
    expect(`${finding.title} ${finding.explanation}`).not.toMatch(/\{\w+\}/);
  });
  it("counts, and quotes the first and the last", () => {
    const finding = only(log(...Array.from({ length: 20 }, (_, i) => `[ ${i}.0] dma_engine: DE302 timeout chan=${i}`), "[ 99.0] dma_engine: 7 callbacks suppressed"));
    expect(finding.count).toBe(27);
    expect(finding.evidence.map((e) => e.line.slice(-2))).toEqual(["=0", "=1", "=2", "18", "19"]);
  });
  it("root needs no group; a listed user only a new login", () => {
    expect(classes({ identity: "uid=0(root) gid=0(root) groups=0(root)\n" })).toEqual([]);
    expect(only({ identity: "uid=1000(ops) gid=1000(ops) groups=1000(ops)\n" }).evidence[0]?.meaning).toContain("new login");
    expect(only({ identity: "uid=1000(ops) gid=1000(ops) groups=1000(ops)\n", group: "stepccl:x:998:\n" }).evidence[0]?.meaning).toBeNull();
  });
});

describe("the daemon and its host", () => {
  const service = (changes: Record<string, string>): { service: string } => ({ service: HEALTHY.service.split("\n").map((line) => { const key = line.split("=")[0]!; return key in changes ? `${key}=${changes[key]}` : line; }).join("\n") });
  it.each([
    ["not installed", service({ LoadState: "not-found", ActiveState: "inactive" }), "agent.not_installed", {}],
    ["stopped", service({ ActiveState: "inactive", MainPID: "0" }), "agent.not_running", { state: "inactive" }],
    ["crashed", service({ ActiveState: "failed", Result: "signal", ExecMainStatus: "11" }), "agent.crashed", { result: "signal", status: "11" }],
    ["about to be started again", service({ ActiveState: "activating", Result: "exit-code", ExecMainStatus: "1" }), "agent.crashed", { result: "exit-code" }],
    ["restarted", service({ NRestarts: "3" }), "agent.restarted", { restarts: 3 }],
    ["memlock", { daemon_limits: "Max locked memory         65536                65536                bytes     \n" }, "host.memlock_service", { limitBytes: 65536 }],
    ["disk full", { disk: "Filesystem     1024-blocks   Used Available Capacity Mounted on\n/dev/vda            498000 498000         0     100% /\n" }, "host.disk_full", { path: "/", freeBytes: 0, usedPercent: 100 }],
    ["shm full", { disk: "tmpfs                65536  65000       536      99% /dev/shm\n" }, "host.shm_small", { freeBytes: 536 * 1024 }],
  ] as const)("%s", (_name, changes, name, params) => {
    expect(only(changes)).toMatchObject({ class: name, params });
  });
  it("a crash quotes the daemon's last words", () => {
    expect(only(service({ ActiveState: "failed", Result: "exit-code" })).evidence.at(-1)?.line).toContain("listening on");
  });
});

describe("RDMA and the IOMMU", () => {
  const up = ["link_layer Ethernet", "netdev eth1", "gid 1 0000:0000:0000:0000:0000:ffff:0a4d:000b RoCE v2"];
  it.each([
    ["no stack", { rdma_sysfs: "\n", modules: "dma_engine 1 0\n" }, "perm.node_absent_module"],
    ["no device", { rdma_sysfs: "\n" }, "rdma.device_missing"],
    ["no signal", { rdma_sysfs: port("state 1: DOWN", "phys_state 2: Polling", ...up) }, "link.down_polling"],
    ["switched off", { rdma_sysfs: port("state 1: DOWN", "phys_state 3: Disabled", ...up) }, "link.disabled"],
    ["no subnet manager", { rdma_sysfs: port("state 2: INIT", "phys_state 5: LinkUp", "link_layer InfiniBand") }, "link.init_no_sm"],
    ["RoCE that does not come up", { rdma_sysfs: port("state 2: INIT", "phys_state 5: LinkUp", ...up) }, "link.not_active"],
    ["no GID at all", { rdma_sysfs: port("state 4: ACTIVE", "phys_state 5: LinkUp", "link_layer Ethernet", "netdev eth1") }, "roce.gid_missing"],
    ["only RoCE v1", { rdma_sysfs: port("state 4: ACTIVE", "phys_state 5: LinkUp", "link_layer Ethernet", "gid 1 0000:0000:0000:0000:0000:ffff:0a4d:000b IB/RoCE v1") }, "roce.gid_missing"],
    ["only a link-local GID", { rdma_sysfs: port("state 4: ACTIVE", "phys_state 5: LinkUp", "link_layer Ethernet", "gid 0 fe80:0000:0000:0000:5054:00ff:fe77:0001 RoCE v2") }, "roce.gid_missing"],
  ] as const)("%s", (_name, changes, name) => {
    expect(only(changes).class).toBe(name);
  });
  it("a spare port beside an active one is information, and InfiniBand needs no RoCE address", () => {
    const ib = "port mlx5_0 1\nstate 4: ACTIVE\nphys_state 5: LinkUp\nlink_layer InfiniBand\nport mlx5_0 2\nstate 1: DOWN\nphys_state 2: Polling\nlink_layer InfiniBand\n";
    expect(only({ rdma_sysfs: ib })).toMatchObject({ class: "link.unused_port_down", severity: "info", params: { device: "mlx5_0", port: 2 } });
  });
  it.each([
    ["bare", "[  815.089014] DMAR: [DMA Read] Request device [06:00.0] fault addr 1a5e12000 [fault reason 06] PTE Read access is not set"],
    ["with PASID", "[  815.089014] DMAR: [DMA Read] Request device [06:00.0] PASID ffffffff fault addr 1a5e12000 [fault reason 06] PTE Read access is not set"],
    ["with NO_PASID", "kern  :err   : 2025-01-25T10:34:54,859532+00:00 DMAR: [DMA Write NO_PASID] Request device [06:00.0] fault addr 0x1a5e12000 [fault reason 0x05] PTE Write access is not set"],
  ])("DMAR fault, %s", (_name, line) => {
    const finding = only(log(line, "[ 827.2] DMAR: DRHD: handling fault status reg 402"));
    expect(finding).toMatchObject({ class: "iommu.dmar_fault", severity: "high", params: { device: "06:00.0" }, count: 1 });
    expect(finding.mend[0]?.command).toBe("lspci -k -s 06:00.0");
  });
  it("faults of two devices are two findings; of the display at boot, information", () => {
    const fault = (at: string, device: string): string => `[    ${at}] DMAR: [DMA Read] Request device [${device}] fault addr 1000 [fault reason 06] PTE Read access is not set`;
    expect(classes(log(fault("815.0", "06:00.0"), fault("816.0", "07:00.0")))).toEqual(["iommu.dmar_fault", "iommu.dmar_fault"]);
    expect(only(log(fault("0.9", "00:02.0"), fault("1.1", "00:02.0"))).class).toBe("iommu.dmar_boot_transient");
    expect(only(log(fault("0.9", "00:02.0"), fault("99.0", "00:02.0"))).class).toBe("iommu.dmar_fault");
  });
});

describe("what could not be read", () => {
  it.each([
    ["kernel_log", ["iommu.dmar_fault", "module.key_rejected", "driver.de301"]], ["dma_device", ["perm.dma_device_node", "dma.channel_unavailable"]],
    ["service", ["agent.crashed", "agent.not_running"]], ["daemon_limits", ["host.memlock_service"]], ["rdma_sysfs", ["roce.gid_missing", "rdma.device_missing"]], ["disk", ["host.disk_full"]],
  ] as const)("without %s the checks that need it are said to be open", (id, names) => {
    const { findings, cannotTell } = evaluateNode(nodeWith({ [id]: null }));
    expect(findings).toEqual([]);
    for (const name of names) expect(cannotTell).toContainEqual({ class: name, missing: [id] });
  });
  it("a device node of unknown shape is not called missing", () => {
    expect(classes({ dma_device: "ls: cannot access '/dev/dma_device': Input/output error\n" })).toEqual([]);
  });
});

describe("nodes side by side", () => {
  const T = 1_764_520_000_000;
  const cluster = (...changes: Partial<Record<SourceId, string | null>>[]): ClusterNode[] =>
    changes.map((change, i) => ({ nodeId: `n${i}`, name: `n${i}`, dataAddress: null, sources: nodeWith(change, T, `n${i}`) }));
  const mtu = (value: number): { ip_link: string } => ({ ip_link: `3: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu ${value} qdisc pfifo_fast state UP mode DEFAULT\n` });
  const found = (nodes: ClusterNode[]): string[] => [...evaluateCluster(nodes)].flatMap(([nodeId, verdict]) => verdict.findings.map((f) => `${nodeId} ${f.class}`));

  it("equal nodes show nothing", () => expect(found(cluster({}, {}, {}))).toEqual([]));
  it("the one with another MTU is named, with the usual one", () => {
    const verdict = evaluateCluster(cluster({}, mtu(1500), {})).get("n1");
    expect(verdict?.findings).toMatchObject([{ class: "link.mtu_mismatch", params: { netdev: "eth1", mtu: 1500, usual: "9000" }, mend: [{ command: "ip link set eth1 mtu 9000" }] }]);
    expect(found(cluster({}, mtu(1500), {}))).toEqual(["n1 link.mtu_mismatch"]);
  });
  it("two against each other are both named", () => expect(found(cluster({}, mtu(1500)))).toEqual(["n0 link.mtu_mismatch", "n1 link.mtu_mismatch"]));
  it("the data address decides which interface counts", () => {
    const nodes = cluster({}, { ip_addr: "2: eth0    inet 10.0.0.5/24 scope global eth0\n", ip_link: "2: eth0: <UP> mtu 1400 qdisc x\n3: eth1: <UP> mtu 9000 qdisc x\n" });
    nodes[1]!.dataAddress = "10.0.0.5";
    expect(found(nodes)).toContain("n1 link.mtu_mismatch");
  });
  it("a clock that is apart is named, how far, and how bad", () => {
    expect(evaluateCluster(cluster({}, { clock: "1764520005.000000000\n" }, {})).get("n1")?.findings).toMatchObject([{ class: "host.clock_skew", severity: "medium", params: { seconds: 5 } }]);
    expect(evaluateCluster(cluster({}, { clock: "1764506400.000000000\n" }, {})).get("n1")?.findings).toMatchObject([{ severity: "high", params: { seconds: -13600 } }]);
    expect(found(cluster({}, { clock: "1764520001.500000000\n" }, {}))).toEqual([]);
  });
  it("one node alone cannot be compared, and says so", () => {
    expect(evaluateCluster(cluster({})).get("n0")).toEqual({ findings: [], cannotTell: [{ class: "link.mtu_mismatch", missing: ["MTU of the data interface of another node"] }, { class: "host.clock_skew", missing: ["the clock of another node"] }] });
    expect(evaluateCluster(cluster({}, { clock: null }, {})).get("n1")?.cannotTell).toEqual([{ class: "host.clock_skew", missing: ["clock"] }]);
  });
});

describe("words and hostile text", () => {
  it("every class has words, and every word has a class", () => {
    const known = [...NODE_RULES.map((rule) => rule.class), ...clusterRules.map((rule) => rule.class)];
    expect([...new Set(known)].sort()).toEqual(Object.keys(FINDING_TEXTS).sort());
  });
  it("a name from the node never becomes part of a command", () => {
    const finding = only({ identity: "uid=1000(x;reboot) gid=1000(x) groups=1000(x)\n", group: "stepccl:x:998:\n" });
    expect(finding.mend[0]?.command).toBe("usermod -aG stepccl USER");
    expect(finding.params["user"]).toBe("x;reboot");
  });
  it("megabytes of nonsense take no time and give nothing", () => {
    const began = performance.now();
    const nasty = [`[${" ".repeat(200_000)}`, "[".repeat(300_000), `${"a".repeat(100_000)}: version magic '`, "\u001b[".repeat(200_000), "#012".repeat(100_000), "DMAR: fault addr ".repeat(50_000)].join("\n");
    const result = evaluateNode(nodeWith(Object.fromEntries(Object.keys(HEALTHY).map((id) => [id, nasty]))));
    expect(performance.now() - began).toBeLessThan(4000);
    for (const finding of result.findings) {
      FindingView.parse(finding);
      for (const evidence of finding.evidence) expect(evidence.line.length).toBeLessThanOrEqual(500);
    }
  });
});
