import { mayBeSame } from "./logs/device.js";
import { severityRank, type Scan } from "./scan.js";
import type { Group } from "./types.js";

/**
 * Which class explains which: [causes, consequences, where]. `slot`: on the same card, or where one of the two names none.
 * `node`: anywhere on the host. A pattern may end in `*`. Left side first: a class explains nothing that stands above it here.
 */
type Edge = readonly [causes: readonly string[], consequences: readonly string[], where: "slot" | "node", only?: (cause: Group, consequence: Group) => boolean];

const before = (a: Group, b: Group): boolean => a.first !== null && b.first !== null && a.first.clock === b.first.clock && a.first.time <= b.first.time;
const strong = (cause: Group): boolean => cause.params["strong"] !== undefined;
const proved = (cause: Group): boolean => cause.params["proved"] !== undefined;

const NCCL_TAIL = ["nccl.unhandled_system_error", "nccl.remote_closed", "none.cause_not_in_log"];

export const EDGES: readonly Edge[] = [
  // Power and PCIe before the cards that hang on it.
  [["pcie.slot_power_insufficient"], ["link.module_cable", "link.down_polling", "link.flapping"], "node"],
  [["pcie.aer_fatal", "pcie.dpc"], ["gpu.xid_*", "gpu.sxid", "gpu.device_lost", "pcie.device_gone", "pcie.aer_corrected", "pcie.aer_nonfatal", "rdma.fw_*", "rdma.tx_timeout", "link.*", "nccl.*", "rdma.wc_*"], "node"],
  [["gpu.xid_79"], ["gpu.device_lost", "pcie.device_gone", "gpu.xid_*", "gpu.sxid", "pcie.aer_corrected", "pcie.aer_nonfatal", "gpu.fabric_in_progress", "nccl.*", "rdma.wc_*"], "node"],
  [["pcie.acs_violation"], ["pcie.aer_nonfatal"], "slot"],
  [["pcie.aer_nonfatal"], ["gpu.xid_13", "gpu.xid_31", "gpu.xid_43", "gpu.xid_45", "gpu.xid_61_62", "gpu.xid_109", "gpu.device_lost", "rdma.fw_cmd_timeout", "rdma.fw_health_fatal", "pcie.aer_corrected"], "node"],
  [["pcie.device_gone"], ["gpu.device_lost", "rdma.fw_cmd_timeout", "rdma.fw_health_fatal"], "node"],
  [["gpu.bar_unassigned", "gpu.nouveau_conflict"], ["gpu.device_lost", "gpu.driver_library_mismatch"], "node"],
  [["gpu.xid_144_150", "gpu.xid_74", "gpu.sxid"], ["gpu.xid_45", "gpu.xid_43", "gpu.xid_13", "gpu.xid_31", "gpu.xid_154", "gpu.fabric_in_progress", "nccl.*"], "node"],
  [["gpu.sxid"], ["gpu.xid_74"], "node"],
  [["gpu.xid_64"], ["gpu.ecc_remap_failure", "gpu.xid_63"], "slot"],
  [["gpu.xid_48", "gpu.xid_95", "gpu.xid_140"], ["gpu.xid_63", "gpu.xid_94", "gpu.ecc_remap_pending", "gpu.xid_43", "gpu.xid_45", "gpu.xid_154", "gpu.xid_13", "gpu.xid_31", "nccl.*"], "slot"],
  [["gpu.xid_94"], ["gpu.xid_63"], "slot"],
  [["gpu.xid_94", "gpu.xid_63"], ["gpu.ecc_remap_pending", "gpu.xid_43", "gpu.xid_45", "gpu.xid_154"], "slot"],
  [["gpu.xid_119_120", "gpu.xid_61_62"], ["gpu.xid_45", "gpu.xid_31", "gpu.xid_13", "gpu.xid_43", "gpu.xid_109", "gpu.xid_154", "gpu.device_lost", "nccl.*"], "node"],
  [["gpu.xid_13"], ["gpu.xid_43", "gpu.xid_45", "gpu.xid_109", "gpu.xid_32_69", "gpu.xid_154"], "slot"],
  [["gpu.xid_31"], ["gpu.xid_43", "gpu.xid_45", "gpu.xid_109", "gpu.xid_32_69", "gpu.xid_154"], "slot"],
  [["gpu.xid_44", "gpu.xid_109", "gpu.xid_43", "gpu.xid_32_69", "gpu.xid_92", "gpu.ecc_remap_pending", "gpu.ecc_remap_failure", "gpu.xid_other"], ["gpu.xid_45", "gpu.xid_154"], "slot"],
  [["gpu.fabric_manager_down"], ["gpu.fabric_in_progress", "gpu.sxid"], "node"],
  // IOMMU and engines.
  [["iommu.dmar_fault", "iommu.amdvi_io_page_fault", "iommu.smmu_fault"], ["gpu.amdgpu_fault", "dma.engine_timeout", "driver.engine_error", "dma.ioat_channel_error", "iommu.amdvi_invalid_device_request", "gpu.p2p_iommu"], "node"],
  [["dma.idxd_sva_unavailable"], ["dma.idxd_shared_wq_unsupported"], "node"],
  // Start-up.
  [["module.firmware_missing"], ["link.fec_mismatch", "perm.node_absent_module", "nccl.ib_no_device_fallback", "rdma.device_missing", "gpu.device_lost", "rdma.fw_incompatible"], "node"],
  [["module.vermagic_mismatch", "module.unknown_symbol", "module.symbol_version_mismatch", "module.key_rejected", "module.lockdown_eperm"], ["driver.not_loaded", "driver.not_installed", "dma.channel_unavailable", "perm.node_absent_module", "gpu.peermem_missing", "gpu.peermem_conflict", "nccl.ib_no_device_fallback", "nccl.gdr_disabled", "rdma.device_missing"], "node"],
  [["module.key_rejected"], ["module.lockdown_eperm"], "node"],
  // Built against other headers, a module misses symbols too; a format that is refused without its versions may be either.
  [["module.symbol_version_mismatch"], ["module.unknown_symbol"], "slot"],
  [["module.duplicate_symbol"], ["module.vermagic_mismatch"], "node", (_cause, format) => format.params["built"] === undefined],
  // A module of another kernel disagrees about symbols too.
  [["module.vermagic_mismatch"], ["module.symbol_version_mismatch"], "slot", (cause) => cause.params["built"] !== undefined],
  [["host.netdev_down", "host.process_stopped"], ["host.firewall"], "node", (_cause, firewall) => !proved(firewall)],
  [["driver.not_installed"], ["driver.not_loaded", "dma.channel_unavailable"], "node"],
  [["driver.not_loaded"], ["dma.channel_unavailable"], "node"],
  [["rdma.fw_preinit_timeout", "rdma.fw_health_fatal", "rdma.fw_incompatible"], ["rdma.wc_*", "rdma.fw_cmd_timeout", "rdma.fw_cmd_status", "rdma.fw_incompatible", "perm.node_absent_module", "nccl.ib_no_device_fallback", "link.*", "rdma.tx_timeout"], "node"],
  [["rdma.fw_cmd_timeout"], ["rdma.tx_timeout", "link.down_polling", "link.flapping", "rdma.wc_*", "rdma.fw_cmd_status"], "node"],
  [["perm.container_provider_missing", "rdma.userspace_mismatch"], ["perm.container_node_not_mapped", "perm.node_absent_module", "nccl.ib_no_device_fallback"], "node"],
  [["perm.container_node_not_mapped"], ["perm.node_absent_module", "nccl.ib_no_device_fallback", "perm.uverbs_denied"], "node"],
  [["perm.node_absent_module", "perm.uverbs_denied", "rdma.device_missing", "nccl.no_libibverbs"], ["nccl.ib_no_device_fallback", "rdma.cm_addr_error"], "node"],
  [["perm.user_not_in_group", "perm.dma_device_node"], ["dma.channel_unavailable"], "node"],
  [["agent.crash_loop"], ["agent.down"], "node"],
  [["host.disk_full"], ["agent.crash_loop", "agent.down", "module.*"], "node"],
  // Link and addressing.
  [["host.netdev_down"], ["rdma.device_missing", "link.disabled", "link.down_polling", "roce.gid_missing", "roce.gid_wrong_index", "rdma.packet_loss_counters"], "node"],
  [["rdma.device_missing"], ["roce.gid_missing"], "node"],
  [["link.init_no_sm", "link.vf_down_no_guid"], ["link.lid_unassigned", "link.disabled", "ib.pkey_mismatch"], "node"],
  [["ib.sm_conflict"], ["link.init_no_sm", "link.flapping", "link.lid_unassigned"], "node"],
  [["link.module_cable"], ["link.down_polling", "link.flapping", "link.symbol_errors", "link.rate_degraded"], "node"],
  [["link.fec_mismatch"], ["link.symbol_errors", "link.down_polling"], "node"],
  [["link.down_polling", "link.disabled", "link.flapping", "link.type_mismatch"], ["rdma.wc_*", "nccl.connect_timeout", "rdma.qp_rtr_*", "roce.gid_missing", "rdma.packet_loss_counters"], "node"],
  // A queue that stalls resets its card, and the link goes down for it; a link that goes down first stalls the queue.
  [["link.down_polling", "link.disabled", "link.flapping"], ["rdma.tx_timeout"], "node", (link, stall) => !before(stall, link)],
  [["rdma.tx_timeout"], ["link.flapping", "link.down_polling"], "node", (stall, link) => before(stall, link)],
  [["link.symbol_errors"], ["rdma.packet_loss_counters", "rdma.wc_retry_exc"], "node"],
  [["host.mtu", "link.mtu_mismatch"], ["rdma.wc_loc_len", "rdma.wc_retry_exc", "nccl.connect_timeout"], "node"],
  [["link.mtu_mismatch"], ["host.mtu"], "node"],
  [["nccl.cross_rail"], ["rdma.qp_rtr_timeout", "rdma.qp_rtr_unreachable", "roce.gid_wrong_index"], "node"],
  [["rdma.qp_rtr_nodev"], ["roce.gid_missing"], "node"],
  [["roce.gid_missing"], ["rdma.qp_rtr_*", "rdma.cm_addr_error"], "node"],
  [["roce.gid_wrong_index"], ["rdma.wc_retry_exc", "rdma.wc_flush", "rdma.qp_rtr_unreachable"], "node"],
  [["roce.gid_wrong_index"], ["rdma.qp_rtr_timeout"], "node", strong],
  [["ib.pkey_mismatch"], ["rdma.wc_retry_exc", "rdma.qp_rtr_timeout"], "node"],
  // Memory.
  [["rdma.mkey_limit"], ["rdma.memlock_limit", "rdma.fw_cmd_status", "rdma.qp_create_failed", "rdma.cq_create_failed"], "node"],
  [["host.memlock_service"], ["rdma.memlock_limit", "rdma.qp_create_failed", "rdma.cq_create_failed"], "node"],
  [["rdma.memlock_limit"], ["rdma.cq_create_failed", "rdma.qp_create_failed"], "node"],
  // GPU memory over the path.
  [["gpu.p2p_acs", "gpu.p2p_iommu"], ["rdma.wc_loc_prot", "rdma.wc_rem_op", "rdma.wc_rem_access", "nccl.gdr_disabled"], "node"],
  [["gpu.peermem_conflict"], ["gpu.peermem_missing"], "node"],
  [["gpu.peermem_missing", "gpu.gdr_path_phb"], ["nccl.gdr_disabled"], "node"],
  [["gpu.peermem_missing"], ["rdma.wc_rem_access"], "node"],
  // Loss.
  [["rdma.pfc_storm"], ["rdma.packet_loss_counters", "rdma.tx_timeout", "rdma.out_of_buffer"], "node"],
  [["rdma.packet_loss_counters"], ["rdma.dcqcn_inactive", "rdma.wc_retry_exc"], "node"],
  // Completions: the first that is not a flush.
  [["rdma.wc_loc_prot", "rdma.wc_rem_access", "rdma.wc_rem_op", "rdma.wc_rem_inv_req", "rdma.wc_loc_len", "rdma.wc_rnr_retry", "rdma.wc_retry_exc"], ["rdma.wc_flush"], "node"],
  [["rdma.wc_loc_prot", "rdma.wc_loc_len"], ["rdma.wc_rem_op"], "node"],
  // The network of the hosts, and what NCCL makes of all.
  [["host.stale_rendezvous", "host.loopback_hostname", "host.wrong_interface"], ["nccl.connect_refused", "nccl.connect_timeout", "host.firewall"], "node"],
  [["nccl.connect_timeout"], ["host.firewall"], "node", (_cause, firewall) => !proved(firewall)],
  [["host.process_stopped", "host.netdev_down"], ["nccl.connect_timeout", "host.firewall"], "node"],
  [["host.firewall"], ["rdma.wc_retry_exc", "nccl.connect_refused", "nccl.connect_timeout", "rdma.packet_loss_counters"], "node", proved],
  [["rdma.*", "roce.*", "ib.*", "link.*", "gpu.*", "pcie.*", "host.*", "iommu.*", "perm.*", "module.*", "driver.*", "nccl.connect_refused", "nccl.connect_timeout", "nccl.cross_rail", "nccl.ib_no_device_fallback", "nccl.wrong_hca"], NCCL_TAIL, "node"],
  [["rdma.wc_*", "rdma.qp_*", "rdma.memlock_limit", "rdma.mkey_limit", "host.shm_small"], ["nccl.connect_timeout", "nccl.connect_refused"], "node"],
];

/** Order among roots of the same severity: what lies deeper first. */
const DEPTH = ["pcie.", "gpu.xid_79", "iommu.", "dma.", "module.", "driver.", "gpu.", "rdma.fw", "perm.", "rdma.device", "link.", "ib.", "roce.", "nccl.cross", "rdma.memlock", "rdma.mkey", "rdma.qp", "rdma.cm", "rdma.", "agent.", "host.", "nccl.", "none."];
/** What accompanies others, or only slows things down: last among what is as severe. */
const MINOR = new Set(["rdma.provider_so_warning", "module.taint", "nccl.no_plugin", "nccl.no_libibverbs", "pcie.slot_power_not_advertised", "link.congestion_xmit_wait", "link.unused_port_down", "perm.umad_root_only", "rdma.memlock_limit", "pcie.aer_corrected", "driver.cpu_fallback", "pcie.width_downgraded"]);

export function depthOf(cls: string): number {
  let best = DEPTH.length;
  let length = -1;
  DEPTH.forEach((prefix, i) => { if (cls.startsWith(prefix) && prefix.length > length) { best = i; length = prefix.length; } });
  return best;
}

function matches(pattern: string, cls: string): boolean {
  return pattern.endsWith("*") ? cls.startsWith(pattern.slice(0, -1)) : pattern === cls;
}

function push<K>(lists: Map<K, Group[]>, key: K, group: Group): void {
  const list = lists.get(key);
  if (list) list.push(group); else lists.set(key, [group]);
}

function shareCard(a: Group, b: Group): boolean {
  return a.devices.size === 0 || b.devices.size === 0 || [...a.devices].some((x) => [...b.devices].some((y) => mayBeSame(x, y)));
}

/** Seconds by which a cause may be logged after what it caused. */
const SLACK_SECONDS = 120;

function inTime(cause: Group, consequence: Group): boolean {
  if (!cause.first || !consequence.last || cause.first.clock !== consequence.last.clock) return true;
  return consequence.last.time >= cause.first.time - SLACK_SECONDS;
}

/** Sets `consequenceOf` of every group that another one explains, and returns all in the order of blame. */
export function orderOfBlame(scan: Scan): Group[] {
  const groups = [...scan.groups.values()];
  const told = groups.filter((g) => g.severity !== "info");
  const classes = new Map<string, Group[]>();
  for (const g of told) push(classes, g.class, g);
  const of = (patterns: readonly string[]): Group[] => [...classes].flatMap(([cls, list]) => (patterns.some((p) => matches(p, cls)) ? list : []));
  const explains = new Map<Group, Group[]>();
  for (const [causes, consequences, where, only] of EDGES) {
    const from = of(causes);
    if (from.length === 0) continue;
    const effects = of(consequences);
    if (effects.length === 0) continue;
    // Logs of a thousand nodes at once: a cause meets its own host's groups only, and those that name none.
    const byHost = new Map<string | null, Group[]>();
    for (const g of effects) push(byHost, g.host, g);
    for (const cause of from) {
      const near = cause.host === null ? effects : [...(byHost.get(cause.host) ?? []), ...(byHost.get(null) ?? [])];
      for (const effect of near) {
        if (effect.class === cause.class || (where === "slot" && !shareCard(cause, effect)) || (only && !only(cause, effect)) || !inTime(cause, effect)) continue;
        push(explains, effect, cause);
      }
    }
  }
  // A cause that is itself explained hands its consequences on to its own cause; a circle is broken at the deeper one.
  const root = (g: Group, path: Set<Group>): Group => {
    if (path.has(g)) return g;
    path.add(g);
    const causes = explains.get(g);
    if (!causes || causes.length === 0) return g;
    const best = causes.reduce((a, b) => (compareRoots(b, a) < 0 ? b : a));
    return root(best, path);
  };
  for (const g of groups) {
    if (g.severity === "info") continue;
    const r = root(g, new Set());
    if (r !== g) g.consequenceOf = r;
  }
  const first = (g: Group): number => (g.consequenceOf === null ? 0 : 1);
  return groups.sort((a, b) => Number(a.severity === "info") - Number(b.severity === "info") || first(a) - first(b) || compareRoots(a, b));
}

function compareRoots(a: Group, b: Group): number {
  const minor = (g: Group): number => (MINOR.has(g.class) ? 1 : 0);
  return severityRank(b.severity) - severityRank(a.severity) || minor(a) - minor(b) || depthOf(a.class) - depthOf(b.class) || time(a) - time(b) || a.order - b.order;
}

function time(g: Group): number { return g.first?.time ?? Number.POSITIVE_INFINITY; }
