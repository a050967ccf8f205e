import { portsOf } from "./ports.js";
import type { Seen, Watcher } from "./watcher.js";

/** File systems that are full by design. */
const FULL_BY_DESIGN = /^(?:\/dev\/loop|squashfs|iso9660|efivarfs|cdfs|\/snap)|\/snap\/|\/run\/media|\/sys\//;

const df: Watcher = {
  id: "df",
  triggers: ["% /"],
  plainOnly: true,
  line(scan, record, text) {
    const m = /^(\S{1,200}) (?:\S{1,12} )?([\d.]+[KMGTP]?i?) ([\d.]+[KMGTP]?i?) (-?[\d.]+[KMGTP]?i?) (\d{1,3})% (\/\S{0,200})$/.exec(text.trim());
    if (!m) return;
    scan.seen.add("disk");
    if (Number(m[5]) < 98 || FULL_BY_DESIGN.test(`${m[1]} ${m[6]}`)) return;
    const params = { mount: m[6]!, usedPercent: Number(m[5]) };
    if (m[6] === "/dev/shm") scan.hit("host.shm_small", record, { device: null, params });
    else if (!/^(?:udev|devtmpfs)$/.test(m[1]!)) scan.hit("host.disk_full", record, { device: m[6]!, params });
  },
};

const meminfo: Watcher = {
  id: "hugepages",
  triggers: ["hugepages_total", "hugepages_free"],
  plainOnly: true,
  line(scan, record, text) {
    const m = /^HugePages_(Total|Free): ?(\d+)/.exec(text.trim());
    if (!m) return;
    scan.seen.add("memory");
    scan.of("huge", () => new Map<string, { n: number; seen: Seen }>()).set(m[1]!, { n: Number(m[2]), seen: { record, source: scan.source } });
  },
  end(scan) {
    const huge = scan.of("huge", () => new Map<string, { n: number; seen: Seen }>());
    const total = huge.get("Total");
    const free = huge.get("Free");
    for (const g of scan.groupsOf("host.hugepages")) {
      if (!total || !free) continue;
      g.params["total"] = total.n;
      g.params["free"] = free.n;
      g.evidence.push({ source: free.seen.source, line: free.seen.record.raw.trim(), lineNumber: free.seen.record.line, meaning: total.n > 0 ? [`all ${total.n} pages are in use: left over from an earlier run`, `${total.n} 个大页全部被占用：之前的运行没有释放`] : ["none are reserved", "没有预留大页"] });
    }
  },
};

const munge: Watcher = {
  id: "munge_skew",
  triggers: ["encoded:", "decoded:", "encode_time:", "decode_time:"],
  line(scan, _record, text) {
    const m = /(ENCODED|DECODED|ENCODE_TIME|DECODE_TIME): ?(.{8,60})$/i.exec(text);
    if (!m) return;
    const t = Date.parse(`${m[2]!.replace(/\s*\([-+]\d{4}\)|\(\d+\)/g, "").trim()} UTC`);
    if (!Number.isFinite(t)) return;
    scan.of("munge", () => new Map<string, number>()).set(/^enc/i.test(m[1]!) ? "e" : "d", t);
  },
  end(scan) {
    const times = scan.of("munge", () => new Map<string, number>());
    const e = times.get("e");
    const d = times.get("d");
    if (e === undefined || d === undefined) return;
    const seconds = Math.round((d - e) / 1000);
    for (const g of scan.groupsOf("host.clock_skew")) {
      g.params["skewSeconds"] = seconds;
      const first = g.evidence[0];
      if (first) first.meaning = [`the clocks are ${seconds} s apart (${(seconds / 3600).toFixed(2)} h)`, `时钟相差 ${seconds} 秒（${(seconds / 3600).toFixed(2)} 小时）`];
    }
  },
};

/** lsmod, and what follows from what is loaded. */
const modules: Watcher = {
  id: "modules",
  triggers: ["module size used by"],
  plainOnly: true,
  line(scan) { scan.seen.add("modules"); scan.state.set("lsmod_read", true); scan.follow(this, 2000); },
  follow(scan, record, text) {
    const m = /^([\w-]{1,64}) (\d{2,12}) (-?\d{1,6})\b/.exec(text.trim());
    if (!m) return false;
    scan.of("loaded", () => new Map<string, Seen>()).set(m[1]!.replaceAll("-", "_"), { record, source: scan.source });
    return true;
  },
  end(scan) {
    const loaded = scan.of("loaded", () => new Map<string, Seen>());
    if (loaded.has("nv_peer_mem") && loaded.has("nvidia_peermem")) scan.raise("gpu.peermem_conflict", { records: [loaded.get("nv_peer_mem")!] });
    const full = scan.state.get("lsmod_read") === true && loaded.size >= 10;
    const rdma = [...loaded.keys()].some((m) => /^(?:mlx5_ib|mlx4_ib|ib_uverbs|irdma|bnxt_re)$/.test(m));
    if (full && loaded.has("nvidia") && rdma && !loaded.has("nv_peer_mem") && !loaded.has("nvidia_peermem") && scan.has("rdma.wc_loc_prot", "rdma.wc_rem_access", "nccl.gdr_disabled")) scan.raise("gpu.peermem_missing", { records: [loaded.get("nvidia")!] });
    const nic = scan.of<{ name: string }[]>("pci_list", () => []).some((d) => /mellanox|connectx|infiniband|omni-path/i.test(d.name));
    if (full && nic && !loaded.has("ib_uverbs") && portsOf(scan).length === 0) scan.raise("perm.node_absent_module", { records: [...loaded.values()].slice(0, 1), checked: [["lsmod lists no ib_uverbs although the card is there.", "有网卡但 lsmod 中没有 ib_uverbs。"]] });
  },
};

/** A program that registers a GPU's buffer and gets EFAULT: nothing of the kernel answers for GPU memory. */
const gpuBuffer: Watcher = {
  id: "gpu_buffer",
  triggers: ["gpu buffer", "cumemalloc", "couldn't allocate mr", "failed to create mr", "couldn't register gpu mr", "ibv_reg_mr(gpu)"],
  line(scan, record, text) {
    if (/GPU buffer|cuMemAlloc/i.test(text)) scan.state.set("gpu_buffer", true);
    else if (!scan.state.has("gpu_mr")) scan.state.set("gpu_mr", { record, source: scan.source, sure: /GPU MR|\(gpu\)/i.test(text) });
  },
  end(scan) {
    const failed = scan.state.get("gpu_mr") as (Seen & { sure: boolean }) | undefined;
    if (!failed || (!failed.sure && scan.state.get("gpu_buffer") !== true)) return;
    scan.raise("gpu.peermem_missing", { records: [failed] });
    for (const g of scan.groupsOf("rdma.memlock_limit")) if (g.evidence.every((e) => /allocate MR|create mr/i.test(e.line))) scan.drop("rdma.memlock_limit");
  },
};

/** Peer memory: what a module that failed to load means for GPUDirect. */
const peermem: Watcher = {
  id: "peermem",
  triggers: [],
  end(scan) {
    const of = (cls: string): boolean => scan.groupsOf(cls).some((g) => g.device !== null && /peer_?mem/.test(g.device));
    if (of("module.unknown_symbol") && !scan.has("gpu.peermem_missing")) scan.raise("gpu.peermem_missing", { lines: scan.groupsOf("module.unknown_symbol")[0]!.evidence.slice(0, 1) });
    if (of("module.symbol_version_mismatch") && !scan.has("gpu.peermem_conflict")) scan.raise("gpu.peermem_conflict", { lines: scan.groupsOf("module.symbol_version_mismatch")[0]!.evidence.slice(0, 1) });
  },
};

/** systemctl status: which unit the state belongs to. */
const units: Watcher = {
  id: "fabric",
  triggers: [".service", "active:", "geforce", "quadro", "nvidia rtx", "titan", "sxm", "hgx", "nvswitch"],
  line(scan, record, text) {
    const t = text.trim();
    if (/\|.{0,8}\b(?:GeForce|Quadro|TITAN|NVIDIA (?:GeForce|RTX|TITAN|Quadro))\b/i.test(t)) scan.state.set("gpu_without_switch", { record, source: scan.source });
    else if (/SXM|HGX|NVSwitch [a-z]|NVSwitch\d/i.test(t) && !/NOTHING_TO_DO|Pre-NVL/i.test(t)) scan.state.set("gpu_with_switch", true);
    const unit = /^(?:\W{1,3} ?)?([\w@.-]{1,80})\.service\b/.exec(t);
    if (unit) { scan.state.set("unit", unit[1]); scan.seen.add("service"); return; }
    const active = /^Active: (\w+)(?: \(([\w-]+)\))?/.exec(t);
    const name = scan.state.get("unit") as string | undefined;
    if (!active || !name) return;
    if (/fabricmanager/.test(name) && /inactive|failed/.test(active[1]!)) scan.hit("gpu.fabric_manager_down", record, {});
  },
  end(scan) {
    // Nothing to manage here, and CUDA does not complain: the service is not needed.
    const hard = scan.groupsOf("gpu.fabric_manager_down").some((g) => g.evidence.some((e) => /802|not yet initialized|NotReady|NOT_READY|version mismatch|mismatch(?:ed)? with|don't match with driver/i.test(e.line)));
    const plain = scan.state.get("gpu_without_switch") as Seen | undefined;
    if (plain && scan.state.get("gpu_with_switch") !== true && !hard && scan.has("gpu.fabric_manager_down")) {
      const [down] = scan.groupsOf("gpu.fabric_manager_down");
      scan.raise("gpu.fabric_manager_not_applicable", { records: [plain], lines: down!.evidence.slice(0, 1), checked: [["The GPUs that are listed are of a kind that has no NVSwitch.", "所列 GPU 属于没有 NVSwitch 的型号。"]] });
      scan.drop("gpu.fabric_manager_down");
    }
    if (scan.has("gpu.fabric_manager_not_applicable") && !hard) scan.drop("gpu.fabric_manager_down");
  },
};

export const hostWatchers: readonly Watcher[] = [df, meminfo, munge, modules, gpuBuffer, peermem, units];
