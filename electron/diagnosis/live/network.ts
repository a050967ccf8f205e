import type { Scan } from "../scan.js";
import { dataInterfaceOf, interfaces, lines, text, type Interface, type LiveNode } from "./read.js";

/** Checks of the data interface, its RDMA device and GID, of what filters and shapes, and of the way to each peer. */
export function networkChecks(scan: Scan, node: LiveNode): void {
  dataInterface(scan, node);
  firewall(scan, node);
  peers(scan, node, shaping(scan, node));
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

export interface DroppingRule { table: string; chain: string; handle: string | undefined; policy: boolean; line: string }

/** Rules, and policies of chains, that drop what members send each other. */
export function droppingRules(node: LiveNode): DroppingRule[] {
  const net = dataInterfaceOf(node);
  const network = node.dataAddress?.split(".").slice(0, 3).join(".");
  const mine = net === undefined ? null : new RegExp(`(?:iifname|-i) "?${net.name.replace(/[^\w-]/g, ".")}\\b`);
  let table = "";
  let chain = "";
  return (lines(node, "firewall") ?? []).flatMap((line): DroppingRule[] => {
    const t = /^table (ip6?|inet|netdev|bridge|arp) ([\w.-]{1,64}) \{/.exec(line);
    if (t) { table = `${t[1]} ${t[2]}`; return []; }
    const c = /^chain ([\w.-]{1,64}) \{/.exec(line);
    if (c) { chain = c[1]!; return []; }
    if (!/\b(?:drop|reject|DROP|REJECT)\b/.test(line)) return [];
    const policy = /policy drop/.test(line);
    const ours = policy ? /hook input/.test(line) : /4791/.test(line) || (network !== undefined && line.includes(network)) || mine?.test(line) === true;
    return ours ? [{ table, chain, handle: policy ? undefined : /# handle (\d{1,9})$/.exec(line)?.[1], policy, line }] : [];
  });
}

function firewall(scan: Scan, node: LiveNode): void {
  const dropping = droppingRules(node);
  if (dropping.length === 0) return;
  const network = node.dataAddress?.split(".").slice(0, 3).join(".");
  scan.raise("host.firewall", { lines: dropping.slice(0, 4).map(({ line }) => ({ source: "firewall", line })), count: dropping.length, params: { proved: 1, network: network === undefined ? "NETWORK" : `${network}.0/24` } });
}

export interface PeerAnswer { peer: string; sent: number; lost: number; lossPercent: number | null; fullFrame: boolean | null; mtu: number | null; tcpStatus: number | null; lines: string[] }

/** What the source "peers" says of each. */
export function peerAnswers(node: LiveNode): PeerAnswer[] | undefined {
  const rows = lines(node, "peers");
  if (!rows) return undefined;
  const out: PeerAnswer[] = [];
  for (const line of rows) {
    const m = /^peer ([0-9a-fA-F.:]{2,45})$/.exec(line);
    if (m) { out.push({ peer: m[1]!, sent: 0, lost: 0, lossPercent: null, fullFrame: null, mtu: null, tcpStatus: null, lines: [] }); continue; }
    const p = out.at(-1);
    if (!p) continue;
    p.lines.push(line);
    const loss = /^(\d{1,6}) packets transmitted, (\d{1,6}) received/.exec(line);
    if (loss) { p.sent += Number(loss[1]); p.lost += Number(loss[1]) - Number(loss[2]); p.lossPercent = p.sent === 0 ? null : Math.round((1000 * p.lost) / p.sent) / 10; }
    const frame = /^full frame of (\d+) (passes|does not pass)$/.exec(line);
    if (frame) { p.mtu = Number(frame[1]); p.fullFrame = frame[2] === "passes"; }
    const tcp = /^tcp status (\d+)$/.exec(line);
    if (tcp) p.tcpStatus = Number(tcp[1]);
  }
  return out;
}

/** `timeout` ends with 124 when nothing answered: dropped. Refused would have ended at once. */
export const TIMED_OUT = 124;

const LOSSY_PERCENT = 3;

/** @param shaped interfaces that lose packets because this node is set up so */
function peers(scan: Scan, node: LiveNode, shaped: ReadonlySet<string>): void {
  const netdev = dataInterfaceOf(node)?.name;
  const answering = (peerAnswers(node) ?? []).filter((p) => p.lossPercent !== null && p.lossPercent < 100);
  // One echo or two are a busy machine; a lossy link goes on losing, and in each direction.
  const lossy = answering.filter((p) => p.lossPercent! >= LOSSY_PERCENT);
  // What goes wrong to every peer goes wrong here: one finding of this node's link, not one for each peer.
  const own = netdev !== undefined && (shaped.has(netdev) || (lossy.length > 1 && lossy.length === answering.length));
  for (const p of lossy) {
    scan.raise("rdma.packet_loss_counters", {
      device: own ? netdev : p.peer, severity: p.lossPercent! > 5 ? "high" : "medium", params: { lossPercent: p.lossPercent!, peer: p.peer, netdev },
      lines: p.lines.filter((line) => line.includes("transmitted")).map((line) => ({ source: "peers", line: `${p.peer}: ${line}` })),
      meaning: own ? [`${p.lossPercent} % of the echoes to ${p.peer} were lost, and every peer is concerned: it is this node's own link`, `到 ${p.peer} 的 ping 丢失 ${p.lossPercent} %，且涉及所有对端：问题在本节点自身的链路`] : [`${p.lossPercent} % of the echoes to ${p.peer} were lost`, `到 ${p.peer} 的 ping 丢失 ${p.lossPercent} %`],
    });
  }
  for (const p of answering) {
    const show = p.lines.map((line) => ({ source: "peers", line: `${p.peer}: ${line}` }));
    if (p.tcpStatus === TIMED_OUT) scan.raise("host.firewall", { lines: show, params: { proved: 1, peer: p.peer, network: `${p.peer}/32` }, meaning: ["echoes come back, TCP is dropped", "ping 有应答，而 TCP 被丢弃"], checked: [["Echo requests pass on the same path.", "同一路径上的 ping 正常。"]] });
    else if (p.lossPercent! < 50 && p.fullFrame === false) scan.raise("host.mtu", { lines: show, params: { peer: p.peer, mtu: p.mtu ?? 0, payload: (p.mtu ?? 1500) - 28 }, meaning: [`frames of ${p.mtu} bytes do not pass, small ones do`, `${p.mtu} 字节的帧无法通过，小帧可以`] });
  }
}

/** Somebody set this node up to lose packets; gives the interfaces. */
function shaping(scan: Scan, node: LiveNode): Set<string> {
  const shaped = new Set<string>();
  for (const line of lines(node, "qdisc") ?? []) {
    const m = /^qdisc netem \S+ dev (\S{1,32}).*?\bloss (\S{1,16})/.exec(line);
    if (!m) continue;
    shaped.add(m[1]!);
    scan.raise("rdma.packet_loss_counters", { device: m[1]!, severity: "high", lines: [{ source: "qdisc", line }], params: { netdev: m[1]!, lossPercent: m[2]! }, meaning: [`this node drops ${m[2]} itself`, `本节点自身丢弃 ${m[2]}`] });
  }
  return shaped;
}
