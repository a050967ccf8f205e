import { findBdf, normaliseDevice, slotOf } from "../logs/device.js";
import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";
import type { Severity } from "../types.js";
import type { Watcher } from "./watcher.js";

interface Last { source: string; line: number; cls: string; device: string | null; correctable: boolean; received: boolean }

const SEVERITY = /\b(Corrected|Correctable|Uncorrected|Uncorrectable)\b(?: ?\(?(Non-?Fatal|Fatal)\)?)?/i;

function classOf(text: string): string | null {
  const m = SEVERITY.exec(text);
  if (!m) return null;
  if (/^correct/i.test(m[1]!)) return "pcie.aer_corrected";
  return m[2] !== undefined && !/^non/i.test(m[2]) ? "pcie.aer_fatal" : "pcie.aer_nonfatal";
}

/** Blocks of PCIe advanced error reporting, in the wordings of old and new kernels and of firmware-first reports (GHES). */
export const aerWatcher: Watcher = {
  id: "aer",
  triggers: ["pcie bus error", "aer:", "error status/mask", "acsviol", "acs violation", "event severity:", "section_type: pcie", "aer_uncor_status", "aer_cor_status", "cmpltto", "malftlp", "surprise down", "sdes", "aer_event"],
  line(scan, record, text) {
    scan.seen.add("kernel_log");
    const last = scan.state.get("aer_last") as Last | undefined;
    const bus = /PCIe Bus Error/i.test(text);
    const received = /error (?:message )?received/i.test(text);
    if (bus || received || /AER: ?(?:Multiple )?(?:Un)?correct/i.test(text)) {
      const cls = classOf(text);
      if (cls) event(scan, record, text, cls, bus, received, last);
      return;
    }
    // The trace event that RAS daemons write.
    if (/\baer_event\b/.test(text)) { const cls = classOf(text); if (cls) event(scan, record, text, cls, true, false, undefined); return; }
    if (/event severity:/i.test(text)) { scan.state.set("ghes", /fatal/i.test(text) ? "pcie.aer_fatal" : /recoverable/i.test(text) ? "pcie.aer_nonfatal" : "pcie.aer_corrected"); return; }
    if (/section_type: PCIe/i.test(text)) { const cls = scan.state.get("ghes") as string | undefined; if (cls) event(scan, record, text, cls, true, false, undefined); return; }
    if (/link has been reset|recovery failed|can't recover/i.test(text)) return;
    if (!last) return;
    const status = /error status\/mask=([0-9a-f]{8})\/([0-9a-f]{8})/i.exec(text) ?? /aer_(?:un)?cor_status: 0x([0-9a-f]{8})/i.exec(text);
    if (status) {
      scan.hit(last.cls, record, { device: last.device, count: 0, params: { status: status[1], correctable: last.correctable ? 1 : 0 } });
      if (!last.correctable && parseInt(status[1]!, 16) & (1 << 21)) scan.hit("pcie.acs_violation", record, { device: last.device });
      return;
    }
    if (/\bACSViol\b|ACS Violation/i.test(text) && !last.correctable) scan.hit("pcie.acs_violation", record, { device: last.device });
    const first = /\[ ?(\d+)\] ?(\w[\w ]{1,30}?)[ (].{0,60}First\)/i.exec(text);
    if (first) scan.hit(last.cls, record, { device: last.device, count: 0, params: { firstError: first[2] } });
  },
  end(scan) {
    // The first bad bit decides: a violation of access control is reported as an uncorrected error and is none of the data path.
    const known = dataSlots(scan);
    const others = [...scan.groups.values()].some((g) => g.severity !== "info" && !g.class.startsWith("pcie.aer_corrected") && (g.class.startsWith("gpu.") || g.class.startsWith("pcie.") || g.class.startsWith("rdma.fw")));
    for (const g of scan.groupsOf("pcie.aer_corrected")) {
      const total = g.count + g.suppressed;
      const seconds = g.first && g.last ? g.last.time - g.first.time : 0;
      const onDataPath = [...g.devices].some((d) => known.has(slotOf(d) ?? ""));
      let severity: Severity = others ? "low" : "info";
      if (onDataPath) severity = total >= 100 && (seconds <= 0 || total / seconds >= 0.1) ? "medium" : "low";
      g.severity = severity;
    }
  },
};

function event(scan: Scan, record: LogRecord, text: string, cls: string, bus: boolean, received: boolean, last: Last | undefined): void {
  const reporter = findBdf(text);
  const from = /(?:received|from):? ?(?:from )?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/i.exec(text);
  // The line after "received" is the same event, told by the device itself.
  const same = bus && last !== undefined && last.source === scan.source && last.received && last.cls === cls && record.line - last.line <= 2;
  const device = from ? normaliseDevice(from[1]!) : reporter;
  scan.hit(cls, record, { device: same && last.device !== null ? last.device : device, count: same ? 0 : 1 });
  scan.state.set("aer_last", { source: scan.source, line: record.line, cls, device: bus && reporter !== null && !same ? reporter : same ? last.device : device, correctable: cls === "pcie.aer_corrected", received: received && !bus } satisfies Last);
}

function dataSlots(scan: Scan): Set<string> {
  const slots = new Set<string>();
  for (const d of scan.of("data_devices", () => new Set<string>())) { const s = slotOf(d); if (s) slots.add(s); }
  return slots;
}
