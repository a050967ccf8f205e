import type { CollectedSources } from "./collect.js";
import type { Scan } from "./scan.js";
import type { SourceId } from "./sources.js";
import type { Mend, Text } from "./types.js";

/** A node as it was read, and what else the console knows of it. */
export interface LiveNode {
  nodeId: string;
  name: string;
  dataAddress: string | null;
  collected: CollectedSources;
  /** GID index that the cluster's membership names for this node; null = not set. */
  gidIndex: number | null;
  /** Interface of the data address as the membership has it: known even when the device under it is gone. */
  netdev?: string | null;
}

/** Text of a source that could be read; undefined = unknown, never "fine". */
function text(node: LiveNode, id: SourceId): string | undefined {
  const source = node.collected.get(id);
  return source?.view.state === "ok" ? source.text : undefined;
}
function lines(node: LiveNode, id: SourceId): string[] | undefined {
  return text(node, id)?.split("\n").map((l) => l.trim()).filter((l) => l !== "").slice(0, 20_000);
}
function properties(rows: readonly string[] | undefined): Map<string, string> {
  return new Map((rows ?? []).flatMap((l) => { const at = l.indexOf("="); return at > 0 ? [[l.slice(0, at), l.slice(at + 1)] as const] : []; }));
}

/** Checks over values: the driver, the daemon, the data interface, its RDMA device and GID. Raises findings in `scan`. */
export function nodeChecks(scan: Scan, node: LiveNode): void {
  driver(scan, node);
  deviceMode(scan, node);
  service(scan, node);
  stopped(scan, node);
  dataInterface(scan, node);
  firewall(scan, node);
  peers(scan, node);
  shaping(scan, node);
}

function driver(scan: Scan, node: LiveNode): void {
  const loaded = lines(node, "modules");
  const kernel = text(node, "kernel")?.trim();
  const info = lines(node, "module_info");
  const files = lines(node, "module_files");
  if (!loaded) return;
  const isLoaded = loaded.some((l) => /^dma_engine\s/.test(l));
  const vermagic = info?.find((l) => l.startsWith("vermagic:"));
  const built = vermagic?.replace(/^vermagic:\s*/, "").split(" ")[0];
  if (isLoaded) {
    past(scan, ["The module is loaded now: this line is of an earlier attempt.", "模块现已加载：此日志来自之前的尝试。"]);
    const device = text(node, "dma_device");
    if (device !== undefined && /No such file/.test(device)) scan.raise("dma.channel_unavailable", { lines: [{ source: "dma_device", line: device.trim() }], checked: [["The module is loaded; udev did not make the node, or it was removed.", "模块已加载；udev 没有创建节点，或节点被删除。"]] });
    return;
  }
  if (kernel && built && built !== kernel) {
    scan.raise("module.vermagic_mismatch", { device: "dma_engine", params: { built, running: kernel }, lines: [{ source: "module_info", line: vermagic! }, { source: "kernel", line: kernel }], checked: [["modinfo of the file that modprobe would take.", "modprobe 将使用的文件的 modinfo。"]] });
  }
  const here = files && kernel ? files.some((f) => f.startsWith(`/lib/modules/${kernel}/`)) : undefined;
  if (here === false || (here === undefined && info && !vermagic)) {
    past(scan, ["No such module file is there now: this line is of an earlier attempt.", "现在没有该模块文件：此日志来自之前的尝试。"]);
    scan.raise("driver.not_installed", { lines: [{ source: "module_files", line: files && files.length > 0 ? files.slice(0, 3).join(" ") : `no dma_engine.ko under /lib/modules/${kernel ?? ""}` }], checked: [["lsmod, and the module files of every kernel.", "lsmod 以及所有内核的模块文件。"]] });
  } else scan.raise("driver.not_loaded", { lines: [{ source: "modules", line: "lsmod lists no dma_engine" }] });
}

/** What the log says of earlier attempts to load the driver is no fault of now. */
function past(scan: Scan, why: Text): void {
  for (const g of scan.groups.values()) if (g.class.startsWith("module.") && g.device === "dma_engine" && g.class !== "module.taint") { g.severity = "info"; g.checked.push(why); }
}

/** The node must be 0660 root:stepccl: open to ranks, and to nobody else. A closed one is found by the watcher of `ls -l`. */
function deviceMode(scan: Scan, node: LiveNode): void {
  const line = lines(node, "dma_device")?.find((l) => l.startsWith("c"));
  const m = line ? /^c([rwx-]{9})\S? +\d+ (\S+) +(\S+) /.exec(line) : null;
  if (!m || scan.has("perm.dma_device_node")) return;
  if (m[1]!.slice(6) !== "---" || (m[3] !== "stepccl" && m[3] !== "root")) scan.raise("perm.dma_device_node", { device: "/dev/dma_device", lines: [{ source: "dma_device", line: line! }], params: { mode: m[1]!, owner: m[2]!, group: m[3]! }, meaning: ["it should be crw-rw---- root stepccl", "应为 crw-rw---- root stepccl"] });
}

function service(scan: Scan, node: LiveNode): void {
  const rows = lines(node, "service");
  if (!rows) return;
  const p = properties(rows);
  const active = p.get("ActiveState") ?? "";
  const restarts = Number(p.get("NRestarts") ?? 0);
  const words = lines(node, "service_log")?.slice(-3).map((line) => ({ source: "service_log", line })) ?? [];
  const evidence = [{ source: "service", line: rows.join(" ").slice(0, 400) }, ...words];
  const params = { state: active, result: p.get("Result") ?? "", status: p.get("ExecMainStatus") ?? "", restarts };
  if (p.get("LoadState") === "not-found") scan.raise("agent.down", { lines: evidence.slice(0, 1), params: { ...params, state: "not installed" } });
  else if (active === "failed" || (active === "activating" && p.get("Result") !== "success")) scan.raise(restarts >= 2 ? "agent.crash_loop" : "agent.down", { lines: evidence, params });
  else if (active === "inactive" || active === "deactivating") scan.raise("agent.down", { lines: evidence, params });
  else if (active === "active" && restarts >= 3) scan.raise("agent.crash_loop", { lines: evidence, params, severity: "medium", count: restarts });
}

function stopped(scan: Scan, node: LiveNode): void {
  for (const line of lines(node, "processes") ?? []) {
    const m = /^(\d{1,10}) +([A-Z]\S{0,8}) +\d+ +(stepccl\S{0,20})$/.exec(line);
    if (m && (m[2]!.startsWith("T") || m[2]!.startsWith("t"))) scan.raise("host.process_stopped", { lines: [{ source: "processes", line }], params: { pid: m[1]!, program: m[3]! }, meaning: ["state T: stopped by a signal or a debugger", "状态 T：被信号或调试器暂停"] });
  }
}

interface Interface { name: string; mtu: number; up: boolean; line: string }

export function interfaces(node: LiveNode): Interface[] | undefined {
  return lines(node, "ip_link")?.flatMap((line) => {
    const m = /^\d{1,6}: ([^:@\s]{1,32})(?:@[^:\s]{1,32})?: <([A-Z0-9_,-]{0,300})> mtu (\d{1,6}) /.exec(line);
    return m ? [{ name: m[1]!, mtu: Number(m[3]), up: m[2]!.split(",").includes("UP") && !m[2]!.split(",").includes("NO-CARRIER"), line }] : [];
  });
}

/** The interface of the data address; without one, the one under the first RDMA device. */
export function dataInterfaceOf(node: LiveNode): Interface | undefined {
  const all = interfaces(node);
  const address = node.dataAddress;
  const byAddress = address === null ? undefined : lines(node, "ip_addr")?.map((l) => /^\d{1,6}: (\S{1,32}) +inet6? ([0-9a-fA-F.:]{2,45})\//.exec(l)).find((m) => m?.[2] === address)?.[1];
  const byRdma = /netdev (\S{1,32})/.exec(text(node, "rdma_link") ?? "")?.[1];
  const name = byAddress ?? node.netdev ?? byRdma;
  return all?.find((i) => i.name === name);
}

interface GidRow { device: string; port: string; index: number; gid: string; type: string; netdev: string }

function gidRows(node: LiveNode): GidRow[] | undefined {
  const rows = new Map<string, GidRow>();
  const all = lines(node, "gids");
  for (const line of all ?? []) {
    const m = /\/infiniband\/([\w.-]{1,40})\/ports\/(\d+)\/(gids|gid_attrs\/types|gid_attrs\/ndevs)\/(\d+):(.{0,60})$/.exec(line);
    if (!m) continue;
    const key = `${m[1]}/${m[2]}/${m[4]}`;
    const row = rows.get(key) ?? { device: m[1]!, port: m[2]!, index: Number(m[4]), gid: "", type: "", netdev: "" };
    if (m[3] === "gids") row.gid = m[5]!.trim(); else if (m[3] === "gid_attrs/types") row.type = m[5]!.trim(); else row.netdev = m[5]!.trim();
    rows.set(key, row);
  }
  return all ? [...rows.values()] : undefined;
}

/** An IPv4 address as the end of a mapped GID: 10.77.0.1 -> 0a4d:0001. */
function mapped(address: string): string | null {
  const m = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(address);
  if (!m) return null;
  const b = m.slice(1).map((x) => Number(x).toString(16).padStart(2, "0"));
  return `0000:0000:0000:0000:0000:ffff:${b[0]}${b[1]}:${b[2]}${b[3]}`;
}

function dataInterface(scan: Scan, node: LiveNode): void {
  const net = dataInterfaceOf(node);
  const links = lines(node, "rdma_link") ?? lines(node, "rdma_ports");
  // Whoever holds no data address and has no RDMA device has no data network to check.
  const addressGone = node.dataAddress !== null && text(node, "ip_addr") !== undefined && !net;
  const downed = interfaces(node)?.find((i) => !i.up && i.name !== "lo" && (net ? i.name === net.name : lines(node, "rdma_link")?.some((l) => l.includes(`netdev ${i.name}`))));
  if (net && !net.up) scan.raise("host.netdev_down", { device: net.name, lines: [{ source: "ip_link", line: net.line }], params: { netdev: net.name } });
  else if (addressGone && downed) scan.raise("host.netdev_down", { device: downed.name, lines: [{ source: "ip_link", line: downed.line }], params: { netdev: downed.name } });
  if (links === undefined) return;
  const tied = lines(node, "rdma_link");
  const stack = lines(node, "modules")?.some((l) => /^ib_(?:core|uverbs)\s/.test(l));
  if (tied && net && !tied.some((l) => l.includes(`netdev ${net.name}`)) && stack === true) {
    scan.raise("rdma.device_missing", { lines: [{ source: "rdma_link", line: tied[0] ?? "rdma link shows nothing" }, { source: "ip_link", line: net.line }], params: { netdev: net.name } });
    return;
  }
  if (tied && tied.length === 0 && stack === true && !net) scan.raise("rdma.device_missing", { lines: [{ source: "rdma_link", line: "rdma link shows nothing" }] });
  gid(scan, node, net);
}

function gid(scan: Scan, node: LiveNode, net: Interface | undefined): void {
  const rows = gidRows(node);
  const want = node.dataAddress === null ? null : mapped(node.dataAddress);
  const device = net ? new RegExp(`(?:link |: )?([\\w.-]{1,40})/\\d+.{0,200}netdev ${net.name.replace(/[^\w-]/g, ".")}\\b`).exec(text(node, "rdma_link") ?? "")?.[1] : undefined;
  if (!rows || want === null || device === undefined) return;
  const mine = rows.filter((r) => r.device === device);
  const right = mine.find((r) => r.gid === want && /v2/i.test(r.type));
  const show = mine.slice(0, 4).map((r) => ({ source: "gids", line: `${r.device} port ${r.port} index ${r.index} ${r.gid} ${r.type} ${r.netdev}` }));
  if (!right) {
    scan.raise("roce.gid_missing", { device, lines: show.length > 0 ? show : [{ source: "gids", line: `${device}: no GID` }], params: { netdev: net!.name, address: node.dataAddress! } });
    return;
  }
  if (node.gidIndex !== null && node.gidIndex !== right.index) {
    const used = mine.find((r) => r.index === node.gidIndex);
    if (!used || used.gid !== want || !/v2/i.test(used.type)) scan.raise("roce.gid_wrong_index", { device, lines: [{ source: "cluster", line: `gid_index ${node.gidIndex}: ${used ? `${used.gid} ${used.type}` : "empty"}` }, ...show], params: { index: right.index, used: node.gidIndex, strong: 1 }, meaning: [`index ${right.index} holds ${node.dataAddress} as RoCE v2`, `索引 ${right.index} 为 ${node.dataAddress}（RoCE v2）`] });
  }
}

/** Rules that drop what members send each other, and the commands that take exactly those out. */
function firewall(scan: Scan, node: LiveNode): void {
  const rules = lines(node, "firewall");
  if (!rules) return;
  const net = dataInterfaceOf(node);
  const network = node.dataAddress?.split(".").slice(0, 3).join(".");
  let table = "";
  let chain = "";
  const dropping: string[] = [];
  const mend: Mend[] = [];
  for (const line of rules) {
    const t = /^table (ip6?|inet|netdev|bridge|arp) ([\w.-]{1,64}) \{/.exec(line);
    if (t) { table = `${t[1]} ${t[2]}`; continue; }
    const c = /^chain ([\w.-]{1,64}) \{/.exec(line);
    if (c) { chain = c[1]!; continue; }
    if (!/\b(?:drop|reject|DROP|REJECT)\b/.test(line)) continue;
    const policy = /policy drop/.test(line);
    const ours = policy ? /hook input/.test(line) : /4791/.test(line) || (network !== undefined && line.includes(network)) || (net !== undefined && new RegExp(`(?:iifname|-i) "?${net.name.replace(/[^\w-]/g, ".")}\\b`).test(line));
    if (!ours) continue;
    dropping.push(line);
    const handle = /# handle (\d{1,9})$/.exec(line)?.[1];
    if (!policy && handle && table && chain && mend.length < 8) mend.push([`nft delete rule ${table} ${chain} handle ${handle}`, "none", "Take this rule out.", "删除这条规则。"]);
  }
  if (dropping.length === 0) return;
  scan.raise("host.firewall", { lines: dropping.slice(0, 4).map((line) => ({ source: "firewall", line })), count: dropping.length, mend, params: { proved: 1, network: network === undefined ? "NETWORK" : `${network}.0/24` } });
}

export interface PeerAnswer { peer: string; lossPercent: number | null; fullFrame: boolean | null; mtu: number | null; tcpStatus: number | null; lines: string[] }

/** What the source "peers" says of each. */
export function peerAnswers(node: LiveNode): PeerAnswer[] | undefined {
  const rows = lines(node, "peers");
  if (!rows) return undefined;
  const out: PeerAnswer[] = [];
  for (const line of rows) {
    const m = /^peer ([0-9a-fA-F.:]{2,45})$/.exec(line);
    if (m) { out.push({ peer: m[1]!, lossPercent: null, fullFrame: null, mtu: null, tcpStatus: null, lines: [] }); continue; }
    const p = out.at(-1);
    if (!p) continue;
    p.lines.push(line);
    const loss = /, ([\d.]{1,8})% packet loss/.exec(line);
    if (loss) p.lossPercent = Number(loss[1]);
    const frame = /^full frame of (\d+) (passes|does not pass)$/.exec(line);
    if (frame) { p.mtu = Number(frame[1]); p.fullFrame = frame[2] === "passes"; }
    const tcp = /^tcp status (\d+)$/.exec(line);
    if (tcp) p.tcpStatus = Number(tcp[1]);
  }
  return out;
}

/** `timeout` ends with 124 when nothing answered: dropped. Refused would have ended at once. */
const TIMED_OUT = 124;

function peers(scan: Scan, node: LiveNode): void {
  for (const p of peerAnswers(node) ?? []) {
    const show = p.lines.map((line) => ({ source: "peers", line: `${p.peer}: ${line}` }));
    const answers = p.lossPercent !== null && p.lossPercent < 100;
    if (answers && p.tcpStatus === TIMED_OUT) scan.raise("host.firewall", { lines: show, params: { proved: 1, peer: p.peer, network: `${p.peer}/32` }, meaning: ["echoes come back, TCP is dropped", "ping 有应答，而 TCP 被丢弃"], checked: [["Echo requests pass on the same path.", "同一路径上的 ping 正常。"]] });
    // A handful out of sixty may be a busy machine; a lossy link loses more, and in each direction.
    if (answers && p.lossPercent! > 0) scan.raise("rdma.packet_loss_counters", { device: p.peer, lines: show.slice(0, 1), severity: p.lossPercent! > 5 ? "high" : p.lossPercent! >= 3 ? "medium" : "low", params: { lossPercent: p.lossPercent!, peer: p.peer }, meaning: [`${p.lossPercent} % of the echoes to ${p.peer} were lost`, `到 ${p.peer} 的 ping 丢失 ${p.lossPercent} %`] });
    if (answers && p.lossPercent! < 50 && p.fullFrame === false && p.tcpStatus !== TIMED_OUT) scan.raise("host.mtu", { lines: show, params: { peer: p.peer, mtu: p.mtu ?? 0, payload: (p.mtu ?? 1500) - 28 }, meaning: [`frames of ${p.mtu} bytes do not pass, small ones do`, `${p.mtu} 字节的帧无法通过，小帧可以`] });
  }
}

/** Somebody set this node up to lose or delay packets. */
function shaping(scan: Scan, node: LiveNode): void {
  for (const line of lines(node, "qdisc") ?? []) {
    const m = /^qdisc netem \S+ dev (\S{1,32}).*?\bloss (\S{1,16})/.exec(line);
    if (m) scan.raise("rdma.packet_loss_counters", { device: m[1]!, severity: "high", lines: [{ source: "qdisc", line }], params: { netdev: m[1]!, lossPercent: m[2]! }, meaning: [`this node drops ${m[2]} itself`, `本节点自身丢弃 ${m[2]}`] });
  }
}

/** Clocks this far apart break what lives by time: TLS, comparing logs, leases. */
const MAX_SKEW_S = 2;
const FAR_SKEW_S = 60;

/** Checks that hold one node beside the others of the same diagnosis. */
export function memberChecks(scan: Scan, node: LiveNode, others: readonly LiveNode[]): void {
  mtu(scan, node, others);
  clock(scan, node, others);
  const net = dataInterfaceOf(node);
  for (const other of others) {
    // The other side sees this node's filter better than this node itself may show it.
    const seen = peerAnswers(other)?.find((p) => p.peer === node.dataAddress);
    if (seen && seen.lossPercent !== null && seen.lossPercent < 100 && seen.tcpStatus === TIMED_OUT && !scan.has("host.firewall")) {
      scan.raise("host.firewall", { lines: seen.lines.map((line) => ({ source: `peers of ${other.name}`, line })), params: { proved: 1, peer: other.dataAddress ?? other.name, netdev: net?.name ?? "", network: `${other.dataAddress ?? "PEER"}/32` }, meaning: [`${other.name} reaches this node by echo, not by TCP`, `${other.name} 能 ping 通本节点，但 TCP 不通`] });
    }
  }
}

function mtu(scan: Scan, node: LiveNode, others: readonly LiveNode[]): void {
  const mine = dataInterfaceOf(node);
  if (!mine) return;
  const values = others.flatMap((o) => { const i = dataInterfaceOf(o); return i ? [i.mtu] : []; });
  if (values.length === 0) return;
  const counts = new Map<number, number>();
  for (const v of [...values, mine.mtu]) counts.set(v, (counts.get(v) ?? 0) + 1);
  const most = Math.max(...counts.values());
  const usual = [...counts].filter(([, c]) => c === most).map(([v]) => v);
  if (counts.size === 1 || (usual.length === 1 && usual[0] === mine.mtu)) return;
  const target = usual.length === 1 ? usual[0]! : Math.max(...counts.keys());
  if (target === mine.mtu && usual.length > 1) return;
  scan.raise("link.mtu_mismatch", { device: mine.name, lines: [{ source: "ip_link", line: mine.line }], params: { netdev: mine.name, mtu: target, found: mine.mtu, payload: target - 28 }, meaning: [`${mine.mtu} here, ${[...new Set(values)].join(" and ")} on the others`, `本节点 ${mine.mtu}，其他节点 ${[...new Set(values)].join(" 和 ")}`] });
}

/** The node's clock less the console's, by the middle of the command that read it. */
function offset(node: LiveNode): { seconds: number; uncertainty: number } | null {
  const source = node.collected.get("clock");
  const value = text(node, "clock")?.trim();
  if (!source || !value || !/^\d{9,12}\.\d{1,9}$/.test(value)) return null;
  return { seconds: Number(value) - (source.beganAtMs + source.endedAtMs) / 2000, uncertainty: (source.endedAtMs - source.beganAtMs) / 2000 };
}

function clock(scan: Scan, node: LiveNode, others: readonly LiveNode[]): void {
  const mine = offset(node);
  const known = others.flatMap((o) => { const x = offset(o); return x ? [x.seconds] : []; });
  if (!mine || known.length === 0) return;
  const all = [...known, mine.seconds].sort((a, b) => a - b);
  const median = all[Math.floor((all.length - 1) / 2)]!;
  const apart = Math.round((mine.seconds - median) * 10) / 10;
  if (Math.abs(apart) <= MAX_SKEW_S + mine.uncertainty) return;
  scan.raise("host.clock_skew", { lines: [{ source: "clock", line: text(node, "clock")!.trim() }], severity: Math.abs(apart) > FAR_SKEW_S ? "high" : "medium", params: { skewSeconds: apart }, meaning: [`${Math.abs(apart)} s ${apart > 0 ? "ahead of" : "behind"} the others`, `比其他节点${apart > 0 ? "快" : "慢"} ${Math.abs(apart)} 秒`] });
}
