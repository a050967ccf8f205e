import { ContraryLines } from "./contrary.js";
import { quoteLine } from "./logs/clean.js";
import { findBdf, findRdmaDevice, normaliseDevice, slotOf } from "./logs/device.js";
import { collapse, Normaliser, type LogRecord } from "./logs/normalise.js";
import { meaningOf } from "./meanings.js";
import { ruleOf } from "./rules/index.js";
import { TextKinds } from "./text-kinds.js";
import type { Evidence, Group, InputKind, Severity, Text } from "./types.js";
import { WATCHERS, type Watcher } from "./watch/index.js";

/** Bounds against hostile input: what comes beyond is counted in the class's group without a device. */
const MAX_GROUPS = 4000;
const EVIDENCE_PER_GROUP = 4;
const DETAILED_HITS = 32;
/** What is decoded in one go: the text of a file of gigabytes never stands in memory as a whole. */
const CHUNK_BYTES = 1 << 20;
const SEVERITY_RANK: Record<Severity, number> = { info: 0, low: 1, medium: 2, high: 3, critical: 4 };

export function worse(a: Severity, b: Severity): Severity {
  return SEVERITY_RANK[a] >= SEVERITY_RANK[b] ? a : b;
}
export function severityRank(s: Severity): number { return SEVERITY_RANK[s]; }

export interface HitOptions {
  /** A function is asked only where the answer is needed. */
  device?: string | null | (() => string | null);
  severity?: Severity;
  params?: Record<string, string | number | undefined>;
  meaning?: Text;
  count?: number;
}

/** One reading of a set of sources that belong together: occurrences, grouped, and the values that checks need. */
export class Scan {
  readonly groups = new Map<string, Group>();
  /** State of the watchers, by their own keys. */
  readonly state = new Map<string, unknown>();
  readonly seen = new Set<InputKind>();
  /** Lines that speak of a failure and fit no class. */
  readonly unexplained: { source: string; line: string; lineNumber: number }[] = [];
  unexplainedCount = 0;
  /** Those of them that notes found beside them cannot account for. */
  plainFailures = 0;
  /** Lines that complain and fit no class: what speaks against "nothing wrong". */
  readonly complaints: Evidence[] = [];
  readonly contrary = new ContraryLines();
  records = 0;
  lines = 0;
  droppedChars = 0;
  source = "";
  #record: LogRecord | null = null;
  readonly #hitThisRecord = new Set<string>();
  #followers: { watcher: Watcher; left: number }[] = [];
  #suppressed: { name: string; count: number; host: string | null }[] = [];
  #lastGroup: Group | null = null;
  #order = 0;
  readonly #kinds = new TextKinds();
  /** The group that a class last came to: a flood goes there again. */
  readonly #recent = new Map<string, Group>();

  /** Reads one source. `chunks` may come in pieces of any size. */
  read(name: string, chunks: Iterable<Uint8Array | string>, host: string | null = null): void {
    const normaliser = this.#open(name, host);
    for (const chunk of chunks) {
      if (typeof chunk === "string") normaliser.pushText(chunk);
      else for (let at = 0; at < chunk.length; at += CHUNK_BYTES) normaliser.push(chunk.subarray(at, at + CHUNK_BYTES));
    }
    this.#close(normaliser);
  }

  async readStream(name: string, chunks: AsyncIterable<Uint8Array | string>, host: string | null = null): Promise<void> {
    const normaliser = this.#open(name, host);
    for await (const chunk of chunks) {
      this.source = name;
      if (typeof chunk === "string") normaliser.pushText(chunk); else normaliser.push(chunk);
    }
    this.#close(normaliser);
  }

  #open(name: string, host: string | null): Normaliser {
    this.source = name;
    this.#followers = [];
    return new Normaliser((record) => { this.#one(record); }, { host });
  }

  #close(normaliser: Normaliser): void {
    normaliser.end();
    this.lines += normaliser.lines;
    this.droppedChars += normaliser.droppedChars;
    for (const w of WATCHERS) w.sourceEnd?.(this);
  }

  #one(record: LogRecord): void {
    this.records++;
    if (record.clock === "uptime" || record.tag === "kernel") this.#kernel();
    this.#record = record;
    if (this.#hitThisRecord.size > 0) this.#hitThisRecord.clear();
    if (this.#followers.length > 0) this.#runFollowers(record);
    const kind = this.#kinds.of(record.text);
    if (kind === null) return;
    const { text, matches, watchers, against } = kind;
    for (let k = 0; k < against.length; k++) this.contrary.note(against[k]!, record, text, this.source);
    for (let k = 0; k < watchers.length; k++) {
      const watcher = watchers[k]!;
      if (!watcher.plainOnly || !record.stamped) watcher.line!(this, record, text);
    }
    for (let k = 0; k < matches.length; k++) {
      const { rule, severity, params, device } = matches[k]!;
      // Daemons that have nothing to do with transfers lose connections too.
      if (record.tag !== null && rule.id.startsWith("nccl.") && UNRELATED.test(record.tag)) continue;
      this.hit(rule.id, record, { device, severity, params });
    }
    if (kind.suppressed) this.#suppress(record, text);
    if (this.#hitThisRecord.size > 0) return;
    if (kind.failure) this.#failureWords(record);
    if (kind.complaint && this.complaints.length < EVIDENCE_PER_GROUP && !NO_FAILURE.test(text)) this.complaints.push({ source: this.source, line: quoteLine(record.raw, 300), lineNumber: record.line, meaning: COMPLAINT });
  }

  #kernel(): void { if (!this.seen.has("kernel_log")) this.seen.add("kernel_log"); }

  #runFollowers(record: LogRecord): void {
    const now = this.#followers;
    this.#followers = [];
    for (const f of now) {
      const goOn = f.watcher.follow!(this, record, collapse(record.text));
      if (goOn && f.left > 1 && !this.#followers.some((x) => x.watcher === f.watcher)) this.#followers.push({ watcher: f.watcher, left: f.left - 1 });
    }
  }

  /** Gives the watcher the next lines, up to `lines`, until it declines. */
  follow(watcher: Watcher, lines: number): void {
    this.#followers = this.#followers.filter((f) => f.watcher !== watcher);
    this.#followers.push({ watcher, left: lines });
  }

  of<T>(key: string, make: () => T): T {
    let value = this.state.get(key) as T | undefined;
    if (value === undefined) { value = make(); this.state.set(key, value); }
    return value;
  }

  /** Records one occurrence of a class at a line. `device` undefined: the device that the line names; null: none. */
  hit(cls: string, record: LogRecord, options: HitOptions = {}): Group | null {
    if (this.#record === record && this.#hitThisRecord.has(cls)) return null;
    this.#hitThisRecord.add(cls);
    const rule = ruleOf(cls);
    const text = record.text;
    const last = this.#recent.get(cls);
    // In a flood of one fault of the whole node, whose line it is does not matter any more.
    const flood = rule.perNode === true && last !== undefined && last.host === record.host && last.hits > DETAILED_HITS;
    const asked = options.device;
    const named = flood ? null : asked === undefined ? findBdf(text) ?? findRdmaDevice(text) : typeof asked === "function" ? asked() : asked;
    const device = named === null ? null : canonical(cls, named);
    const group = this.#group(cls, rule.perNode ? null : groupKey(cls, device), record.host, options.severity ?? rule.severity);
    if (device !== null && group.devices.size < 64) group.devices.add(device);
    group.count += (options.count ?? 1) * record.repeat;
    if (options.severity) group.severity = group.hits === 0 ? options.severity : worse(group.severity, options.severity);
    if (record.time !== null && record.clock !== null) {
      group.first ??= { time: record.time, clock: record.clock };
      if (group.last === null) group.last = { time: record.time, clock: record.clock };
      else { group.last.time = record.time; group.last.clock = record.clock; }
    }
    this.#lastGroup = group;
    // A flood repeats itself: values and quotes come from its first occurrences.
    if (++group.hits > DETAILED_HITS) return group;
    if (options.params) for (const [k, v] of Object.entries(options.params)) if (v !== undefined && k !== "dev") group.params[k] = typeof v === "string" ? quoteLine(v, 160) : v;
    if (group.evidence.length < EVIDENCE_PER_GROUP) {
      const line = quoteLine(record.raw);
      if (!group.evidence.some((e) => e.line === line)) group.evidence.push({ source: this.source, line, lineNumber: record.line, meaning: options.meaning ?? meaningOf(cls, group.params) });
    }
    return group;
  }

  /** Raises a class from values rather than from one line. */
  raise(cls: string, options: Omit<HitOptions, "device"> & { device?: string | null; host?: string | null; records?: readonly { record: LogRecord; source: string }[]; lines?: readonly { source: string; line: string }[]; checked?: readonly Text[]; against?: readonly { source: string; line: string }[] }): Group {
    const rule = ruleOf(cls);
    const device = options.device ? canonical(cls, options.device) : null;
    const group = this.#group(cls, rule.perNode ? null : groupKey(cls, device), options.host ?? options.records?.[0]?.record.host ?? null, options.severity ?? rule.severity);
    if (device !== null && group.devices.size < 64) group.devices.add(device);
    group.count += options.count ?? 1;
    if (options.severity) group.severity = group.hits++ === 0 ? options.severity : worse(group.severity, options.severity);
    for (const { record } of options.records ?? []) if (record.time !== null && record.clock !== null) {
      group.first ??= { time: record.time, clock: record.clock };
      group.last = { time: record.time, clock: record.clock };
    }
    if (options.params) for (const [k, v] of Object.entries(options.params)) if (v !== undefined) group.params[k] = typeof v === "string" ? quoteLine(v, 160) : v;
    for (const { record, source } of options.records ?? []) if (group.evidence.length < EVIDENCE_PER_GROUP) group.evidence.push({ source, line: quoteLine(record.raw), lineNumber: record.line, meaning: options.meaning ?? meaningOf(cls, group.params) });
    for (const { source, line } of options.lines ?? []) if (group.evidence.length < EVIDENCE_PER_GROUP) group.evidence.push({ source, line: quoteLine(line), lineNumber: null, meaning: options.meaning ?? meaningOf(cls, group.params) });
    if (options.checked) group.checked.push(...options.checked);
    for (const { source, line } of options.against ?? []) if (group.against.length < EVIDENCE_PER_GROUP) group.against.push({ source, line: quoteLine(line), lineNumber: null, meaning: null });
    return group;
  }

  #group(cls: string, device: string | null, host: string | null, severity: Severity): Group {
    const last = this.#recent.get(cls);
    if (last !== undefined && last.host === host && last.device === device) return last;
    let key = `${cls}\u0000${host ?? ""}\u0000${device ?? ""}`;
    let group = this.groups.get(key);
    if (!group && this.groups.size >= MAX_GROUPS) { key = cls; device = null; host = null; group = this.groups.get(key); }
    if (!group) {
      group = { class: cls, host, device, devices: new Set(), severity, count: 0, hits: 0, suppressed: 0, first: null, last: null, evidence: [], params: {}, checked: [], against: [], consequenceOf: null, order: this.#order++ };
      this.groups.set(key, group);
    }
    this.#recent.set(cls, group);
    return group;
  }

  groupsOf(cls: string): Group[] {
    return [...this.groups.values()].filter((g) => g.class === cls);
  }
  has(...classes: string[]): boolean {
    for (const g of this.groups.values()) if (classes.includes(g.class)) return true;
    return false;
  }
  drop(cls: string): void {
    this.#lastGroup = null;
    this.#recent.clear();
    for (const [key, g] of this.groups) if (g.class === cls) this.groups.delete(key);
  }
  rename(group: Group, cls: string, severity: Severity): void {
    this.#lastGroup = null;
    this.#recent.clear();
    for (const [key, g] of this.groups) if (g === group) this.groups.delete(key);
    group.class = cls;
    group.severity = severity;
    const key = `${cls}\u0000${group.host ?? ""}\u0000${group.device ?? ""}`;
    const there = this.groups.get(key);
    if (there) { there.count += group.count; return; }
    this.groups.set(key, group);
  }

  #suppress(record: LogRecord, text: string): void {
    const m = /([\w.<>-]{1,60}): (\d{1,12}) callbacks suppressed/.exec(text);
    if (m && this.#suppressed.length < 1000) { this.#suppressed.push({ name: m[1]!, count: Number(m[2]), host: record.host }); this.#attribute(this.#suppressed.length - 1, this.#lastGroup); }
  }

  #attribute(index: number, preceding: Group | null): void {
    const s = this.#suppressed[index]!;
    const owner = SUPPRESSED_OWNER[s.name];
    if (!owner && preceding) { preceding.suppressed += s.count; s.count = 0; }
  }

  /** Names of rate-limited functions say whose count grows; the rest went to the message before. */
  settleSuppressed(): void {
    for (const s of this.#suppressed) {
      if (s.count === 0) continue;
      const owners = SUPPRESSED_OWNER[s.name] ?? [];
      const group = [...this.groups.values()].find((g) => owners.includes(g.class) && (s.host === null || g.host === s.host));
      if (group) group.suppressed += s.count;
      s.count = 0;
    }
  }

  #failureWords(record: LogRecord): void {
    const t = record.text;
    // The kernel's own wording has classes; a program's failure without one is what may point elsewhere.
    const kernel = record.tag === "kernel" || record.clock === "uptime" || record.clock === "relative";
    if (t.length < 6 || UNRELATED.test(record.tag ?? "") || (kernel && !CRASH.test(t) && !KERNEL_CRASH.test(t)) || !FAILURE.test(t) || NO_FAILURE.test(t)) return;
    this.unexplainedCount++;
    if (PLAIN_FAILURE.test(t)) this.plainFailures++;
    if (this.unexplained.length < 8) this.unexplained.push({ source: this.source, line: quoteLine(record.raw, 300), lineNumber: record.line });
  }
}

/** Modules by their name in the kernel, devices by their usual one. */
function canonical(cls: string, name: string): string {
  if (!cls.startsWith("module.")) return normaliseDevice(name);
  const base = name.slice(name.lastIndexOf("/") + 1).replace(/\.ko(?:\.[gx]z|\.zst)?$/, "");
  return /^[0-9a-f]{4}:/.test(base) ? normaliseDevice(base) : base.replaceAll("-", "_");
}

/** The functions of one graphics card die together: one finding. */
function groupKey(cls: string, device: string | null): string | null {
  return cls.startsWith("gpu.") || cls === "pcie.device_gone" ? slotOf(device) ?? device : device;
}

const SUPPRESSED_OWNER: Readonly<Record<string, readonly string[]>> = {
  dmar_fault: ["iommu.dmar_fault", "iommu.dmar_boot_transient"], mlx5_cmd_out_err: ["rdma.mkey_limit", "rdma.fw_cmd_status", "rdma.fw_access_reg_restricted"],
  create_mkey_warn: ["rdma.mkey_limit"], mlx5_poll_one: ["rdma.wc_flush", "rdma.wc_retry_exc"], amd_iommu_report_page_fault: ["iommu.amdvi_io_page_fault"],
  aer_print_error: ["pcie.aer_corrected", "pcie.aer_nonfatal"], pcie_print_tlp_log: ["pcie.aer_nonfatal"],
};
/** Services whose complaints say nothing of transfers. */
const UNRELATED = /^(?:sshd|cron|crond|snapd|sudo|su|dbus|dbus-daemon|polkitd|networkmanager|systemd-resolved|systemd-logind|avahi-daemon|pulseaudio|pipewire|gdm\S{0,20}|gnome\S{0,40}|cupsd?|rsyslogd|dhclient|udisksd|packagekitd?|fwupd|colord|bluetoothd|wpa_supplicant|unattended-upgr\S{0,10}|postfix\S{0,20}|sssd\S{0,20}|pam_\S{0,20}|apt\S{0,20}|motd\S{0,20}|xdg\S{0,40}|tracker\S{0,30}|thermald|irqbalance|multipathd|smartd|ModemManager|accounts-daemon|named|nginx|apache2)$/i;
/** A program that crashed inside a library of the data path. */
const CRASH = /segfault at .{1,120} in lib(?:nccl|mlx|ibverbs|rdmacm|cuda|uc[pts]|fabric|mpi|torch|stepccl)/;
/** The kernel itself failed: no class of transfers, and not "healthy" either. */
const KERNEL_CRASH = /BUG: |kernel BUG at|Oops: |Kernel panic|general protection fault|soft lockup|hard LOCKUP|blocked for more than \d+ seconds/;
const COMPLAINT: Text = ["This line speaks of a failure and fits no known fault.", "该行提到失败，但不符合任何已知故障。"];
const FAILURE = /\b(?:fatal|panic|exception|traceback|aborted|core dumped|segfault|NCCL WARN|UCX\s+ERROR|Call Trace|MPI_ERRORS_ARE_FATAL|non-zero status: [1-9]\d{0,3} \w|NULL value|BUG:|kernel BUG|runtime ?error|Unable to Connect the HCA|Failed to modify QP|failed in (?:dsa|iax)\d|Error enabling wq|enabled 0 (?:wq|device)\(s\))(?:\b|$)|^\s{0,8}(?:\w{1,30}: ?)?ERROR\b(?! Correction)|^Error\b(?! Correction)|Oops: |general protection fault|soft lockup|blocked for more than \d/i;
const PLAIN_FAILURE = /NCCL WARN|UCX\s+ERROR|MPI_ERRORS_ARE_FATAL|non-zero status: [1-9]/;
const NO_FAILURE = /NCCL WARN (?:Call to ibv_open_device failed\s*$|NET\/IB ?: ?Unable to open device)|WARN Missing ".{1,80}" from (?:kernel command line|environment)|unable to assign EP name for pkey|non-?fatal|level=(?:info|debug|warn)|CANCELLED AT|Job step aborted|0 errors|no error|exceptions?: 0|fatal:? 0\b|exception handl|ncclInternalError\||could not (?:insert|load) .{1,120}: File exists/i;
