import type { GuideId, GuideView } from "../../contract/index.js";
import type { z } from "zod";
import type { SourceId } from "../sources.js";
import type { Text } from "../types.js";

/**
 * One question of a guide. `classes` (a pattern may end in `*`): a finding of one of them is the answer "here it is". Without one the
 * answer is `fine`, with the lines of `shows` as proof; where none of the classes could be judged it is "cannot tell".
 */
export interface CheckStep {
  kind: "check";
  id: string;
  question: Text;
  classes: readonly string[];
  fine: Text;
  shows?: readonly { source: SourceId; lines: RegExp }[];
  /** Asked only while these steps found nothing: what follows from them would only repeat it. */
  after?: readonly string[];
}
/** Does the node answer at all? */
export interface ReachStep { kind: "reach"; id: string; question: Text }
/** What do the flight recorders of all ranks say? */
export interface HangStep { kind: "hangs"; id: string; question: Text }
/** The way between neighbours, element by element. */
export interface PathStep { kind: "paths"; id: string; question: Text; of: "gpudirect" | "ring" }
/** A verbs ping between the two nodes, when all else is fine. */
export interface PairStep { kind: "pair"; id: string; question: Text }
export type Step = CheckStep | ReachStep | HangStep | PathStep | PairStep;

export interface Guide {
  id: z.infer<typeof GuideId>;
  title: Text;
  symptom: Text;
  takes: GuideView["takes"];
  /** Classes that lead here, from a finding; `alert.RULE` from an alert. */
  for: readonly string[];
  steps: readonly Step[];
}

const REACH: ReachStep = { kind: "reach", id: "reach", question: ["Does the node answer?", "节点是否应答？"] };
const check = (id: string, question: Text, classes: readonly string[], fine: Text, more: Pick<CheckStep, "shows" | "after"> = {}): CheckStep => ({ kind: "check", id, question, classes, fine, ...more });

const disk = check("disk", ["Is there room on the disks?", "磁盘是否有空间？"], ["host.disk_full"], ["No file system is full.", "没有文件系统已满。"], { shows: [{ source: "disk", lines: / \/$/ }] });
const clock = check("clock", ["Does the clock agree with the others?", "时钟是否与其他节点一致？"], ["host.clock_skew"], ["The clock agrees.", "时钟一致。"], { shows: [{ source: "time_sync", lines: /./ }] });
const installed = check("installed", ["Is the driver there for the running kernel?", "是否有当前内核的驱动？"], ["driver.not_installed", "module.*"], ["The module file is there and fits the kernel.", "模块文件存在且与内核匹配。"], { shows: [{ source: "module_info", lines: /^vermagic/ }, { source: "kernel", lines: /./ }] });
const loaded = check("loaded", ["Is the driver loaded?", "驱动是否已加载？"], ["driver.not_loaded"], ["It is loaded.", "已加载。"], { after: ["installed"], shows: [{ source: "modules", lines: /^dma_engine/ }] });
const device = check("device", ["May the ranks open /dev/dma_device?", "进程能否打开 /dev/dma_device？"], ["dma.channel_unavailable", "perm.dma_device_node"], ["The device node is there, with the right group and mode.", "设备节点存在，属组与权限正确。"], { after: ["installed", "loaded"], shows: [{ source: "dma_device", lines: /dma_device/ }] });
const daemon = check("daemon", ["Does the daemon run?", "守护进程是否在运行？"], ["agent.*"], ["stepccld runs.", "stepccld 正在运行。"], { shows: [{ source: "service", lines: /^(?:ActiveState|NRestarts)=/ }] });
const interfaceUp = check("interface", ["Is the data interface up?", "数据接口是否启用？"], ["host.netdev_down", "link.disabled", "link.down_polling", "link.module_cable", "link.init_no_sm", "link.flapping"], ["It is up.", "已启用。"], { shows: [{ source: "rdma_link", lines: /state/ }] });
const rdmaModules = check("rdma-modules", ["Is the RDMA stack loaded?", "RDMA 协议栈是否已加载？"], ["perm.node_absent_module", "perm.uverbs_denied", "module.*", "rdma.fw_*"], ["Its modules are loaded and its device nodes are open.", "模块已加载，设备节点可访问。"], { shows: [{ source: "modules", lines: /^(?:ib_uverbs|ib_core|rdma_rxe|mlx5_ib|irdma|bnxt_re)\s/ }] });
const rdmaDevice = check("rdma-device", ["Does an RDMA device belong to the data interface?", "数据接口是否有对应的 RDMA 设备？"], ["rdma.device_missing"], ["It does.", "有。"], { after: ["rdma-modules"], shows: [{ source: "rdma_link", lines: /netdev/ }] });
const gid = check("gid", ["Does the GID index in use hold the data address?", "所用的 GID 索引是否为数据地址？"], ["roce.*", "ib.pkey_mismatch"], ["The GID fits the data address.", "GID 与数据地址一致。"], { after: ["rdma-device", "interface"], shows: [{ source: "gids", lines: /gids\/\d+:.*ffff:/ }] });
const mtu = check("mtu", ["Do all have the same MTU, and do full frames pass?", "MTU 是否一致，满长帧能否通过？"], ["link.mtu_mismatch", "host.mtu", "rdma.wc_loc_len"], ["Full frames pass.", "满长帧可以通过。"], { shows: [{ source: "peers", lines: /full frame/ }] });
const filter = check("filter", ["Does something filter what members send each other?", "成员之间的流量是否被过滤？"], ["host.firewall"], ["TCP passes to every member that answers.", "到所有可达成员的 TCP 均可通过。"], { after: ["interface"], shows: [{ source: "peers", lines: /tcp status/ }] });
const loss = check("loss", ["Are packets lost?", "是否丢包？"], ["rdma.packet_loss_counters", "link.symbol_errors", "rdma.out_of_buffer", "rdma.pfc_storm", "link.congestion_xmit_wait", "rdma.wc_retry_exc"], ["No packets are lost.", "没有丢包。"], { after: ["interface", "filter"], shows: [{ source: "peers", lines: /packet loss/ }] });
const limits = check("limits", ["May memory be locked?", "能否锁定内存？"], ["host.memlock_service", "rdma.memlock_limit", "rdma.mkey_limit"], ["The daemon and its ranks may lock memory.", "守护进程及其进程可以锁定内存。"], { shows: [{ source: "stepccld_limits", lines: /locked memory/i }] });
const iommu = check("iommu", ["Does the IOMMU refuse transfers?", "IOMMU 是否拒绝传输？"], ["iommu.*", "dma.swiotlb_full", "dma.mask_overflow"], ["It reports no fault.", "没有报告故障。"]);
const hardware = check("hardware", ["Do PCIe and the GPUs report faults?", "PCIe 与 GPU 是否报告故障？"], ["pcie.aer_*", "pcie.dpc", "pcie.device_gone", "pcie.acs_violation", "gpu.xid_*", "gpu.sxid", "gpu.device_lost", "gpu.ecc_*", "gpu.driver_library_mismatch", "gpu.fabric_*"], ["They report none.", "没有报告故障。"]);
const width = check("width", ["Do links run at their full speed and width?", "链路是否以全速全宽运行？"], ["pcie.width_downgraded", "pcie.speed_downgraded", "link.rate_degraded", "link.fec_mismatch"], ["They do.", "是。"]);
const gpuPath = check("gpu-path", ["Is the way from GPU to NIC direct?", "GPU 到网卡的通路是否直接？"], ["gpu.p2p_*", "gpu.gdr_path_phb", "gpu.peermem_*", "host.numa_misplaced", "nccl.gdr_disabled"], ["Nothing on it is known to be in the way.", "未发现阻碍。"]);
const engine = check("engine", ["Do the DMA engines work?", "DMA 引擎是否正常？"], ["driver.engine_*", "driver.data_mismatch", "driver.drain_expired", "driver.abi_mismatch", "driver.quota", "driver.pin_failed", "dma.engine_timeout", "dma.ioat_*", "dma.idxd_*"], ["They report no error.", "没有报告错误。"]);
const stoppedRank = check("stopped", ["Is a rank stopped?", "是否有进程被暂停？"], ["host.process_stopped"], ["No rank is in state T.", "没有处于 T 状态的进程。"], { shows: [{ source: "processes", lines: /stepccl/ }] });

export const GUIDES: readonly Guide[] = [
  { id: "node_wont_come_up", takes: "node", title: ["A node won't come up", "节点无法就绪"], symptom: ["The bring-up fails, or the node goes to degraded.", "部署失败，或节点变为降级状态。"], for: ["agent.*", "driver.not_installed", "driver.not_loaded", "module.*", "host.disk_full"],
    steps: [REACH, disk, clock, installed, loaded, device, daemon, interfaceUp, filter] },
  { id: "dma_init_fails", takes: "node", title: ["DMA initialisation fails", "DMA 初始化失败"], symptom: ["The runtime cannot open the DMA device, or falls back to copies by the CPU.", "运行时无法打开 DMA 设备，或退回 CPU 拷贝。"], for: ["dma.*", "driver.*", "perm.dma_device_node", "perm.user_not_in_group", "iommu.*", "module.*"],
    steps: [REACH, installed, loaded, device, check("group", ["Is the user in the device's group?", "用户是否在设备所属的组中？"], ["perm.user_not_in_group"], ["It is.", "是。"], { after: ["device"], shows: [{ source: "identity", lines: /groups=/ }] }), limits, engine, iommu, disk] },
  { id: "rdma_connection_fails", takes: "pair", title: ["An RDMA connection fails", "RDMA 连接失败"], symptom: ["Two nodes do not connect by RDMA, or their queue pairs end in errors.", "两个节点无法建立 RDMA 连接，或队列对出错。"], for: ["rdma.*", "roce.*", "ib.*", "link.*", "perm.uverbs_denied", "perm.node_absent_module", "host.netdev_down", "host.firewall", "host.mtu", "nccl.*"],
    steps: [REACH, rdmaModules, interfaceUp, rdmaDevice, gid, mtu, filter, loss, limits, iommu, { kind: "pair", id: "ping", question: ["Does a verbs ping pass between the two?", "两节点之间 verbs ping 能否通过？"] }] },
  { id: "job_hangs", takes: "nodes", title: ["A job hangs", "作业卡住"], symptom: ["Ranks wait and nothing moves.", "进程在等待，没有进展。"], for: ["alert.timeout", "alert.timeout_rate", "alert.failure_rate", "host.process_stopped", "gpu.xid_*", "gpu.sxid", "nccl.connect_timeout"],
    steps: [REACH, { kind: "hangs", id: "recorders", question: ["Which rank holds the others up?", "哪个进程拖住了其他进程？"] }, stoppedRank, daemon, interfaceUp, filter, mtu, loss, hardware, disk] },
  { id: "slow", takes: "nodes", title: ["It is slow", "速度慢"], symptom: ["Collectives are slower than expected.", "集合通信比预期慢。"], for: ["alert.latency", "alert.utilization", "pcie.width_downgraded", "pcie.speed_downgraded", "link.rate_degraded", "link.congestion_xmit_wait", "rdma.packet_loss_counters", "rdma.dcqcn_inactive", "host.numa_misplaced", "driver.cpu_fallback"],
    steps: [REACH, loss, mtu, width, gpuPath, check("congestion", ["Is the network without loss set up?", "无损网络是否已配置？"], ["rdma.dcqcn_inactive", "rdma.pfc_storm"], ["Nothing speaks against it.", "未发现问题。"]), hardware, stoppedRank, clock] },
  { id: "out_of_memory", takes: "node", title: ["Out of memory", "内存不足"], symptom: ["Registration, huge pages, shared memory or the host itself run out.", "内存注册、大页、共享内存或主机内存耗尽。"], for: ["host.oom", "host.hugepages", "host.shm_small", "host.memlock_service", "rdma.memlock_limit", "rdma.mkey_limit", "dma.swiotlb_full"],
    steps: [REACH, check("host-memory", ["Is the host out of memory?", "主机内存是否耗尽？"], ["host.oom"], ["There is memory left, and nothing was killed for it.", "仍有可用内存，没有进程因此被终止。"], { shows: [{ source: "memory", lines: /^Mem(?:Total|Available):/ }] }), limits,
      check("shared", ["Is there room in /dev/shm?", "/dev/shm 是否有空间？"], ["host.shm_small"], ["There is.", "有。"], { shows: [{ source: "disk", lines: /\/dev\/shm/ }] }), check("huge", ["Are huge pages free, where they are wanted?", "需要大页时是否有空闲？"], ["host.hugepages"], ["No program asked in vain.", "没有程序申请失败。"], { shows: [{ source: "memory", lines: /^HugePages_(?:Total|Free)/ }] }),
      check("bounce", ["Do transfers run out of bounce buffers?", "传输的中转缓冲是否耗尽？"], ["dma.swiotlb_full", "dma.mask_overflow", "driver.quota", "driver.pin_failed"], ["They do not.", "没有。"]), disk] },
  { id: "gpudirect_off", takes: "pair", title: ["Why is GPUDirect off here?", "为什么这里没有启用 GPUDirect？"], symptom: ["Bytes go through host memory between GPU and NIC.", "GPU 与网卡之间的数据经过主机内存。"], for: ["gpu.p2p_*", "gpu.gdr_path_phb", "gpu.peermem_*", "nccl.gdr_disabled"],
    steps: [REACH, { kind: "paths", id: "path", question: ["Which element from GPU to the peer's GPU breaks a rule?", "从 GPU 到对端 GPU 的哪一环不满足条件？"], of: "gpudirect" }] },
  { id: "ring_slow", takes: "nodes", title: ["Why is this ring slow?", "为什么这个环慢？"], symptom: ["One link holds up the whole ring.", "某条链路拖慢整个环。"], for: ["link.rate_degraded", "rdma.packet_loss_counters", "link.mtu_mismatch"],
    steps: [REACH, { kind: "paths", id: "path", question: ["Which link of the ring breaks a rule?", "环上的哪条链路不满足条件？"], of: "ring" }, stoppedRank] },
];

export function matches(patterns: readonly string[], cls: string): boolean {
  return patterns.some((p) => (p.endsWith("*") ? cls.startsWith(p.slice(0, -1)) : p === cls));
}

/** Guides that fit a class, the one that names it most exactly first. */
export function guidesFor(cls: string): Guide["id"][] {
  const exactness = (g: Guide): number => Math.max(0, ...g.for.filter((p) => matches([p], cls)).map((p) => (p.endsWith("*") ? p.length - 1 : 1000)));
  return GUIDES.map((g) => [g, exactness(g)] as const).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]).map(([g]) => g.id);
}
