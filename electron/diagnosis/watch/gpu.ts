import { SXID, XID, xidClass } from "../decode/nvidia.js";
import { normaliseDevice } from "../logs/device.js";
import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";
import type { Severity } from "../types.js";
import type { Seen, Watcher } from "./watcher.js";

/** Programs of a desktop: their faults are their own. */
const DESKTOP = /^(?:chrome|chromium|firefox|brave|msedge|opera|vivaldi|Xorg|Xwayland|gnome-shell|kwin\w*|plasmashell|plasma\w*|cinnamon|code|electron|slack|discord|Discord|steam\w*|mpv|vlc|obs|thunderbird|teams|GPU Process|Web Content|RDD Process|zoom|spotify|blender|compiz|mutter|sway|Hyprland|waybar|telegram\w*|signal\w*|mate-\w+|xfwm4)/;

function report(scan: Scan, record: LogRecord, number: number, device: string | null, text: string): void {
  scan.seen.add("kernel_log");
  const cls = xidClass(number) ?? "gpu.xid_other";
  const name = /\bname=([^,]{1,60})/.exec(text)?.[1]?.trim();
  const pid = /\bpid='?(\d{1,10})/.exec(text)?.[1];
  let severity: Severity | undefined;
  if (cls === "gpu.xid_144_150") severity = /\bNon-?fatal\b/i.test(text) ? "medium" : /\bFatal\b/i.test(text) ? "critical" : "high";
  if (number === 154) severity = /to [^,]{0,60}(?:reboot|drain|reset)/i.test(text) ? (/reboot|drain/i.test(text) ? "high" : "medium") : "info";
  if (number === 63 && /failed/i.test(text)) severity = "high";
  const group = scan.hit(cls, record, { device, severity, params: { xid: number, program: name, pid, action: number === 154 ? / to (.{1,60})$/.exec(text)?.[1] : undefined, text: text.slice(0, 120) }, meaning: XID[number] ? [`Xid ${number}: ${XID[number][0]}`, `Xid ${number}：${XID[number][1]}`] : undefined });
  if (group && name) { const names = scan.of("xid_programs", () => new Map<string, Set<string>>()); const set = names.get(cls) ?? new Set<string>(); if (set.size < 64) set.add(name); names.set(cls, set); }
}

const xid: Watcher = {
  id: "xid",
  triggers: ["xid (", "xid=", "xid:", "xid ", "xid-"],
  line(scan, record, text) {
    const m = /\bXid ?\((?:PCI:)?([0-9a-fx:.*<>_-]{2,20})(?: GPU-I:\d{1,3}(?: GPU-CI:\d{1,3})?)?\): (\d{1,4})\b/i.exec(text);
    if (m) {
      if (/SXid/i.test(text) && !/NVRM: Xid/.test(text)) return;
      const device = /^[0-9a-f:.]{5,20}$/i.test(m[1]!) ? m[1]! : null;
      report(scan, record, Number(m[2]), device, text);
      const previous = /caused by previous Xid (\d{1,4})/i.exec(text);
      const cls = previous ? xidClass(Number(previous[1])) : null;
      if (cls && previous) scan.hit(cls, record, { device, severity: cls === "gpu.xid_144_150" ? "critical" : undefined, params: { xid: Number(previous[1]), named: "previous" }, meaning: [`named as the cause: Xid ${previous[1]}`, `被指为原因：Xid ${previous[1]}`] });
      return;
    }
    const event = /\bXid[ =:]{1,3}(\d{1,4})\b(?: on Device[=:]? ?(\S{1,60}?)(?=[,\s]|$))?/i.exec(text);
    if (!event || /SXid|previous xid|transaction|application-critical xids|ignored? xid/i.test(text)) return;
    const number = Number(event[1]);
    if (number > 0 && number < 1000) report(scan, record, number, event[2] ?? /(GPU-[0-9a-f-]{8,40})/.exec(text)?.[1] ?? null, text);
  },
  end(scan) {
    const programs = scan.of("xid_programs", () => new Map<string, Set<string>>());
    for (const cls of ["gpu.xid_13", "gpu.xid_31", "gpu.xid_43", "gpu.xid_32_69"]) {
      const groups = scan.groupsOf(cls);
      const names = [...(programs.get(cls) ?? [])];
      const graver = [...scan.groups.values()].some((g) => (g.class.startsWith("gpu.xid") && !["gpu.xid_13", "gpu.xid_31", "gpu.xid_43", "gpu.xid_32_69", "gpu.xid_45", "gpu.xid_109"].includes(g.class)) || /^pcie\.(?:aer_(?!cor)|dpc|device)/.test(g.class) || g.class === "gpu.device_lost");
      if (groups.length === 1 && names.length > 0 && names.every((n) => DESKTOP.test(n)) && !graver) {
        groups[0]!.severity = "info";
        groups[0]!.checked.push(["Only a desktop program is named, on one GPU, with no PCIe error: the GPU is healthy.", "只涉及一个桌面程序和一个 GPU，且没有 PCIe 错误：GPU 正常。"]);
      }
    }
    // A clean-up with nothing before it is the end of a job.
    for (const g of scan.groupsOf("gpu.xid_45")) if (![...scan.groups.values()].some((o) => o !== g && o.severity !== "info" && /^gpu\.|^pcie\./.test(o.class))) g.severity = "info";
  },
};

const sxid: Watcher = {
  id: "sxid",
  triggers: ["sxid", "detected nvswitch"],
  line(scan, record, text) {
    // The fabric manager's own log of the same event.
    const told = /detected NVSwitch (non-fatal|fatal) error (\d{4,6}) .{0,60}?pci bus id ([0-9a-f:.]{7,20})(?:.{0,40}? port (\d{1,3}))?/i.exec(text);
    if (told) {
      const number = Number(told[2]);
      scan.hit("gpu.sxid", record, { device: told[3]!, severity: /^fatal/i.test(told[1]!) ? "critical" : "medium", params: { sxid: number }, meaning: SXID[number] ? [`SXid ${number}: ${SXID[number][0]}`, `SXid ${number}：${SXID[number][1]}`] : undefined });
      if (told[4]) scan.of("sxid_links", () => new Set<string>()).add(told[4]);
      return;
    }
    const m = /SXid ?\((?:PCI:)?([0-9a-f:.]{5,20})\): (\d{4,6}),? ?(.{0,200})/i.exec(text);
    if (!m) return;
    scan.seen.add("kernel_log");
    const number = Number(m[2]);
    const rest = m[3]!;
    const nonFatal = /\bNon-?fatal\b/i.test(rest) || /Severity 0\b/.test(rest);
    const fatal = !nonFatal && (/\bFatal\b/i.test(rest) || /Severity [1-9]\b/.test(rest));
    const event = /\b(?:Non-?)?fatal\b/i.test(rest);
    const link = /\bLink (\d{1,3})\b/.exec(rest)?.[1];
    const links = scan.of("sxid_links", () => new Set<string>());
    if (link && links.size < 256) links.add(link);
    scan.hit("gpu.sxid", record, {
      device: m[1]!, count: event ? 1 : 0, severity: fatal ? "critical" : "medium", params: { sxid: number },
      meaning: SXID[number] ? [`SXid ${number}: ${SXID[number][0]}`, `SXid ${number}：${SXID[number][1]}`] : undefined,
    });
  },
  end(scan) {
    for (const g of scan.groupsOf("gpu.sxid")) {
      if (g.count === 0) g.count = 1;
      g.params["links"] = [...scan.of("sxid_links", () => new Set<string>())].slice(0, 72).join(",");
    }
  },
};

interface Section { gpu: string | null; product: string; section: string; sub: string; bus: Map<string, number> }

/** nvidia-smi -q: sections by lines without a value. */
const query: Watcher = {
  id: "gpu_query",
  triggers: ["remapped rows", "retired pages", "pending", "remapping failure", "fabric", "state :", "bar1", "product name", "total :", "gpu 00000000:", "performance state", "link width", "pcie generation", "current :", "max :", "status :"],
  plainOnly: true,
  line(scan, record, raw) {
    const text = raw.trim();
    const s = scan.of<Section>("smi", () => ({ gpu: null, product: "", section: "", sub: "", bus: new Map() }));
    const gpu = /^GPU ([0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$/i.exec(text);
    if (gpu) { s.gpu = normaliseDevice(gpu[1]!); s.section = ""; s.bus.clear(); scan.seen.add("gpu"); return; }
    const kv = /^([A-Za-z][\w /().-]{1,50}?) ?: (.{1,120})$/.exec(text);
    if (!kv) {
      if (/^(?:Remapped Rows|Retired Pages|Fabric|BAR1 Memory Usage|FB Memory Usage|PCIe Generation|Link Width|ECC Mode|GPU Link Info|Health|MIG Mode|Row Remapper)/i.test(text)) { s.section = text.toLowerCase(); s.bus.clear(); }
      else if (/^[A-Z][\w /-]{2,40}$/.test(text) && text !== "Health") s.section = text.toLowerCase();
      return;
    }
    const key = kv[1]!.trim().toLowerCase();
    const value = kv[2]!.trim();
    const o = { device: s.gpu, params: { gpu: s.gpu ?? "0" } };
    if (key === "product name") s.product = value;
    else if (key === "remapping failure occurred" && /^yes/i.test(value)) scan.hit("gpu.ecc_remap_failure", record, o);
    else if ((key === "pending" && /^yes/i.test(value) && /remap|retired/.test(s.section)) || (key === "pending page blacklist" && /^yes/i.test(value)) || (/pending/.test(key) && /remap|retire/.test(key) && /^yes/i.test(value))) scan.hit("gpu.ecc_remap_pending", record, o);
    else if (key === "state" && s.section.startsWith("fabric")) {
      scan.seen.add("gpu");
      if (/in progress/i.test(value)) scan.hit("gpu.fabric_in_progress", record, o);
      else if (/not started/i.test(value)) scan.hit("gpu.fabric_manager_down", record, o);
    } else if (key === "total" && s.section.startsWith("bar1")) {
      const mib = Number(/^(\d+) MiB/.exec(value)?.[1] ?? NaN);
      if (mib <= 256 && /\b(?:A100|A800|A30|A40|H100|H800|H200|H20|B100|B200|GB200|L40|V100|L20|RTX 6000 Ada|PG50\d)/.test(s.product)) scan.hit("gpu.bar1_small", record, { ...o, params: { ...o.params, totalMiB: mib } });
    } else if ((key === "max" || key === "current") && s.section.startsWith("link width")) {
      s.bus.set(key, parseInt(value, 10));
      const max = s.bus.get("max");
      const current = s.bus.get("current");
      if (max && current && current < max) scan.hit("pcie.width_downgraded", record, { ...o, params: { width: current, gpu: s.gpu ?? "0" } });
    }
  },
  sourceEnd(scan) { scan.state.delete("smi"); },
};

const FAR = new Set(["PHB", "NODE", "SYS"]);
const NEAR = new Set(["PIX", "PXB"]);

/** nvidia-smi topo -m: the nearest NIC of each GPU. */
const topo: Watcher = {
  id: "topo",
  triggers: ["gpu0"],
  plainOnly: true,
  line(scan, record, text) {
    const cells = text.trim().split(" ");
    if (cells[0] === "GPU0" && cells.length > 1 && cells.includes("X")) { this.follow!(scan, record, text); scan.follow(this, 40); return; }
    if (cells[0] === "GPU0" || (cells[0] ?? "").startsWith("GPU0")) {
      scan.state.set("topo_columns", cells);
      scan.follow(this, 60);
    }
  },
  follow(scan, record, text) {
    const columns = scan.state.get("topo_columns") as string[] | undefined;
    if (!columns) return false;
    const cells = text.trim().split(" ");
    if (!/^GPU\d+$/.test(cells[0] ?? "")) return /^(?:NIC\d+|mlx|ib|roce|bnxt|irdma|$)/.test(cells[0] ?? "") || text.trim() === "";
    scan.seen.add("gpu");
    const nics = columns.map((c, i) => ({ c, d: cells[i + 1] ?? "" })).filter((x) => /^(?:NIC\d+|mlx[45]_|ibp|rocep|bnxt_re|irdma)/.test(x.c));
    if (nics.length === 0) return true;
    const rows = scan.of<{ near: boolean; far: boolean; seen: Seen; best: string }[]>("topo_rows", () => []);
    if (rows.length < 256) rows.push({ near: nics.some((n) => NEAR.has(n.d)), far: nics.some((n) => FAR.has(n.d)), best: nics.map((n) => n.d).sort((a, b) => order(a) - order(b))[0]!, seen: { record, source: scan.source } });
    return true;
  },
  end(scan) {
    const far = scan.of<{ near: boolean; far: boolean; seen: Seen; best: string }[]>("topo_rows", () => []).filter((r) => !r.near && r.far);
    if (far.length > 0) scan.raise("gpu.gdr_path_phb", { records: far.slice(0, 3).map((r) => r.seen), count: far.length, params: { path: far[0]!.best } });
  },
};
function order(d: string): number { const i = ["PIX", "PXB", "PHB", "NODE", "SYS"].indexOf(d); return i < 0 ? 9 : i; }

/** Kubernetes: a GPU that the node has and does not offer. */
const allocatable: Watcher = {
  id: "allocatable",
  triggers: ["capacity:", "allocatable:", "nvidia.com/gpu"],
  line(scan, record, text) {
    const t = text.trim();
    if (/^Capacity:/i.test(t)) { scan.state.set("k8s", "capacity"); return; }
    if (/^Allocatable:/i.test(t)) { scan.state.set("k8s", "allocatable"); return; }
    const m = /^"?nvidia\.com\/gpu"?: "?(\d{1,4})"?/.exec(t);
    const where = scan.state.get("k8s") as string | undefined;
    if (!m || !where) return;
    if (where === "capacity") scan.state.set("gpu_capacity", Number(m[1]));
    else { const capacity = scan.state.get("gpu_capacity") as number | undefined; if (capacity !== undefined && Number(m[1]) < capacity) scan.state.set("gpu_held", { record, source: scan.source, capacity, now: Number(m[1]) }); }
  },
  end(scan) {
    const held = scan.state.get("gpu_held") as (Seen & { capacity: number; now: number }) | undefined;
    if (!held || [...scan.groups.keys()].some((k) => k.startsWith("gpu.xid"))) return;
    scan.raise("gpu.xid_94", {
      records: [held], params: { capacity: held.capacity, allocatable: held.now, inferred: 1 },
      meaning: [`${held.capacity - held.now} of ${held.capacity} GPUs is held back by the device plugin; a contained memory error is what usually leaves a usable GPU so, and the kernel log must prove it`, `设备插件扣留了 ${held.capacity} 个 GPU 中的 ${held.capacity - held.now} 个；通常是受限显存错误所致，需由内核日志证实`],
    });
  },
};

interface Links { gpu: string; up: number; down: number; seen: Seen | null }

/** nvidia-smi nvlink --status: a GPU some of whose links carry and some do not. None at all may be a machine without bridges. */
const nvlinkStatus: Watcher = {
  id: "nvlink_status",
  triggers: ["(uuid: gpu-", "<inactive>", "gb/s"],
  plainOnly: true,
  line(scan, record, text) {
    const t = text.trim();
    const gpus = scan.of<Links[]>("nvlinks", () => []);
    const gpu = /^GPU (\d{1,3}): .{2,80}\(UUID: GPU-/.exec(t);
    if (gpu) { if (gpus.length < 1024) gpus.push({ gpu: gpu[1]!, up: 0, down: 0, seen: null }); return; }
    const link = /^Link \d{1,2}: (<inactive>|[\d.]+ GB\/s)/.exec(t);
    const at = gpus.at(-1);
    if (!link || !at) return;
    if (link[1] === "<inactive>") { at.down++; at.seen ??= { record, source: scan.source }; } else at.up++;
  },
  end(scan) {
    for (const g of scan.of<Links[]>("nvlinks", () => [])) if (g.up > 0 && g.down > 0) scan.raise("gpu.nvlink_inactive", { device: `GPU ${g.gpu}`, records: g.seen ? [g.seen] : [], params: { gpu: g.gpu, inactive: g.down, active: g.up } });
  },
  sourceEnd(scan) { scan.of<Links[]>("nvlinks", () => []).push({ gpu: "", up: 0, down: 0, seen: null }); },
};

export const gpuWatchers: readonly Watcher[] = [xid, sxid, query, topo, nvlinkStatus, allocatable];
