import { findBdf, normaliseDevice } from "../logs/device.js";
import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";
import type { Seen, Watcher } from "./watcher.js";

type Kind = "nic" | "gpu" | "bridge" | "other" | "unknown";
interface Device { bdf: string | null; kind: Kind; name: string; cap: { speed: number; width: number } | null }

function kindOf(description: string): Kind {
  if (/bridge|root port|switch port/i.test(description) && !/nvswitch/i.test(description)) return "bridge";
  if (/ethernet|infiniband|network controller|omni-path/i.test(description)) return "nic";
  if (/3d controller|vga compatible|display controller|nvidia|instinct|processing accelerator/i.test(description)) return "gpu";
  return "other";
}

/** lspci: the device whose block follows. */
const header: Watcher = {
  id: "lspci_header",
  triggers: ["controller:", "bridge:", "controller [", "bridge [", "peripheral:", "accelerators:", "accelerator:", "device:"],
  plainOnly: true,
  line(scan, _record, text) {
    const m = /^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.{4,300})$/i.exec(text);
    if (!m) return;
    scan.seen.add("pci");
    const device: Device = { bdf: normaliseDevice(m[1]!), kind: kindOf(m[2]!), name: m[2]!, cap: null };
    scan.state.set("pci_device", device);
    const list = scan.of<Device[]>("pci_list", () => []);
    if (list.length < 4096) list.push(device);
    if (device.kind === "nic" || device.kind === "gpu") scan.of("data_devices", () => new Set<string>()).add(device.bdf!);
  },
};

const acs: Watcher = {
  id: "acs",
  triggers: ["acsctl:"],
  end(scan) {
    // A whole list of devices without an accelerator: nobody here has peers to be redirected.
    const list = scan.of<Device[]>("pci_list", () => []);
    if (list.some((d) => d.kind !== "bridge") && !list.some((d) => d.kind === "gpu" && !/\b1234:1111|virtio|qxl|cirrus|aspeed|matrox/i.test(d.name))) scan.drop("gpu.p2p_acs");
  },
  line(scan, record, text) {
    scan.seen.add("pci");
    const on = ["ReqRedir", "CmpltRedir", "UpstreamFwd"].filter((bit) => text.includes(`${bit}+`));
    if (on.length === 0) return;
    const device = scan.state.get("pci_device") as Device | undefined;
    scan.hit("gpu.p2p_acs", record, { device: device?.bdf ?? null, params: { bits: on.join(" ") }, meaning: [`on: ${on.join(", ")}`, `已启用：${on.join("、")}`] });
  },
};


/**
 * The kernel's own comparison of a card with the way to it. `pci` speaks of any device, a driver only of its own: few lanes matter to a
 * card that could use many, a lower speed alone is often what the slot has.
 */
function limitedBy(scan: Scan, record: LogRecord, text: string, m: RegExpExecArray): void {
  const width = Number(m[3]);
  const could = m[6] === undefined ? null : Number(m[6]);
  const driver = m[1] !== "pci";
  const params = { width, speed: Number(m[2]), limit: `${m[2]} GT/s`, at: m[4] };
  const device = findBdf(text);
  if (could === null || width < could) { if (driver || could === null || could >= 8) scan.hit("pcie.width_downgraded", record, { device, params }); return; }
  if (driver) scan.hit("pcie.speed_downgraded", record, { device, params, severity: "low" });
}

const linkStatus: Watcher = {
  id: "link_status",
  triggers: ["lnkcap:", "lnksta:", ">!<", "device supports x", "available pcie bandwidth, limited by", "device supports 8", "device supports 16"],
  line(scan, record, text) {
    scan.seen.add("pci");
    const device = (scan.state.get("pci_device") as Device | undefined) ?? scan.of<Device>("pci_unnamed", () => ({ bdf: null, kind: "unknown", name: "", cap: null }));
    const told = /PCIe link (width|speed) is x?([\d.]+)(?:GT\/s)?, device supports x?([\d.]+)/i.exec(text);
    if (told) {
      if (Number(told[2]) < Number(told[3])) scan.hit(told[1]!.toLowerCase() === "width" ? "pcie.width_downgraded" : "pcie.speed_downgraded", record, {});
      return;
    }
    const limited = /(?:^|\s)(\w+) (?:[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])?.{0,60}?available PCIe bandwidth, limited by ([\d.]+) ?GT\/s(?: PCIe)? x(\d+) link(?: at (\S{7,16}))?(?:.{0,40}with ([\d.]+) ?GT\/s(?: PCIe)? x(\d+))?/i.exec(text);
    if (limited) { limitedBy(scan, record, text, limited); return; }
    if (text.includes(">!<")) {
      const narrow = /x\d+ ?>!</.test(text);
      scan.hit(narrow ? "pcie.width_downgraded" : "pcie.speed_downgraded", record, {});
      return;
    }
    const m = /Lnk(Cap|Sta):.{0,40}?Speed ([\d.]+)GT\/s(?: \((ok|downgraded)\))?, Width x(\d+)(?: \((ok|downgraded)\))?/i.exec(text);
    if (!m) return;
    const speed = Number(m[2]);
    const width = Number(m[4]);
    if (m[1]!.toLowerCase() === "cap") { device.cap = { speed, width }; return; }
    if (width === 0 || device.kind === "bridge") return;
    const narrow = m[5] === "downgraded" || (device.cap !== null && width < device.cap.width);
    const slow = m[3] === "downgraded" || (device.cap !== null && speed < device.cap.speed);
    const meaning = device.cap ? [`x${width} of x${device.cap.width}, ${speed} of ${device.cap.speed} GT/s`, `宽度 x${width}（能力 x${device.cap.width}），速率 ${speed}（能力 ${device.cap.speed}）GT/s`] as const : undefined;
    const params = { width, speed };
    if (narrow) scan.hit("pcie.width_downgraded", record, { device: device.bdf, params, meaning, severity: device.kind === "other" ? "low" : "high" });
    else if (slow && (device.kind === "gpu" || (device.kind === "unknown" && speed === 2.5))) {
      scan.hit(speed <= 5 ? "pcie.speed_idle" : "pcie.speed_downgraded", record, { device: device.bdf, params, meaning });
    } else if (slow && device.kind !== "other") scan.hit("pcie.speed_downgraded", record, { device: device.bdf, params, meaning });
  },
  sourceEnd(scan) { scan.state.delete("pci_device"); scan.state.delete("pci_unnamed"); },
};

/** Which cards the kernel log names, so that errors of their ports can be weighed. */
const named: Watcher = {
  id: "kernel_devices",
  triggers: ["mlx5_core ", "nvidia ", "bnxt_en ", "ice 0", "irdma ", "amdgpu ", "nvrm: gpu "],
  line(scan, _record, text) {
    const set = scan.of("data_devices", () => new Set<string>());
    // A driver's lines begin with its name and device; what is known needs no second look.
    const blank = text.indexOf(" ");
    if (set.has(text.slice(blank + 1, blank + 13))) return;
    if (!/\b(?:mlx5_core|nvidia|bnxt_en|ice|irdma|amdgpu|NVRM: GPU) (?=[0-9a-f]{4}:)/.test(text)) return;
    const bdf = set.size < 512 ? findBdf(text) : null;
    if (bdf === null) return;
    set.add(bdf);
    if (/\b(?:nvidia|amdgpu|NVRM: GPU) /.test(text)) scan.of("gpu_devices", () => new Set<string>()).add(bdf);
  },
};

const iommuMode: Watcher = {
  id: "p2p_iommu",
  triggers: ["intel_iommu=on", "amd_iommu=on", "iommu=pt", "p2pbandwidthlatencytest", "unidirectional p2p"],
  line(scan, record, text) {
    if (text.includes("iommu=pt")) { scan.state.set("iommu_pt", true); return; }
    if (/p2p/i.test(text)) { scan.state.set("p2p_test", true); return; }
    scan.of<Seen[]>("iommu_on", () => []).push({ record, source: scan.source });
  },
  end(scan) {
    const on = scan.of<Seen[]>("iommu_on", () => []);
    if (on.length === 0 || scan.state.get("iommu_pt") === true) return;
    const gpus = new Set(scan.of<Device[]>("pci_list", () => []).filter((d) => d.kind === "gpu").map((d) => d.bdf));
    const faultAtGpu = [...scan.groupsOf("iommu.dmar_fault"), ...scan.groupsOf("iommu.amdvi_io_page_fault")].some((g) => gpus.has(g.device));
    if (faultAtGpu || scan.state.get("p2p_test") === true || scan.has("rdma.wc_loc_prot", "rdma.wc_rem_op")) scan.raise("gpu.p2p_iommu", { records: on.slice(0, 1) });
  },
};

export const pciWatchers: readonly Watcher[] = [header, acs, linkStatus, named, iommuMode];
