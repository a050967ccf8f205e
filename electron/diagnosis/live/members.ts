import type { Scan } from "../scan.js";
import { peerAnswers, TIMED_OUT } from "./network.js";
import { dataInterfaceOf, text, type LiveNode } from "./read.js";

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

/** The node's clock less the console's, by the middle of the time in which it was read, in seconds. */
function offset(node: LiveNode): { seconds: number; uncertainty: number } | null {
  const source = node.collected.get("clock");
  const value = text(node, "clock")?.trim();
  if (!source || !value || !/^\d{9,12}\.\d{1,9}$/.test(value)) return null;
  return { seconds: Number(value) - (source.beganAtMs + source.endedAtMs) / 2000, uncertainty: (source.endedAtMs - source.beganAtMs) / 2000 };
}

function clock(scan: Scan, node: LiveNode, others: readonly LiveNode[]): void {
  const mine = offset(node);
  const known = others.flatMap((o) => offset(o) ?? []);
  if (!mine || known.length === 0) return;
  const all = [...known, mine].sort((a, b) => a.seconds - b.seconds);
  const median = all[Math.floor((all.length - 1) / 2)]!;
  const apart = Math.round((mine.seconds - median.seconds) * 10) / 10;
  if (Math.abs(apart) <= MAX_SKEW_S + mine.uncertainty + median.uncertainty) return;
  scan.raise("host.clock_skew", { lines: [{ source: "clock", line: text(node, "clock")!.trim() }], severity: Math.abs(apart) > FAR_SKEW_S ? "high" : "medium", params: { skewSeconds: apart }, meaning: [`${Math.abs(apart)} s ${apart > 0 ? "ahead of" : "behind"} the others`, `比其他节点${apart > 0 ? "快" : "慢"} ${Math.abs(apart)} 秒`] });
}
