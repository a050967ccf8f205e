import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { describe, expect, it } from "vitest";
import { ConsoleError, FindingView, SourceView } from "../../contract/index.js";
import type { ExecOptions, ExecResult, NodeSession } from "../../ssh/types.js";
import { collect, type Collected, type CollectedSources } from "../collect.js";
import { diagnoseFiles, judgeNode } from "../diagnose.js";
import type { LiveNode } from "./read.js";
import { sourcesFor, type SourceId, type Spec } from "../sources.js";

const T = 1_764_520_000_000;
const SPECS = sourcesFor(["10.77.0.12", "10.77.0.13"]);
type Texts = Partial<Record<SourceId, string | null>>;

/** A node of the lab on which all is well. */
const HEALTHY: Texts = {
  kernel_log: "[    0.000000] Linux version 6.1.0-57-amd64\n[   12.000000] dma_engine: loading out-of-tree module taints kernel.\n[   12.010000] dma_engine: DE001 loaded version=0.1.0 abi=1.0 git=abc kernel=6.1.0-57-amd64\n[   12.010100] dma_engine: DE003 no DMA engine found (request gave -EPROBE_DEFER), CPU fallback active\n",
  dma_device: "crw-rw---- 1 root stepccl 10, 122 Nov 30 17:00 /dev/dma_device\n", identity: "uid=1000(ops) gid=1000(ops) groups=1000(ops),27(sudo),998(stepccl)\n", group: "stepccl:x:998:ops\n", kernel: "6.1.0-57-amd64\n",
  modules: "Module                  Size  Used by\nrdma_rxe              176128  0\ndma_engine             65536  0\nib_uverbs             180224  1 rdma_rxe\nib_core               442368  2 rdma_rxe,ib_uverbs\n",
  module_info: "filename:       /lib/modules/6.1.0-57-amd64/updates/stepccl/dma_engine.ko\nvermagic:       6.1.0-57-amd64 SMP preempt mod_unload modversions \n", module_files: "/lib/modules/6.1.0-57-amd64/updates/stepccl/dma_engine.ko\n",
  service: "Result=success\nNRestarts=0\nExecMainCode=0\nExecMainStatus=0\nMainPID=512\nLoadState=loaded\nActiveState=active\nSubState=running\n", service_log: "2026-11-30T17:00:01+0000 n1 stepccld[512]: listening on /run/stepccl/agent.sock\n",
  stepccld_limits: "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         unlimited            unlimited            bytes     \n", processes: "  512 Ssl    60 stepccld\n  900 S      10 stepccl-perf\n",
  rdma_ports: "/sys/class/infiniband/rxe0/ports/1/state:4: ACTIVE\n/sys/class/infiniband/rxe0/ports/1/phys_state:5: LinkUp\n/sys/class/infiniband/rxe0/ports/1/link_layer:Ethernet\n/sys/class/infiniband/rxe0/ports/1/rate:2.5 Gb/sec (1X SDR)\n/sys/class/infiniband/rxe0/ports/1/lid:0x0\n",
  rdma_link: "link rxe0/1 state ACTIVE physical_state LINK_UP netdev eth1 \n",
  gids: "/sys/class/infiniband/rxe0/ports/1/gids/0:fe80:0000:0000:0000:5054:00ff:fe77:0001\n/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/0:RoCE v2\n/sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0:eth1\n/sys/class/infiniband/rxe0/ports/1/gids/1:0000:0000:0000:0000:0000:ffff:0a4d:000b\n/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1:RoCE v2\n/sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1:eth1\n",
  counters: "/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err:0\n/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err:0\n",
  ip_addr: "1: lo    inet 127.0.0.1/8 scope host lo\n3: eth1    inet 10.77.0.11/24 brd 10.77.0.255 scope global eth1\n",
  ip_link: "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000\n    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n3: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc pfifo_fast state UP mode DEFAULT group default qlen 1000\n",
  firewall: "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n}\n", disk: "Filesystem     1024-blocks   Used Available Capacity Mounted on\n/dev/vda            498000 221000    266000      46% /\ntmpfs                98000      0     98000       0% /dev/shm\n",
  clock: "1764520000.000000000\n", qdisc: "qdisc noqueue 0: dev lo root refcnt 2\nqdisc pfifo_fast 0: dev eth1 root refcnt 2 bands 3\n", command_line: "root=/dev/vda console=ttyS0\n", memory: "MemTotal: 200000 kB\nHugePages_Total:       0\nHugePages_Free:        0\n",
  peers: ["10.77.0.12", "10.77.0.13"].map((p) => `peer ${p}\n60 packets transmitted, 60 received, 0% packet loss, time 1213ms\nrtt min/avg/max/mdev = 0.3/0.5/0.9/0.1 ms\nfull frame of 9000 passes\ntcp status 0\n`).join(""),
};

function collected(changes: Texts, atMs = T): CollectedSources {
  const texts: Texts = { ...HEALTHY, ...changes };
  return new Map(SPECS.map((spec): [SourceId, Collected] => {
    const text = texts[spec.id];
    const ok = text !== undefined && text !== null;
    return [spec.id, { spec, text: text ?? "", beganAtMs: atMs - 10, endedAtMs: atMs + 10, uptimeMs: 900_000, view: { id: spec.id, command: "x", state: ok ? "ok" : "not_permitted", collectedAtMs: atMs, durationMs: 20, text: text ?? "", truncatedBytes: 0, error: null } }];
  }));
}
const node = (changes: Texts = {}, more: Partial<LiveNode> = {}): LiveNode => ({ nodeId: "n1", name: "n1", dataAddress: "10.77.0.11", gidIndex: 1, collected: collected(changes), ...more });
const other = (changes: Texts = {}, last = 12): LiveNode => node({ ip_addr: `3: eth1    inet 10.77.0.${last}/24 scope global eth1\n`, ...changes }, { nodeId: `n${last}`, name: `n${last}`, dataAddress: `10.77.0.${last}` });
const told = (n: LiveNode, others: LiveNode[] = [other(), other({}, 13)]): { class: string; consequenceOf: string | null; severity: string }[] =>
  judgeNode(n, others).findings.filter((f) => f.severity !== "info").map((f) => ({ class: f.class, consequenceOf: f.consequenceOf, severity: f.severity }));

describe("a healthy node", () => {
  it("shows nothing above info", () => {
    expect(told(node())).toEqual([]);
  });
});

it("a driver that loaded in the end has no fault left of earlier attempts", () => {
  expect(told(node({ kernel_log: `[ 9.1] dma_engine: disagrees about version of symbol module_layout\n${HEALTHY.kernel_log}` }))).toEqual([]);
});

it("two echoes that are lost are a busy machine, a link that goes on losing is told, and no command takes the peer for a device", () => {
  const volleys = (...lost: [sent: number, lost: number][]): string => HEALTHY.peers!.replace("60 packets transmitted, 60 received, 0% packet loss, time 1213ms", lost.map(([n, l]) => `${n} packets transmitted, ${n - l} received, ${(l / n * 100).toFixed(4)}% packet loss, time 1213ms`).join("\n"));
  expect(told(node({ peers: volleys([60, 2], [240, 1]) }))).toEqual([]);
  const [finding] = judgeNode(node({ peers: volleys([60, 2], [240, 20]) }), []).findings;
  expect(finding).toMatchObject({ class: "rdma.packet_loss_counters", severity: "high", params: { lossPercent: 7.3 } });
  expect(finding!.evidence.map((e) => e.line)).toEqual(["10.77.0.12: 60 packets transmitted, 58 received, 3.3333% packet loss, time 1213ms", "10.77.0.12: 240 packets transmitted, 220 received, 8.3333% packet loss, time 1213ms"]);
  expect(finding!.mend.map((m) => m.command)).toEqual(["rdma statistic show link DEVICE/1", "ip -s link show eth1; tc qdisc show dev eth1"]);
});

it("a loss to every peer, or one that the node makes itself, is one finding of its own link", () => {
  const all = HEALTHY.peers!.replaceAll("60 received, 0% packet loss", "54 received, 10% packet loss");
  const own = judgeNode(node({ peers: all }), []).findings.filter((f) => f.class === "rdma.packet_loss_counters");
  expect(own.map((f) => [f.devices, f.evidence.length])).toEqual([[["eth1"], 2]]);
  const netem = judgeNode(node({ peers: HEALTHY.peers!.replace("60 received, 0% packet loss", "54 received, 10% packet loss"), qdisc: "qdisc netem 8001: dev eth1 root refcnt 2 limit 1000 loss 5%\n" }), []).findings.filter((f) => f.class === "rdma.packet_loss_counters");
  expect(netem.map((f) => [f.devices, f.evidence.map((e) => e.source)])).toEqual([[["eth1"], ["qdisc", "peers"]]]);
  expect(netem[0]!.mend[0]).toMatchObject({ id: "shaping", command: "tc qdisc del dev eth1 root" });
});

describe("the lab's faults, each named first", () => {
  const gone = "ls: cannot access '/dev/dma_device': No such file or directory\n";
  const noModule = HEALTHY.modules!.replace(/dma_engine .*\n/, "");
  const drop = 'table inet lab_fault {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tiifname "eth1" ip saddr 10.77.0.12 meta l4proto tcp counter packets 4 bytes 240 drop\n\t\tiifname "eth1" ip saddr 10.77.0.12 udp dport 4791 counter packets 0 bytes 0 drop\n\t}\n}\n';
  const down = HEALTHY.ip_link!.replace("<BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc pfifo_fast state UP", "<BROADCAST,MULTICAST> mtu 9000 qdisc pfifo_fast state DOWN");
  it.each([
    ["device with mode 000", { dma_device: "c--------- 1 root stepccl 10, 122 Nov 30 17:00 /dev/dma_device\n" }, "perm.dma_device_node"],
    ["device open to all", { dma_device: "crw-rw-rw- 1 root stepccl 10, 122 Nov 30 17:00 /dev/dma_device\n" }, "perm.dma_device_node"],
    ["device of root's group", { dma_device: "crw-rw---- 1 root root 10, 122 Nov 30 17:00 /dev/dma_device\n" }, "perm.dma_device_node"],
    ["user outside the group", { identity: "uid=1000(ops) gid=1000(ops) groups=1000(ops)\n" }, "perm.user_not_in_group"],
    ["module not loaded", { modules: noModule, dma_device: gone }, "driver.not_loaded"],
    ["module missing on the disk", { modules: noModule, dma_device: gone, module_files: "", module_info: "modinfo: ERROR: Module dma_engine not found.\n" }, "driver.not_installed"],
    ["module for another kernel", { modules: noModule, dma_device: gone, module_info: "vermagic:       6.1.0-057-amd64 SMP preempt mod_unload modversions \n", kernel_log: "[ 99.1] dma_engine: disagrees about version of symbol module_layout\n" }, "module.vermagic_mismatch"],
    ["module gone after one of another kernel", { modules: noModule, dma_device: gone, module_files: "", module_info: "modinfo: ERROR: Module dma_engine not found.\n", kernel_log: "[ 99.1] dma_engine: disagrees about version of symbol module_layout\n" }, "driver.not_installed"],
    ["key rejected", { modules: noModule, dma_device: gone, kernel_log: "[ 99.1] Loading of module with unavailable key is rejected\n" }, "module.key_rejected"],
    ["node of a loaded module gone", { dma_device: gone }, "dma.channel_unavailable"],
    ["interface down", { ip_link: down, rdma_ports: HEALTHY.rdma_ports!.replace("4: ACTIVE", "1: DOWN").replace("5: LinkUp", "3: Disabled"), rdma_link: "link rxe0/1 state DOWN physical_state DISABLED netdev eth1 \n" }, "host.netdev_down"],
    ["rxe removed", { rdma_link: "", rdma_ports: "", gids: "" }, "rdma.device_missing"],
    ["no GID for the data address", { gids: HEALTHY.gids!.split("\n").slice(0, 3).join("\n") }, "roce.gid_missing"],
    ["small memlock of the daemon", { stepccld_limits: "Max locked memory         65536                65536                bytes     \n" }, "host.memlock_service"],
    ["firewall, by its rules", { firewall: drop }, "host.firewall"],
    ["firewall, by what passes", { firewall: null, peers: HEALTHY.peers!.replace("tcp status 0", "tcp status 124") }, "host.firewall"],
    ["small MTU", { ip_link: HEALTHY.ip_link!.replace("mtu 9000", "mtu 1500") }, "link.mtu_mismatch"],
    ["full frames do not pass", { peers: HEALTHY.peers!.replace("full frame of 9000 passes", "full frame of 9000 does not pass") }, "host.mtu"],
    ["clock ahead", { clock: "1764520600.000000000\n" }, "host.clock_skew"],
    ["disk full", { disk: "Filesystem     1024-blocks   Used Available Capacity Mounted on\n/dev/vda            498000 498000         0     100% /\n" }, "host.disk_full"],
    ["daemon killed", { service: HEALTHY.service!.replace("ActiveState=active", "ActiveState=failed").replace("Result=success", "Result=signal") }, "agent.down"],
    ["daemon crash loop", { service: HEALTHY.service!.replace("ActiveState=active", "ActiveState=activating").replace("Result=success", "Result=exit-code").replace("NRestarts=0", "NRestarts=7") }, "agent.crash_loop"],
    ["daemon not installed", { service: "LoadState=not-found\nActiveState=inactive\n" }, "agent.down"],
    ["rank stopped", { processes: "  512 Ssl    60 stepccld\n  900 Tl     10 stepccl-perf\n" }, "host.process_stopped"],
    ["packet loss", { peers: HEALTHY.peers!.replace("60 received, 0% packet loss", "54 received, 10% packet loss") }, "rdma.packet_loss_counters"],
    ["repeats between two readings", { counters: "/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err:3\n/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err:41\n" }, "rdma.packet_loss_counters"],
    ["DMAR fault", { kernel_log: `${HEALTHY.kernel_log}[  815.1] DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0x1000 [fault reason 0x06] PTE Read access is not set\n` }, "iommu.dmar_fault"],
  ] as const)("%s", (_name, changes, cls) => {
    const found = told(node(changes)).filter((f) => f.class !== "driver.cpu_fallback");
    expect(found[0]).toMatchObject({ class: cls, consequenceOf: null });
    expect(found.filter((f) => f.consequenceOf === null).map((f) => f.class)).toEqual([cls]);
    const first = judgeNode(node(changes), [other(), other({}, 13)]).findings[0]!;
    FindingView.parse(first);
    expect(first.evidence.length).toBeGreaterThan(0);
    expect(first.mend.length).toBeGreaterThan(0);
  });

  it("a wrong GID index of the membership names the right one", () => {
    const f = judgeNode(node({}, { gidIndex: 0 }), []).findings.find((x) => x.class === "roce.gid_wrong_index");
    expect(f).toMatchObject({ params: { index: 1, used: 0 } });
    expect(f!.mend.map((m) => m.command)).toEqual(["stepccl nodes rejoin n1", "show_gids", "export NCCL_IB_GID_INDEX=1 UCX_IB_GID_INDEX=1"]);
  });
  it("the mend names the MTU of the others, the peer that cannot pass is named too", () => {
    const f = judgeNode(node({ ip_link: HEALTHY.ip_link!.replace("mtu 9000", "mtu 1500") }), [other(), other({}, 13)]).findings[0]!;
    expect(f.mend[0]!.command).toBe("ip link set dev eth1 mtu 9000");
  });
  it("a rule that drops is taken out by its handle", () => {
    const f = judgeNode(node({ firewall: 'table inet lab_fault { # handle 7\n\tchain input { # handle 1\n\t\ttype filter hook input priority filter; policy accept;\n\t\tiifname "eth1" ip saddr 10.77.0.12 udp dport 4791 counter packets 0 bytes 0 drop # handle 3\n\t}\n}\n' }), []).findings[0]!;
    expect(f.mend[0]).toMatchObject({ command: "nft delete rule inet lab_fault input handle 3", risk: "none" });
  });
  it("another member's view shows a filter that this node does not let read", () => {
    const from12 = other({ peers: HEALTHY.peers!.replaceAll("10.77.0.12", "10.77.0.11").replace("tcp status 0", "tcp status 124") });
    expect(told(node({ firewall: null }), [from12])[0]).toMatchObject({ class: "host.firewall" });
  });
  it("Chinese, when asked for", () => {
    expect(judgeNode(node({ disk: "/dev/vda 498000 498000 0 100% /\n" }), []).findings[0]!.title.zh).toBe("文件系统已满");
  });
});

describe("history", () => {
  const fault = "[  815.1] DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0x1000 [fault reason 0x06] PTE Read access is not set\n";
  const boot = "11111111-2222-3333-4444-555555555555";
  it("a log that the present state denies is a note: the disk has space, the module is loaded, the limit is lifted", () => {
    const full = "2026-11-30T17:00:09+0000 n1 stepccld[512]: cannot write the state: No space left on device\n";
    const seen = judgeNode(node({ service_log: `${HEALTHY.service_log}${full}` }), []).findings.find((f) => f.class === "host.disk_full");
    expect(seen).toMatchObject({ severity: "info", mend: expect.any(Array) });
    expect(seen!.checked.map((c) => c.en)).toContain("Every file system has space now: these lines are of earlier.");
    // Without df nobody knows, and the line counts.
    expect(told(node({ service_log: full, disk: null })).map((f) => f.class)).toContain("host.disk_full");
    expect(told(node({ service_log: full, disk: HEALTHY.disk!.replace("46%", "100%") })).map((f) => f.class)).toContain("host.disk_full");
  });
  it("when the kernel logged it is told by the console's clock", () => {
    expect(judgeNode(node({ kernel_log: `${fault}${fault.replace("815.1", "890.1")}` }), []).findings[0]).toMatchObject({ count: 2, first: { time: 815.1, atMs: T - 10 - 84_900 }, last: { time: 890.1, atMs: T - 10 - 9_900 } });
  });
  it("a mended fault is a note until it is logged again, and only in the boot in which it was mended", () => {
    const id = judgeNode(node({ kernel_log: fault }), []).findings[0]!.id;
    const seen = (log: string, bootId: string) => judgeNode(node({ kernel_log: log, boot: `${bootId}\n` }), [], new Map([[id, { time: 816, clock: "uptime", bootId: boot }]])).findings.find((f) => f.id === id)!.severity;
    expect(seen(fault, boot)).toBe("info");
    expect(seen(`${fault}${fault.replace("815.1", "901.1")}`, boot)).not.toBe("info");
    expect(seen(fault, "00000000-2222-3333-4444-555555555555")).not.toBe("info");
  });
});

it("clocks are compared no closer than they were read, the others' no less than this node's", () => {
  const loose = (atMs: number): LiveNode => { const n = other(); const c = n.collected.get("clock")!; return { ...n, collected: new Map(n.collected).set("clock", { ...c, beganAtMs: atMs - 4000, endedAtMs: atMs + 4000 }) }; };
  expect(told(node(), [loose(T - 3000), loose(T - 3000)])).toEqual([]);
  expect(told(node(), [loose(T - 7000), loose(T - 7000)]).map((f) => f.class)).toEqual(["host.clock_skew"]);
});

describe("what could not be read", () => {
  it.each([
    ["service", ["agent.down", "host.process_stopped"], { service: null, service_log: null, processes: null }], ["kernel log", ["iommu.dmar_fault", "gpu.xid_79"], { kernel_log: null, command_line: null }], ["disk", ["host.disk_full"], { disk: null }],
  ] as const)("without %s its checks are open, not fine", (_name, names, changes) => {
    const { cannotTell, findings } = judgeNode(node(changes), []);
    for (const name of names) { expect(cannotTell.map((c) => c.class)).toContain(name); expect(findings.map((f) => f.class)).not.toContain(name); }
    expect(cannotTell.every((c) => c.missing.length > 0)).toBe(true);
  });
  it("nothing at all: no finding", () => {
    const none = Object.fromEntries(SPECS.map((s) => [s.id, null])) as Texts;
    expect(judgeNode(node(none), [other()]).findings).toEqual([]);
  });
});

describe("collecting", () => {
  const asked: { root: boolean; script: string }[] = [];
  /** A session whose node is this machine. */
  const here = (root: (options: ExecOptions) => Error | null = () => null): NodeSession => ({
    nodeId: "n1", execLines: (command: string, onLine: (stream: "stdout" | "stderr", line: string) => void, options: ExecOptions = {}) => {
      asked.push({ root: options.root === true, script: String(options.stdin) });
      const refused = options.root ? root(options) : null;
      if (refused) return Promise.reject(refused);
      expect(command).toBe("sh -s");
      return new Promise<ExecResult>((done) => {
        const child = spawn("sh", ["-s"], { stdio: ["pipe", "pipe", "pipe"] });
        let stdout = "";
        let stderr = "";
        child.stdout.on("data", (d: Buffer) => { stdout += d.toString(); });
        child.stderr.on("data", (d: Buffer) => { stderr += d.toString(); });
        child.on("close", (status) => { for (const line of stdout.split("\n")) onLine("stdout", line); done({ status, signal: null, stdout, stderr, droppedBytes: 0, durationMs: 1 }); });
        child.stdin.end(options.stdin);
      });
    },
  }) as unknown as NodeSession;
  const spec = (id: SourceId, command: string, more: Partial<Spec> = {}): Spec => ({ id, kind: "network", attempts: [{ command }], timeoutMs: 2_000, maxBytes: 4096, ...more });

  it("one command for all that is quick, each with its own output, status and limit", async () => {
    asked.length = 0;
    const progress: string[] = [];
    const out = await collect(here(), [
      spec("kernel", "printf 'no newline at the end'"), spec("ip_addr", "echo one; echo two; echo bad >&2; exit 3"), spec("ip_link", "no-such-command-here"), spec("disk", "false", { answers: [1] }), spec("clock", "sleep 30", { timeoutMs: 1_000 }),
      spec("memory", "yes line"), spec("sysctl", "cat /proc/1/mem"), spec("qdisc", "cat"), spec("ip_route", "echo '@@0123 kernel 0 1 2'; printf '\\n@@\\n'"),
    ], new AbortController().signal, (id) => progress.push(id));
    expect(asked).toHaveLength(1);
    expect(progress).toHaveLength(9);
    expect(out.get("kernel")!).toMatchObject({ text: "no newline at the end", view: { state: "ok" } });
    expect(out.get("ip_addr")!.view).toMatchObject({ state: "failed", error: { code: "H310" } });
    expect(out.get("ip_addr")!.view.error!.message).toContain("bad");
    expect(out.get("ip_link")!.view.state).toBe("missing");
    expect(out.get("disk")!.view.state).toBe("ok");
    expect(out.get("clock")!.view.state).toBe("timeout");
    expect(out.get("memory")!.text.length).toBe(4096);
    expect(out.get("memory")!.view).toMatchObject({ state: "ok", truncatedBytes: 1 });
    expect(out.get("qdisc")!.view.state).toBe("ok");
    expect(out.get("ip_route")!.text).toContain("@@0123 kernel 0 1 2");
    for (const s of out.values()) SourceView.parse(s.view);
  });
  it("as the user first, as root for what failed, and says where root is refused", async () => {
    asked.length = 0;
    const out = await collect(here(() => ConsoleError.of("H303", { host: "n1" })), [
      spec("kernel_log", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1", { attempts: [{ command: "echo 'Operation not permitted' >&2; exit 1" }, { command: "dmesg", root: true }, { command: "echo third" }] }),
      spec("firewall", "x", { attempts: [{ command: "nft list ruleset", root: true }] }), spec("kernel", "uname -r"),
    ], new AbortController().signal);
    expect(asked.map((a) => a.root)).toEqual([false, true, true, false]);
    expect(out.get("kernel_log")).toMatchObject({ text: "third\n", view: { state: "ok" } });
    expect(out.get("firewall")!.view).toMatchObject({ state: "not_permitted", command: "sudo nft list ruleset", error: { code: "H303" } });
    expect(out.get("kernel")!.view.state).toBe("ok");
  });
  it("a long wait before the channel closes does not blur when the clock was read", async () => {
    const began = Date.now();
    const live: NodeSession = { nodeId: "n1", execLines: (_command: string, onLine: (stream: "stdout", line: string) => void, options: ExecOptions) => new Promise((done) => {
      const child = spawn("sh", ["-s"], { stdio: ["pipe", "pipe", "ignore"] });
      let stdout = "";
      createInterface(child.stdout).on("line", (line) => { stdout += `${line}\n`; onLine("stdout", line); })
        .on("close", () => setTimeout(() => done({ status: 0, signal: null, stdout, stderr: "", droppedBytes: 0, durationMs: 1 } satisfies ExecResult), 1500));
      child.stdin.end(options.stdin);
    }) } as unknown as NodeSession;
    const { beganAtMs, endedAtMs, text } = (await collect(live, [spec("kernel", "sleep 0.2"), spec("clock", "date +%s.%N", { light: true })], new AbortController().signal)).get("clock")!;
    expect(endedAtMs - beganAtMs).toBeLessThan(Date.now() - began - 1400);
    expect(Number(text) * 1000).toBeGreaterThanOrEqual(beganAtMs);
    expect(Number(text) * 1000).toBeLessThanOrEqual(endedAtMs);
  });
  it("a node that hangs up in the middle leaves the rest unknown", async () => {
    const out = await collect(here(), [spec("kernel", "echo a"), spec("ip_addr", "kill -9 $PPID; sleep 1; kill -9 $PPID"), spec("ip_link", "echo b")], new AbortController().signal);
    expect(out.get("kernel")!.view.state).toBe("ok");
    expect([...out.values()].filter((s) => s.view.state !== "ok").every((s) => s.view.error !== null)).toBe(true);
    expect(out.size).toBe(3);
  });
  it("when the time of all is over, names what had no turn and keeps what was read", async () => {
    const out = await collect(here(), [spec("kernel", "echo a", { timeoutMs: 500 }), spec("ip_addr", "trap '' TERM; sleep 1; sleep 1; sleep 1; sleep 1", { timeoutMs: 500 }), spec("ip_link", "echo b", { timeoutMs: 500 })], new AbortController().signal);
    expect([...out].map(([id, { view }]) => [id, view.state])).toEqual([["kernel", "ok"], ["ip_addr", "timeout"], ["ip_link", "timeout"]]);
    expect(out.get("ip_link")!.view.error).not.toBeNull();
  });
  it("ends when it is cancelled", async () => {
    const ended = new AbortController();
    ended.abort();
    await expect(collect(here(), [spec("kernel", "echo a")], ended.signal)).rejects.toMatchObject({ view: { code: "H104" } });
  });
  it("takes only addresses as peers into a command", () => {
    expect(sourcesFor(["10.0.0.1; reboot", "$(id)"]).some((s) => s.id === "peers")).toBe(false);
    expect(sourcesFor(["10.0.0.1", "fd00::1"]).find((s) => s.id === "peers")!.attempts[0]!.command).toContain("for p in 10.0.0.1 fd00::1; do");
  });
});

describe("files of a machine that the console cannot reach", () => {
  it("are judged by content, whatever their names", () => {
    const a = diagnoseFiles([{ name: "photo.png", bytes: Buffer.from("Failed to initialize NVML: Unknown Error\n") }]);
    expect(a.findings[0]!.class).toBe("gpu.nvml_cgroup_lost");
  });
});
