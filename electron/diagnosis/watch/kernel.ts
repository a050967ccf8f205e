import { CHANERR, CHANSTS_STATE, named, namedBits } from "../decode/tables.js";
import { findBdf, findRdmaDevice } from "../logs/device.js";
import type { Severity } from "../types.js";
import { firmwareStatus } from "./firmware.js";
import type { Seen, Watcher } from "./watcher.js";

/** A bounce buffer serves at most 128 slots of 2 KiB in one piece. */
const SWIOTLB_MAX_BYTES = 262144;

const swiotlb: Watcher = {
  id: "swiotlb",
  triggers: ["swiotlb buffer is full", "out of sw-iommu space", "swiotlb: coherent allocation failed"],
  line(scan, record, text) {
    scan.seen.add("kernel_log");
    const m = /\(sz: (\d+) bytes\)(?:,? ?total (\d+) \(slots\), ?used (\d+) \(slots\))?/.exec(text) ?? /space for (\d+) bytes/.exec(text);
    const size = m ? Number(m[1]) : undefined;
    const total = m?.[2] === undefined ? undefined : Number(m[2]);
    const used = m?.[3] === undefined ? undefined : Number(m[3]);
    const tooLarge = size !== undefined && size > SWIOTLB_MAX_BYTES;
    const farBelow = total !== undefined && used !== undefined && used < total * 0.8;
    scan.hit(tooLarge || farBelow ? "dma.mask_overflow" : "dma.swiotlb_full", record, { params: { size, total, used } });
  },
};

const dmarBoot: Watcher = {
  id: "dmar_boot",
  triggers: ["vga compatible controller", "display controller"],
  plainOnly: true,
  line(scan, _record, text) {
    const bdf = findBdf(text.slice(0, 14));
    if (bdf) scan.of("displays", () => new Set<string>()).add(bdf);
  },
  end(scan) {
    const displays = scan.of("displays", () => new Set<string>());
    for (const g of scan.groupsOf("iommu.dmar_fault")) {
      const display = g.device === "0000:00:02.0" || (g.device !== null && displays.has(g.device));
      const booting = g.last === null ? g.count < 32 : g.last.clock === "uptime" && g.last.time < 6;
      if (display && booting) scan.rename(g, "iommu.dmar_boot_transient", "info");
      // Devices on bus 0 belong to the chipset: not the data path.
      else if (g.device !== null && /^[0-9a-f]{4}:00:/.test(g.device)) g.severity = "medium";
    }
  },
};

const ioat: Watcher = {
  id: "ioat",
  triggers: ["chanerr:", "ioatdma"],
  line(scan, record, text) {
    const m = /CHANSTS: (0x[0-9a-f]+) CHANERR: (0x[0-9a-f]+)/i.exec(text);
    if (m) {
      const chanerr = parseInt(m[2]!, 16);
      const state = named(parseInt(m[1]!.slice(-1), 16) & 7, CHANSTS_STATE);
      const bits = namedBits(chanerr, CHANERR, 0);
      const bitsZh = namedBits(chanerr, CHANERR, 1);
      scan.hit("dma.ioat_channel_error", record, {
        params: { chansts: m[1], chanerr: m[2] },
        meaning: [`channel ${state[0]}; CHANERR ${m[2]}: ${bits.length ? bits.join(", ") : "no transfer error"}`, `通道${state[1]}；CHANERR ${m[2]}：${bitsZh.length ? bitsZh.join("、") : "没有传输错误"}`],
      });
    } else if (/ioatdma .{0,20}: Errors:$/i.test(text)) scan.of<Seen[]>("ioat_headers", () => []).push({ record, source: scan.source });
  },
  end(scan) {
    const headers = scan.of<Seen[]>("ioat_headers", () => []);
    if (headers.length > 0 && !scan.has("dma.ioat_channel_error")) scan.raise("dma.ioat_channel_error", { device: findBdf(headers[0]!.record.text), records: headers.slice(0, 2), count: headers.length });
  },
};

interface LinkTrace { events: { what: "init" | "active" | "down" | "up"; time: number | null; seen: Seen }[] }

const linkEvents: Watcher = {
  id: "link_init",
  triggers: ["link init", "link active", "link down", "link up", "nic link is down", "nic link is up", "link status definitely"],
  line(scan, record, text) {
    const member = /link status definitely (down|up) for (?:active )?interface ([\w.-]{1,20})/i.exec(text);
    if (!member && !/mlx[45]|bnxt|ice|irdma|qed|hfi1|i40e|ionic|NIC Link|Port: ?\d+ Link/i.test(text)) return;
    const m = member ?? /\bLink (?:is )?(INIT|ACTIVE|down|up)\b/i.exec(text);
    if (!m) return;
    scan.seen.add("kernel_log");
    const device = member?.[2] ?? /\b((?:mlx[45]_|rocep|ibp)\w{1,20}): Port:/.exec(text)?.[1] ?? findBdf(text) ?? findRdmaDevice(text) ?? "";
    const traces = scan.of("link_traces", () => new Map<string, LinkTrace>());
    const key = `${record.host ?? ""}|${device}`;
    const trace = traces.get(key) ?? { events: [] };
    if (traces.size < 4096) traces.set(key, trace);
    if (trace.events.length < 200) trace.events.push({ what: m[1]!.toLowerCase() as "init", time: record.time, seen: { record, source: scan.source } });
  },
  end(scan) {
    for (const [key, { events }] of scan.of("link_traces", () => new Map<string, LinkTrace>())) {
      const device = key.slice(key.indexOf("|") + 1) || null;
      const init = events.findIndex((e) => e.what === "init");
      const firstUp = events.findIndex((e) => e.what === "active" || e.what === "up");
      // A bond tells of a member that it had up before; a port's own first line may be the start of its driver.
      const ofBond = events[0]!.seen.record.text.includes("definitely");
      const downs = firstUp < 0 ? [] : events.slice(ofBond ? 0 : firstUp).filter((e) => e.what === "down");
      if (downs.length >= 2 || (downs.length === 1 && events.at(-1)!.what !== "down" && firstUp >= 0 && (events[firstUp]!.time ?? 0) + 60 < (downs[0]!.time ?? 0))) {
        scan.raise("link.flapping", { device, records: downs.slice(0, 3).map((e) => e.seen), count: downs.length, severity: downs.length >= 2 ? "high" : "medium" });
        continue;
      }
      if (init < 0) continue;
      const active = events.slice(init).find((e) => e.what === "active" || e.what === "up");
      if (active) scan.raise("link.transient_init", { device, records: [events[init]!.seen, active.seen] });
      else scan.raise("link.init_no_sm", { device, records: [events.at(-1)!.seen], checked: [["The log shows no ACTIVE of this port after INIT.", "日志中该端口在 INIT 之后没有 ACTIVE。"]] });
    }
  },
};

const softLockup: Watcher = {
  id: "soft_lockup",
  triggers: ["soft lockup", "hard lockup", "rcu_sched self-detected stall"],
  line(scan, record) { const l = scan.of<Seen[]>("lockups", () => []); if (l.length < 3) l.push({ record, source: scan.source }); },
  end(scan) {
    const lockups = scan.of<Seen[]>("lockups", () => []);
    if (lockups.length === 0) return;
    for (const g of scan.groupsOf("rdma.tx_timeout")) {
      g.severity = "critical";
      for (const s of lockups) g.evidence.push({ source: s.source, line: s.record.raw.slice(0, 600), lineNumber: s.record.line, meaning: ["A CPU is stuck: the queue will not recover by itself.", "有 CPU 卡死：队列不会自行恢复。"] });
    }
  },
};

interface BarFailure { bar: number; vf: boolean; bytes: number; seen: Seen; resolved: boolean }

const bars: Watcher = {
  id: "bar",
  triggers: ["no space for", "failed to assign", "can't assign", "no space"],
  line(scan, record, text) {
    const m = /(VF )?BAR (\d+)(?: \[[^\]]{1,80}\])?: (?:no space|failed to assign|can't assign)/i.exec(text);
    if (!m) return;
    scan.seen.add("kernel_log");
    const device = findBdf(text) ?? "";
    const size = /size 0x([0-9a-f]+)/i.exec(text);
    const list = scan.of("bars", () => new Map<string, BarFailure>());
    const key = `${device}|${m[1] ? "vf" : ""}${m[2]}`;
    if (!list.has(key) && list.size < 512 && !/\[io /.test(text)) list.set(key, { bar: Number(m[2]), vf: m[1] !== undefined, bytes: size ? parseInt(size[1]!, 16) : 0, seen: { record, source: scan.source }, resolved: false });
  },
  end(scan) {
    const vendors = scan.of("pci_vendors", () => new Map<string, string>());
    const gpus = scan.of("gpu_devices", () => new Set<string>());
    for (const [key, b] of scan.of("bars", () => new Map<string, BarFailure>())) {
      const device = key.slice(0, key.indexOf("|")) || null;
      if (b.vf || (b.bar >= 7 && b.bar <= 12)) { scan.raise("pcie.vf_bar_no_space", { device, records: [b.seen], params: { bar: b.bar } }); continue; }
      if (b.bar > 12) continue;
      const vendor = device === null ? undefined : vendors.get(device);
      const assigned = scan.of("bars_assigned", () => new Set<string>());
      if (assigned.has(key)) continue;
      // Only graphics cards have windows that large; another vendor's BAR is not a GPU's.
      if ((device !== null && gpus.has(device)) || vendor === "10de" || vendor === "1002" || (vendor === undefined && b.bytes >= 64 * 1024 * 1024)) scan.raise("gpu.bar_unassigned", { device, records: [b.seen], params: { bar: b.bar } });
    }
  },
};

const pciScan: Watcher = {
  id: "pci_scan",
  triggers: ["type 00 class", "type 01 class", ": assigned [mem"],
  line(scan, _record, text) {
    const v = /([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): \[([0-9a-f]{4}):[0-9a-f]{4}\]/i.exec(text);
    if (v) scan.of("pci_vendors", () => new Map<string, string>()).set(v[1]!.toLowerCase(), v[2]!.toLowerCase());
    const a = /([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (VF )?BAR (\d+)(?: \[[^\]]{1,80}\])?: assigned/i.exec(text);
    if (a) scan.of("bars_assigned", () => new Set<string>()).add(`${a[1]!.toLowerCase()}|${a[2] ? "vf" : ""}${a[3]}`);
  },
};

/** Modules of the data path: another version of a symbol stops the job. For others it stops only that module. */
const DATA_MODULES = /^(?:ib_|rdma_|mlx[45]_(?!vdpa)|irdma|bnxt_re|iw_|hfi1|qedr|rxe|rdma_rxe|siw|nv_?peer|nvidia|amdgpu|amdkfd|dma_engine|nvme_rdma|nvme_core|rpcrdma|gdrdrv|knem|xpmem)/;

const severities: Watcher = {
  id: "symbol_version_severity",
  triggers: [],
  end(scan) {
    for (const g of scan.groupsOf("module.symbol_version_mismatch")) if (g.device !== null && !DATA_MODULES.test(g.device)) g.severity = "low";
    if (scan.has("module.symbol_version_mismatch")) for (const g of scan.groupsOf("module.vermagic_mismatch")) if (g.params["weak"] !== undefined) scan.rename(g, "module.symbol_version_mismatch", "high");
  },
};

const DATA_FIRMWARE = /^(?:\/lib\/firmware\/)?(?:mlx|mellanox|bnx|bnxt|cxgb|liquidio|netronome|nfp|qed|qlogic|hfi1|intel\/(?:ice|idpf|qat|irdma)|qat|amdgpu|nvidia|radeon|ionic|hinic|mrvl|slicoss|sxg|myri|vxge|phanfw|mt7|habanalabs|amdnpu)/i;
const DATA_DRIVER = /\b(?:mlx[45]_core|mlxsw\w*|bnx2x?|bnxt_en|ice|idpf|i40e|ixgbe|qede?|qedr|cxgb[34]|liquidio\w*|nfp|hfi1|amdgpu|nvidia|NVRM|radeon|ionic|hinic\w*|hns3|efa|myri10ge|netxen_nic|qlcnic|octeon\w*|xdma|idxd|ioatdma)\b/;
// A card's own package of ice is looked for before the common one.
const OPTIONAL_FIRMWARE = /ice-[0-9a-f]{4,20}\.pkg|regulatory\.db|iwlwifi|^rtl_nic|^rtlwifi|^rtl_bt|intel\/ibt|^brcm|^ath\d|i915\/|^mediatek|^mt7|isp\/|amd-ucode|intel-ucode|^tigon|_dmc|^e100|dsp_fw|^cirrus|sof|\.clm_blob|\.txcap|^qca|uefi|-pcie\.txt/;

const firmware: Watcher = {
  id: "firmware_severity",
  triggers: [],
  end(scan) {
    for (const g of scan.groupsOf("module.firmware_missing")) {
      const file = String(g.params["file"] ?? "");
      // A file of a NIC or GPU stops the data path; of others only what the distribution itself does not call optional is worth a word.
      const wanted = DATA_FIRMWARE.test(file) || g.evidence.some((e) => DATA_DRIVER.test(e.line));
      const failed = g.evidence.some((e) => /Safe Mode|could not be read/i.test(e.line));
      const severity: Severity = file === "" || failed || (wanted && !OPTIONAL_FIRMWARE.test(file)) ? g.severity : "info";
      g.severity = severity;
    }
  },
};

export const kernelWatchers: readonly Watcher[] = [swiotlb, dmarBoot, ioat, firmwareStatus, linkEvents, softLockup, bars, pciScan, severities, firmware];
