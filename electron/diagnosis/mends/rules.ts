import type { FindingView, Risk } from "../../contract/index.js";
import { droppingRules, largeFiles, type LiveNode } from "../live/index.js";
import type { Text } from "../types.js";

type Values = Record<string, string | number | undefined>;

/** A mend that the console itself applies. Blanks are `{name:kind}`, or `{kind}` where the two are the same; see blanks.ts. */
export interface MendRule {
  /** Stable; unique within a class. */
  id: string;
  classes: readonly string[];
  command: string;
  risk: Risk;
  words: Text;
  /** Done by the console, not by a shell on the node. */
  action?: "rejoin";
  when?: (finding: FindingView, node: LiveNode) => boolean;
  /** One mend for each set of values; the finding's own params where absent. */
  each?: (finding: FindingView, node: LiveNode) => Values[];
  /** How long the fault would take to show itself again, before the re-test reads. */
  settleMs?: number;
}

const RELEASE = "/opt/stepccl/current/driver/{kernel}/dma_engine.ko";
const INSTALLED = "/lib/modules/{kernel}/updates/stepccl/dma_engine.ko";
const driver = (finding: FindingView): boolean => finding.devices.length === 0 || finding.devices.includes("dma_engine");

export const MEND_RULES: readonly MendRule[] = [
  // The driver and its node.
  { id: "device-node", classes: ["perm.dma_device_node"], risk: "none", command: "chgrp stepccl /dev/dma_device && chmod 0660 /dev/dma_device", when: (f) => f.devices.length === 0 || f.devices.includes("/dev/dma_device"),
    words: ["Gives the node back to the group stepccl, as the udev rule of a bring-up does.", "按部署时的 udev 规则，将设备节点交还给 stepccl 组。"] },
  { id: "device-trigger", classes: ["dma.channel_unavailable"], risk: "none", command: "udevadm control --reload && udevadm trigger --action=add --subsystem-match=misc --sysname-match=dma_device && udevadm settle --timeout=10",
    words: ["Lets udev make the device node again.", "让 udev 重新创建设备节点。"] },
  { id: "install-module", classes: ["driver.not_installed", "module.vermagic_mismatch", "module.symbol_version_mismatch", "module.unknown_symbol"], risk: "none", when: driver,
    command: `install -D -m 0644 ${RELEASE} ${INSTALLED} && depmod {kernel} && modprobe dma_engine && udevadm settle --timeout=10`,
    words: ["Puts the module of the installed release, which was built for the running kernel, in its place and loads it.", "将已安装版本中为当前内核构建的模块放回原处并加载。"] },
  { id: "load-module", classes: ["driver.not_loaded"], risk: "none", command: "modprobe dma_engine && udevadm settle --timeout=10", words: ["Loads the driver.", "加载驱动。"] },
  { id: "load-rdma", classes: ["perm.node_absent_module"], risk: "none", command: "modprobe -a ib_uverbs rdma_ucm", words: ["Loads the modules that verbs programs need.", "加载 verbs 程序所需的模块。"] },
  // The data interface and its RDMA device.
  { id: "link-up", classes: ["host.netdev_down", "link.disabled"], risk: "none", command: "ip link set dev {netdev} up", words: ["Switches the interface on; its address and RDMA port come back with it.", "启用接口；其地址和 RDMA 端口随之恢复。"], settleMs: 3000 },
  { id: "add-rxe", classes: ["rdma.device_missing"], risk: "none", command: "modprobe rdma_rxe && rdma link add {rxe:rdma} type rxe netdev {netdev}", words: ["Adds the Soft-RoCE device on the data interface.", "在数据接口上添加 Soft-RoCE 设备。"], settleMs: 2000 },
  { id: "rejoin", classes: ["roce.gid_wrong_index"], risk: "none", action: "rejoin", command: "stepccl nodes rejoin {node}", words: ["Reads the node's GID table and tells every member the index that holds its data address now.", "读取该节点的 GID 表，并将数据地址当前所在的索引告知所有成员。"] },
  { id: "mtu", classes: ["link.mtu_mismatch", "host.mtu"], risk: "interrupts_jobs", command: "ip link set dev {netdev} mtu {mtu}", when: (f) => f.class === "link.mtu_mismatch", words: ["Sets the MTU that the other members have. Connections that are open may have to be made anew.", "设置为其他成员使用的 MTU。已建立的连接可能需要重建。"], settleMs: 2000 },
  { id: "shaping", classes: ["rdma.packet_loss_counters"], risk: "none", command: "tc qdisc del dev {netdev} root", when: (f) => f.evidence.some((e) => e.source === "qdisc"), words: ["Takes the queueing discipline off that drops packets; the interface gets its usual one.", "移除造成丢包的队列规则，接口恢复默认规则。"], settleMs: 1000 },
  // Between members.
  { id: "firewall-rule", classes: ["host.firewall"], risk: "none", command: "nft delete rule {table} {chain} handle {handle:whole}", each: (_f, node) => droppingRules(node).map(({ table, chain, handle }) => ({ table, chain, handle })),
    words: ["Takes out the rule that drops what members send each other.", "删除丢弃成员间流量的规则。"] },
  { id: "firewall-accept", classes: ["host.firewall"], risk: "none", command: "nft insert rule {table} {chain} ip saddr {network} accept", each: (f, node) => droppingRules(node).filter((r) => r.policy).map(({ table, chain }) => ({ table, chain, network: f.params["network"] })),
    words: ["Lets the members' network in before the chain drops it.", "在链丢弃之前放行成员网段。"] },
  // The host.
  { id: "memlock", classes: ["host.memlock_service", "rdma.memlock_limit"], risk: "restarts_service", when: (f, node) => node.collected.get("service")?.text.includes("LoadState=loaded") === true && (f.params["service"] === undefined || f.params["service"] === "stepccld"),
    command: "mkdir -p /etc/systemd/system/stepccld.service.d && printf '[Service]\\nLimitMEMLOCK=infinity\\n' > /etc/systemd/system/stepccld.service.d/zz-stepccl-memlock.conf && systemctl daemon-reload && systemctl restart stepccld.service",
    words: ["Lifts the daemon's limit of locked memory, after every other drop-in, and restarts it: ranks inherit the limit.", "在所有其他配置之后取消守护进程的锁定内存上限并重启；进程会继承该上限。"], settleMs: 2000 },
  { id: "clock-sync", classes: ["host.clock_skew"], risk: "interrupts_jobs", command: "chronyc makestep", when: (_f, node) => /^Reference ID/m.test(node.collected.get("time_sync")?.text ?? ""), words: ["Lets the time service set the clock at once.", "让时间服务立即校准时钟。"] },
  { id: "clock-set", classes: ["host.clock_skew"], risk: "interrupts_jobs", command: "date -s \"@$(($(date +%s) - {skew:signed}))\" && if command -v hwclock >/dev/null; then hwclock --systohc --utc; fi", each: (f) => [{ skew: Math.round(Number(f.params["skewSeconds"])) }],
    words: ["Moves the clock by what it differs from the others, and keeps that in the hardware clock. Set up chrony or systemd-timesyncd so that it stays right.", "按与其他节点的差值调整时钟并写入硬件时钟。请配置 chrony 或 systemd-timesyncd 以保持准确。"] },
  { id: "journal-vacuum", classes: ["host.disk_full"], risk: "none", command: "journalctl --vacuum-size=100M && if command -v apt-get >/dev/null; then apt-get clean; fi", words: ["Gives back what old logs and downloaded packages hold.", "释放旧日志和已下载软件包占用的空间。"] },
  { id: "large-file", classes: ["host.disk_full"], risk: "destructive", command: "rm -- {file}", each: (_f, node) => largeFiles(node).map(({ path }) => ({ file: path })), words: ["Deletes this file, one of the largest of the file system, for good.", "永久删除该文件（文件系统中最大的文件之一）。"], settleMs: 1000 },
  { id: "daemon-start", classes: ["agent.down", "agent.crash_loop"], risk: "restarts_service", command: "systemctl reset-failed stepccld.service; systemctl enable --now stepccld.service", when: (f) => f.params["state"] !== "not installed", words: ["Starts the daemon, and lets it start by itself after a boot.", "启动守护进程，并设为开机自启。"], settleMs: 2000 },
  { id: "continue", classes: ["host.process_stopped"], risk: "none", command: "case $(cat /proc/{pid}/comm) in stepccl*) kill -CONT {pid} ;; *) echo 'process {pid} is another one now' >&2; exit 1 ;; esac", each: (f) => String(f.params["pids"] ?? f.params["pid"] ?? "").split(" ").slice(0, 16).map((pid) => ({ pid })),
    words: ["Lets the stopped process go on.", "让被暂停的进程继续运行。"], settleMs: 1000 },
  { id: "hugepages", classes: ["host.hugepages"], risk: "none", command: "sysctl -w vm.nr_hugepages=1024", words: ["Reserves 1024 huge pages of the usual size.", "预留 1024 个大页。"] },
  { id: "user-group", classes: ["perm.user_not_in_group"], risk: "none", command: "usermod -aG stepccl {user}", words: ["Puts the user into the group; it takes a new login.", "把用户加入该组，需要重新登录。"] },
  // A device that writes where it may not.
  { id: "bus-master-off", classes: ["iommu.dmar_fault", "iommu.amdvi_io_page_fault"], risk: "interrupts_jobs", command: "setpci -s {bdf} COMMAND=0:4", each: (f) => f.devices.slice(0, 4).map((bdf) => ({ bdf })),
    words: ["Forbids the device to start transfers, so that it can harm nothing. Its driver allows them again when it is loaded anew.", "禁止该设备发起传输，避免造成破坏。重新加载其驱动后会再次允许。"], settleMs: 8000 },
];
