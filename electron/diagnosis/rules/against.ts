import type { Text } from "../types.js";

/**
 * What speaks against a class in the same input, as data: a line with one of the literals that `re` confirms is quoted on the card of each
 * class named, where that class was found on the same host. It weakens a finding in the reader's eyes; it never removes one.
 */
export interface Against {
  classes: readonly string[];
  /** Lower case, as in a signature. */
  any: readonly string[];
  re?: RegExp;
  /** `after`: counts only when logged later than the fault's last line, on the same clock. `device`: only where both name the same device. */
  when?: "after" | "device";
  text: Text;
}

export const AGAINST: readonly Against[] = [
  { classes: ["rdma.memlock_limit", "host.memlock_service"], any: ["max locked memory", "ulimit -l", "limitmemlock"], re: /unlimited|infinity/i, text: ["This limit is unlimited.", "此处的限制为不受限。"] },
  { classes: ["roce.gid_wrong_index", "roce.gid_missing"], any: ["local gid ::ffff:", "localgid ::ffff:", "ncclgid ::ffff:"], text: ["An IPv4-mapped address was used here: the index is a routable one.", "此处使用了 IPv4 映射地址：该索引可路由。"] },
  { classes: ["roce.gid_wrong_index"], any: ["nccl_ib_gid_index set by environment to"], re: /set by environment to [1-9]\d*\b/, text: ["An index other than 0 was asked for.", "已指定非 0 的索引。"] },
  { classes: ["gpu.peermem_missing"], any: ["nvidia_peermem ", "nv_peer_mem "], re: /^\s{0,8}nv(?:idia_peermem|_peer_mem) {1,40}\d{4,8} {1,10}\d/, text: ["lsmod lists the module.", "lsmod 中列有该模块。"] },
  { classes: ["gpu.peermem_missing", "nccl.gdr_disabled", "gpu.gdr_path_phb"], any: ["gpu direct rdma enabled", "/gdrdma"], text: ["GPUDirect RDMA is in use here.", "此处正在使用 GPUDirect RDMA。"] },
  { classes: ["gpu.p2p_iommu", "iommu.dmar_fault", "iommu.amdvi_io_page_fault"], any: ["iommu=pt", "default domain type: passthrough"], text: ["The kernel's own devices are mapped one to one, so translation is not in their way.", "内核自有设备采用直通映射，地址转换不会妨碍它们。"] },
  { classes: ["gpu.p2p_acs"], any: ["hypervisor detected", "systemd-detect-virt"], text: ["This is a virtual machine: there access control is needed, and ATS is the way.", "这是虚拟机：需要访问控制，应使用 ATS。"] },
  { classes: ["rdma.fw_cmd_timeout", "rdma.fw_health_fatal", "rdma.tx_timeout"], any: ["health recovery succeeded", "device was reset successfully", "health recovery flow has completed", "recovery succeeded", "device recovery successful"], when: "after", text: ["The driver reports a recovery afterwards.", "之后驱动报告已恢复。"] },
  { classes: ["link.down_polling", "link.disabled", "link.init_no_sm"], any: ["link active", "link is up", ": link up"], when: "device", text: ["The link of this device came up in the same log.", "同一日志中该设备的链路已恢复。"] },
  { classes: ["gpu.xid_79", "gpu.device_lost", "pcie.device_gone"], any: ["| 00000000:"], re: /^\|.{0,60}\| {1,6}[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (?:On|Off) \|(?!.{0,80}ERR!)/i, when: "device", text: ["nvidia-smi still lists this GPU.", "nvidia-smi 仍能列出该 GPU。"] },
  { classes: ["gpu.fabric_manager_down", "gpu.fabric_in_progress"], any: ["state : completed", "started nvidia fabric manager", "started nvidia-fabricmanager"], text: ["Here the fabric is configured.", "此处 NVLink 结构已配置完成。"] },
  { classes: ["module.key_rejected", "module.lockdown_eperm"], any: ["secureboot disabled", "secure boot not enabled", "[none] integrity"], text: ["Secure Boot or lockdown is off on this machine.", "该机器未启用安全启动或内核锁定。"] },
  { classes: ["module.vermagic_mismatch", "module.unknown_symbol", "module.symbol_version_mismatch", "driver.not_loaded"], any: ["dkms: install completed"], when: "after", text: ["The module was built and installed afterwards.", "之后模块已编译并安装。"] },
  { classes: ["host.firewall"], any: ["policy accept", "status: inactive", "not running"], re: /policy ACCEPT|^Status: inactive|firewalld.{0,40}not running/i, text: ["No packet filter is active here.", "此处没有启用包过滤。"] },
  { classes: ["host.firewall", "nccl.connect_timeout", "nccl.connect_refused", "rdma.wc_retry_exc"], any: [" 0% packet loss", "bytes from "], re: /, 0% packet loss|^\d{2,5} bytes from .{3,80}icmp_seq=/, text: ["A ping is answered: the host is there and the route is right.", "ping 有应答：主机在线且路由正确。"] },
  { classes: ["host.shm_small"], any: ["/dev/shm"], re: /^(?:tmpfs|shm) .{0,60} [0-6]?\d% \/dev\/shm$/, text: ["There is room in /dev/shm at the time of this reading.", "读取时 /dev/shm 仍有空间。"] },
  { classes: ["host.clock_skew"], any: ["system clock synchronized: yes", "leap status : normal"], text: ["This host's clock is in step.", "该主机的时钟已同步。"] },
  { classes: ["perm.node_absent_module", "rdma.device_missing"], any: ["ib_uverbs "], re: /^\s{0,8}ib_uverbs {1,40}\d{4,8} {1,10}\d/, text: ["lsmod lists ib_uverbs: the stack is loaded.", "lsmod 中列有 ib_uverbs：协议栈已加载。"] },
  { classes: ["nccl.ib_no_device_fallback"], any: ["net/ib : using", "net/ib: using"], text: ["Another process of the job uses InfiniBand or RoCE.", "作业中另有进程在使用 InfiniBand 或 RoCE。"] },
  { classes: ["nccl.connect_refused", "nccl.connect_timeout", "host.wrong_interface", "host.stale_rendezvous"], any: ["init complete"], text: ["The communicator was set up: bootstrap did reach all ranks.", "通信器已建立：引导阶段到达了所有进程。"] },
  { classes: ["pcie.speed_downgraded", "pcie.width_downgraded"], any: ["performance state"], re: /Performance State {0,40}: P(?:[5-9]|1[0-5])\b/, text: ["The GPU idles at the time of this reading, and an idle link slows down.", "读取时 GPU 空闲，空闲链路会降速。"] },
  { classes: ["gpu.driver_library_mismatch"], any: ["driver version:"], re: /NVIDIA-SMI (?<v>[\d.]{5,14}) .{0,20}Driver Version: \k<v>\b/, text: ["Here tool and driver are of one version.", "此处工具与驱动版本一致。"] },
  { classes: ["host.oom"], any: ["memory cgroup out of memory", "constraint_memcg"], text: ["The limit of a control group was reached, not the host's memory.", "达到的是控制组上限，而不是主机内存。"] },
  { classes: ["host.hugepages"], any: ["hugepages_free"], re: /HugePages_Free: {1,12}[1-9]/, text: ["Free pages are listed.", "仍有空闲大页。"] },
  { classes: ["gpu.ecc_remap_pending", "gpu.xid_63"], any: ["gpu reset successfully", "was successfully reset"], when: "after", text: ["The GPU was reset afterwards, which activates the remap.", "之后 GPU 已复位，重映射随之生效。"] },
];
