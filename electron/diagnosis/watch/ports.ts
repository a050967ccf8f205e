import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";
import type { Text } from "../types.js";
import type { Seen, Watcher } from "./watcher.js";

export interface Port {
  device: string | null;
  port: number;
  host: string | null;
  state: "down" | "init" | "armed" | "active" | null;
  phys: "polling" | "disabled" | "linkup" | "other" | null;
  layer: "ethernet" | "infiniband" | null;
  lid: number | null;
  smLid: number | null;
  rateGbps: number | null;
  rateText: string | null;
  width: number | null;
  model: string | null;
  netdev: string | null;
  portGuidZero: boolean;
  activeMtu: number | null;
  seen: Seen;
  command: string;
}

export function portsOf(scan: Scan): Port[] { return scan.of<Port[]>("ports", () => []); }

/** Soft devices print a made-up rate and have no LID. */
export function isSoft(device: string | null): boolean { return device !== null && /^(?:rxe|siw)/.test(device); }

interface Context { device: string | null; model: string | null; port: Port | null; command: string; portNumber: number }
const MAX_PORTS = 20000;

function context(scan: Scan): Context { return scan.of<Context>("port_context", () => ({ device: null, model: null, port: null, command: "", portNumber: 1 })); }

function open(scan: Scan, record: LogRecord, device: string | null, port: number, command: string): Port | null {
  const ports = portsOf(scan);
  if (ports.length >= MAX_PORTS) return null;
  scan.seen.add("rdma_ports");
  const c = context(scan);
  const p: Port = { device, port, host: record.host, state: null, phys: null, layer: null, lid: null, smLid: null, rateGbps: null, rateText: null, width: null, model: c.device === device ? c.model : null, netdev: null, portGuidZero: false, activeMtu: null, seen: { record, source: scan.source }, command };
  ports.push(p);
  c.port = p;
  return p;
}

function stateOf(text: string): Port["state"] {
  const t = text.toLowerCase();
  return t.includes("active") ? "active" : t.includes("init") ? "init" : t.includes("armed") ? "armed" : t.includes("down") ? "down" : null;
}
function physOf(text: string): Port["phys"] {
  const t = text.toLowerCase().replace(/[ _]/g, "");
  return t.includes("polling") ? "polling" : t.includes("disable") ? "disabled" : t.includes("linkup") ? "linkup" : t === "" ? null : "other";
}
function layerOf(text: string): Port["layer"] {
  const t = text.toLowerCase();
  return t.includes("ethernet") ? "ethernet" : t.includes("infiniband") ? "infiniband" : null;
}
function numberOf(text: string): number | null {
  const m = /^(0x[0-9a-f]{1,8}|\d{1,9})\b/i.exec(text);
  return m ? Number(m[1]) : null;
}

const KEYED = /^([A-Za-z][A-Za-z_ ]{1,24}?) ?[:=] ?(.{0,200})$/;

/** ibstat, ibstatus, ibv_devinfo and opainfo: blocks of keys and values under a device and a port. */
const keyed: Watcher = {
  id: "ports",
  triggers: ["port info: lid", "state", "rate:", " lid", "lid:", "link layer", "link_layer", "ca '", "hca_id", "infiniband device '", "port guid", "active_mtu", "port:", "port 1", "port 2", "ca type", "linkwidth", "active_width", "portstate", "speed :"],
  plainOnly: true,
  line(scan, record, raw) {
    const text = raw.trim();
    const c = context(scan);
    let m: RegExpExecArray | null;
    if ((m = /^CA '([^']{1,40})'/.exec(text))) { c.device = m[1]!; c.model = null; c.port = null; c.command = "ibstat"; scan.seen.add("rdma_ports"); return; }
    if ((m = /^hca_id: ?(\S{1,40})/.exec(text))) { c.device = m[1]!; c.model = null; c.port = null; c.command = "ibv_devinfo"; scan.seen.add("rdma_ports"); return; }
    if ((m = /^Infiniband device '([^']{1,40})' port (\d+) status/i.exec(text))) { c.device = m[1]!; c.model = null; c.command = "ibstatus"; open(scan, record, m[1]!, Number(m[2]), "ibstatus"); return; }
    if ((m = /^([a-z]\w{2,30}):(\d) PortGID:/i.exec(text))) { c.device = m[1]!; c.command = "opainfo"; const p = open(scan, record, m[1]!, Number(m[2]), "opainfo"); if (p) p.layer = null; return; }
    if ((m = /^Port (\d{1,3}):$/i.exec(text)) || (m = /^port: ?(\d{1,3})$/i.exec(text))) { open(scan, record, c.device, Number(m[1]), c.command || "ibstat"); return; }
    if ((m = /^# (?:Port info: )?.{0,20}\bLid (\d{1,5}) port (\d{1,3})/i.exec(text))) { const p = open(scan, record, `lid ${m[1]}`, Number(m[2]), "ibportstate"); if (p) p.layer = "infiniband"; return; }
    if ((m = /^(Link|PhysLink)State:\.{1,60}(\w+)/.exec(text)) && c.port) { if (m[1] === "Link") { c.port.state = stateOf(m[2]!); c.port.seen = { record, source: scan.source }; } else c.port.phys = physOf(m[2]!); return; }
    if ((m = /^CA type: ?(\S{1,40})/.exec(text))) { c.model = m[1]!; return; }
    if (!(m = KEYED.exec(text)) || !c.port) return;
    const p = c.port;
    const value = m[2]!.trim();
    switch (m[1]!.trim().toLowerCase()) {
      case "state": case "portstate": { const s = stateOf(value); if (s) { p.state = s; p.seen = { record, source: scan.source }; } break; }
      case "physical state": case "phys state": case "phys_state": p.phys = physOf(value.replace(/^\d+: ?/, "")); break;
      case "rate": p.rateText = value; p.rateGbps = Number(/^([\d.]{1,8})/.exec(value)?.[1] ?? NaN) || null; p.width = Number(/\((\d+)X/.exec(value)?.[1] ?? NaN) || null; break;
      case "base lid": case "port_lid": p.lid = numberOf(value); break;
      case "sm lid": case "sm_lid": p.smLid = numberOf(value); break;
      case "link layer": case "link_layer": p.layer = layerOf(value); break;
      case "port guid": p.portGuidZero = /^0x0{8,16}$/.test(value); break;
      case "active_mtu": p.activeMtu = numberOf(value); break;
      case "active_width": p.width = numberOf(value.replace(/x/i, " ")); break;
      default:
    }
  },
  sourceEnd(scan) { scan.state.delete("port_context"); },
  end: judge,
};

/** rdma link, ibdev2netdev, lshca rows and sysfs: one port a line. */
const lines: Watcher = {
  id: "port_lines",
  triggers: ["physical_state", " state ", "==>", "/ports/", "linkwidthactive", "could be", " | "],
  plainOnly: true,
  line(scan, record, raw) {
    const text = raw.trim();
    let m: RegExpExecArray | null;
    if ((m = /^(?:link |\d+\/\d+: ?)([\w.-]{1,40})\/(\d{1,3}):? (.{0,300})$/.exec(text))) {
      const rest = m[3]!;
      if (!/\bstate /.test(rest)) return;
      const p = open(scan, record, m[1]!, Number(m[2]), "rdma link");
      if (!p) return;
      p.state = stateOf(/\bstate (\w+)/.exec(rest)?.[1] ?? "");
      p.phys = physOf(/physical_state (\w+)/.exec(rest)?.[1] ?? "");
      p.netdev = /netdev (\S{1,40})/.exec(rest)?.[1] ?? null;
      const lid = /\blid (\d+)/.exec(rest);
      p.lid = lid ? Number(lid[1]) : null;
      p.smLid = Number(/sm_lid (\d+)/.exec(rest)?.[1] ?? NaN) || null;
      p.layer = lid || rest.includes("subnet_prefix") ? "infiniband" : "ethernet";
      return;
    }
    if ((m = /^(\S{1,40}) port (\d+) ==> (\S{1,40}) \((\w+)\)/.exec(text))) {
      const known = portsOf(scan).find((p) => p.device === m![1] && p.port === Number(m![2]) && p.host === record.host);
      if (known) known.netdev = m[3]!;
      else { const p = open(scan, record, m[1]!, Number(m[2]), "ibdev2netdev"); if (p) { p.netdev = m[3]!; p.state = /up/i.test(m[4]!) ? "active" : "down"; } }
      return;
    }
    if ((m = /\/infiniband\/([\w.-]{1,40})\/ports\/(\d+)\/(state|phys_state|link_layer|rate|lid|sm_lid):(.{1,60})$/.exec(text))) {
      const p = portsOf(scan).find((x) => x.device === m![1] && x.port === Number(m![2]) && x.host === record.host && x.command === "sysfs") ?? open(scan, record, m[1]!, Number(m[2]), "sysfs");
      if (!p) return;
      const value = m[4]!.trim();
      if (m[3] === "state") p.state = stateOf(value);
      else if (m[3] === "phys_state") p.phys = physOf(value.replace(/^\d+: ?/, ""));
      else if (m[3] === "link_layer") p.layer = layerOf(value);
      else if (m[3] === "lid") p.lid = numberOf(value);
      else if (m[3] === "sm_lid") p.smLid = numberOf(value);
      else { p.rateText = value; p.rateGbps = Number(/^([\d.]{1,8})/.exec(value)?.[1] ?? NaN) || null; }
      return;
    }
    if (/could be [\d.]+/i.test(text) && /Active|LinkUp|==>/i.test(text)) { scan.hit("link.rate_degraded", record, {}); return; }
    const dev = /\b((?:mlx[45]_\d+|ibp\w{2,16}|rocep\w{2,16}|bnxt_re\d+))\b/.exec(text);
    if (dev && text.includes("|")) row(scan, record, text, dev[1]!);
  },
};

function row(scan: Scan, record: LogRecord, text: string, device: string): void {
  const cells = text.split("|").map((c) => c.trim().toLowerCase());
  const state = cells.map((c) => (/^(?:actv|active|init|initializing|down|armed|port_active|port_init|port_down)$/.test(c) ? c : "")).find((c) => c !== "");
  if (!state) return;
  const p = open(scan, record, device, 1, "lshca");
  if (!p) return;
  p.state = state === "actv" ? "active" : stateOf(state);
  p.layer = cells.some((c) => c === "ib" || c === "infiniband") ? "infiniband" : cells.some((c) => c === "eth" || c === "ethernet") ? "ethernet" : null;
  p.phys = p.state === "down" ? "polling" : "linkup";
}

function judge(scan: Scan): void {
  const byHost = new Map<string, Port[]>();
  for (const p of portsOf(scan)) { const key = p.host ?? ""; byHost.set(key, [...(byHost.get(key) ?? []), p]); }
  for (const ports of byHost.values()) judgeHost(scan, merge(ports));
}

/** One port may be told by several commands. */
function merge(ports: readonly Port[]): Port[] {
  const out = new Map<string, Port>();
  let unnamed = 0;
  for (const p of ports) {
    const key = p.device === null ? `?${unnamed++}` : `${p.device}/${p.port}`;
    const there = out.get(key);
    if (!there) { out.set(key, { ...p }); continue; }
    for (const k of ["state", "phys", "layer", "lid", "smLid", "rateGbps", "rateText", "width", "model", "netdev", "activeMtu"] as const) {
      if (there[k] === null && p[k] !== null) (there as unknown as Record<string, unknown>)[k] = p[k];
    }
    there.portGuidZero ||= p.portGuidZero;
  }
  return [...out.values()];
}

/** A subnet manager knows this InfiniBand port. */
const addressed = (p: Port): boolean => p.layer === "infiniband" && p.lid !== null && !unassigned(p.lid) && p.smLid !== null && p.smLid > 0;
const unassigned = (lid: number | null): boolean => lid === 0 || lid === 65535;

function judgeHost(scan: Scan, ports: Port[]): void {
  const active = ports.filter((p) => p.state === "active" || p.state === "armed");
  const alive = ports.filter((p) => p.state === "active" || p.state === "armed" || p.state === "init");
  const asleep = ports.filter((p) => p.phys === "disabled" && p.layer === "infiniband" && unassigned(p.lid));
  const vfTalk = scan.state.get("vf_talk") === true;
  let unused: Port | null = null;
  for (const p of ports) {
    const options = { device: p.device, records: [p.seen], params: { port: p.port, netdev: p.netdev ?? undefined } };
    if (p.state === "down" || (p.state === null && (p.phys === "polling" || p.phys === "disabled"))) {
      const sisters = active.filter((a) => a.layer === p.layer || a.layer === null || p.layer === null);
      if (p.phys === "disabled") {
        // Several sleeping ports without an address beside a working one are virtual; a single one is a port that nobody uses.
        const virtual = asleep.includes(p) && (vfTalk || (sisters.length > 0 && asleep.length > 1));
        if (virtual || sisters.length === 0) scan.raise(virtual ? "link.vf_down_no_guid" : "link.disabled", options);
        unused ??= p;
      } else if (p.phys === "polling" || p.phys === null) {
        if (alive.length === 0 && p.command !== "ibdev2netdev") scan.raise("link.down_polling", { ...options, checked: p.device === null ? [["The excerpt names no adapter.", "摘录中没有网卡名称。"]] as Text[] : [] });
        else if (addressed(p)) scan.raise("link.down_polling", { ...options, checked: [["It still has the LID that a subnet manager gave it: it was in use.", "仍保留子网管理器分配的 LID：之前在使用。"]] });
        else if (active.length >= 7 && ports.length - active.length === 1 && p.model !== null) scan.raise("link.down_polling", { ...options, severity: "medium" });
        else unused ??= p;
      } else if (p.phys === "linkup" && p.layer === "infiniband" && unassigned(p.lid)) scan.raise("link.vf_down_no_guid", options);
      else unused ??= p;
      continue;
    }
    if (p.state === "init" && p.layer !== "ethernet" && p.phys !== "polling") {
      scan.raise("link.init_no_sm", options);
      if (unassigned(p.lid) && p.layer === "infiniband") scan.raise("link.lid_unassigned", options);
      continue;
    }
    if (p.state !== "active" && p.state !== "armed") continue;
    if (p.layer === "infiniband" && unassigned(p.lid) && p.command !== "opainfo") scan.raise("link.lid_unassigned", options);
    if (p.layer === "ethernet" && p.lid !== null && p.lid > 0 && p.lid < 65535) scan.raise("roce.lid_nonzero_on_ethernet", options);
    if (isSoft(p.device)) continue;
    const comparable = active.filter((a) => a !== p && a.rateGbps !== null && a.layer === p.layer && !isSoft(a.device) && (p.layer === "infiniband" || (p.model !== null && a.model === p.model)));
    const best = Math.max(0, ...comparable.map((a) => a.rateGbps!));
    const narrow = p.layer === "infiniband" && p.width !== null && p.width < 4;
    if (narrow || (p.rateGbps !== null && best > 0 && p.rateGbps < best)) {
      scan.raise("link.rate_degraded", { ...options, params: { ...options.params, rate: p.rateText ?? p.rateGbps ?? undefined, best: best || undefined } });
    }
  }
  if (unused) scan.raise("link.unused_port_down", { device: unused.device, records: [unused.seen], params: { port: unused.port } });
}

const vfTalk: Watcher = {
  id: "vf_talk",
  triggers: ["virt_enabled", "vf 0", "node_guid", "link-state auto", "link-state disable", "sr-iov", "sriov"],
  line(scan, _record, text) { if (!/hca_id|node_guid: ?\w{4}:|GUID: 0x/i.test(text) || /virt_enabled|vf \d/.test(text)) if (/virt_enabled|\bvf \d|sr-?iov/i.test(text)) scan.state.set("vf_talk", true); },
};

const partialVfs: Watcher = {
  id: "partial_vfs",
  triggers: ["failed to open device", "unable to open device", "net/ib"],
  line(scan, record, text) {
    if (/NET\/IB ?: ?Using \[\d+\]\w/.test(text)) { scan.state.set("opened_by_nccl", true); return; }
    if (/^Failed to open device|NET\/IB ?: ?Unable to open device/i.test(text.trim())) { const l = scan.of<Seen[]>("unopened", () => []); if (l.length < 64) l.push({ record, source: scan.source }); scan.state.set("unopened_count", ((scan.state.get("unopened_count") as number | undefined) ?? 0) + 1); }
  },
  end(scan) {
    const l = scan.of<Seen[]>("unopened", () => []);
    if (l.length === 0) return;
    const active = portsOf(scan).find((p) => p.state === "active");
    const count = (scan.state.get("unopened_count") as number | undefined) ?? l.length;
    if (active || scan.state.get("opened_by_nccl") === true) scan.raise("perm.container_partial_vfs", { device: active?.device, records: [l[0]!], count });
    else scan.raise("perm.uverbs_denied", { records: l.slice(0, 2), count });
  },
};

const perftestHeader: Watcher = {
  id: "perftest_header",
  triggers: ["local address: lid", "link type", "transport type"],
  plainOnly: true,
  line(scan, record, text) {
    scan.seen.add("perf_tool");
    const link = /Link type ?: ?(\w+)/i.exec(text);
    if (link) { scan.state.set("perftest_link", link[1]!.toLowerCase()); return; }
    const device = /\bDevice ?: ?(\S{1,40})/.exec(text);
    if (device) scan.state.set("perftest_device", device[1]);
    const lid = /local address: LID (0x[0-9a-f]+|\d+)/i.exec(text);
    if (lid && Number(lid[1]) > 0 && scan.state.get("perftest_link") === "ethernet") scan.hit("roce.lid_nonzero_on_ethernet", record, { device: (scan.state.get("perftest_device") as string | undefined) ?? null });
  },
};

const sminfo: Watcher = {
  id: "sminfo",
  triggers: ["sminfo_master", "sminfo:"],
  plainOnly: true,
  line(scan, record, text) {
    const m = /sm lid (\d+) sm guid (0x[0-9a-f]+)/i.exec(text);
    if (!m) return;
    scan.seen.add("rdma_ports");
    const masters = scan.of("sm_masters", () => new Map<string, Seen>());
    if (/MASTER/i.test(text) && masters.size < 64) masters.set(m[2]!, { record, source: scan.source });
  },
  end(scan) {
    const masters = scan.of("sm_masters", () => new Map<string, Seen>());
    if (masters.size > 1) scan.raise("ib.sm_conflict", { records: [...masters.values()].slice(0, 3), count: masters.size });
  },
};

/** The partition keys of a port: the first is what libraries take; without the high bit it is limited membership. */
const pkeys: Watcher = {
  id: "pkeys",
  triggers: ["/pkeys/", "pkey["],
  plainOnly: true,
  line(scan, record, text) {
    const m = /\/infiniband\/([\w.-]{1,40})\/ports\/\d+\/pkeys\/(\d{1,3}):? ?0x([0-9a-f]{1,4})$/i.exec(text.trim()) ?? /()pkey\[ ?(\d{1,3})\]:? ?0x([0-9a-f]{1,4})/i.exec(text);
    if (m && Number(m[2]) === 0) scan.of("pkey_zero", () => new Map<string, { key: number; seen: Seen }>()).set(`${record.host ?? ""}|${m[1]}`, { key: parseInt(m[3]!, 16), seen: { record, source: scan.source } });
  },
  end(scan) {
    if (!scan.has("rdma.wc_retry_exc", "rdma.qp_rtr_timeout", "nccl.connect_timeout", "rdma.qp_einval")) return;
    for (const [key, { key: value, seen }] of scan.of("pkey_zero", () => new Map<string, { key: number; seen: Seen }>())) {
      if ((value & 0x8000) !== 0) continue;
      scan.raise("ib.pkey_mismatch", { device: key.slice(key.indexOf("|") + 1) || null, records: [seen], meaning: value === 0 ? ["index 0 holds no key", "索引 0 没有键"] : ["limited membership: two limited members cannot speak to each other", "受限成员：两个受限成员之间无法通信"] });
    }
  },
};

export const portWatchers: readonly Watcher[] = [vfTalk, pkeys, perftestHeader, sminfo, keyed, lines, partialVfs];
