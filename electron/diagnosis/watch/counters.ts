import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";
import type { Seen, Watcher } from "./watcher.js";
import { portsOf } from "./ports.js";

type Kind = "symbol" | "downed" | "wait" | "discard" | "loss" | "loss_weak" | "no_buffer" | "pause" | "pause_storm" | "ecn" | "prio_bytes";

/** Counters by name, lower case without underscores, over the tools and drivers that print them. */
const KINDS: Readonly<Record<string, Kind>> = {
  symbolerrorcounter: "symbol", symbolerror: "symbol", symbolerrors: "symbol", portrcverrors: "symbol", localintegrityerrors: "symbol", locallinkintegrityerrors: "symbol", portrcvremotephysicalerrors: "symbol",
  rxsymbolerrphy: "symbol", rxpcsymbolerrphy: "symbol", rxcrcerrorsphy: "symbol", excessivebufferoverrunerrors: "symbol",
  linkdownedcounter: "downed", linkdowned: "downed", linkerrorrecoverycounter: "downed", linkerrorrecovery: "downed", linkdowneventsphy: "downed",
  portxmitwait: "wait", portxmitdiscards: "discard", portrcvswitchrelayerrors: "discard", vl15dropped: "discard",
  localackretrytimeout: "loss", localacktimeouterr: "loss", packetseqerr: "loss", impliednakseqerr: "loss", roceadpretrans: "loss", roceadpretransto: "loss", roceslowrestarttrans: "loss",
  outofsequence: "loss_weak", outofseqrequest: "loss_weak", duplicaterequest: "loss_weak", rcvdseqerr: "loss", retryexceedederr: "loss", completerretryerr: "loss", ackdeferred: "loss_weak", rctimeout: "loss", rcresend: "loss_weak",
  retransmittedpackets: "loss", toretransmits: "loss", seqerrnaksrcvd: "loss", maxretryexceeded: "loss", missingresp: "loss",
  outofbuffer: "no_buffer", rnrnakretryerr: "no_buffer", rcvdrnrerr: "no_buffer", rnrnaksrcvd: "no_buffer", rxoutofbuffer: "no_buffer", retryrnrexceedederr: "no_buffer",
  rxpausectrlphy: "pause", txpausectrlphy: "pause", rxglobalpause: "pause", txglobalpause: "pause", txpausestormwarningevents: "pause_storm", txpausestormerrorevents: "pause_storm", rxpausestormwarningevents: "pause_storm",
  npecnmarkedrocepackets: "ecn", npcnpsent: "ecn", rpcnphandled: "ecn", rpcnpignored: "ecn",
};
const TRIGGERS = [
  "symbol_error", "symbolerror", "port_rcv_errors", "portrcverrors", "integrity", "remote_physical", "remotephysical", "link_downed", "linkdowned", "link_error_recovery", "linkerrorrecovery", "xmit_wait", "xmitwait",
  "xmit_discards", "xmitdiscards", "switch_relay", "switchrelay", "vl15", "local_ack_timeout", "packet_seq_err", "implied_nak", "roce_adp", "roce_slow", "out_of_sequence", "out_of_seq", "duplicate_request", "rcvd_seq_err", "retry_exceeded", "completer_retry",
  "ack_deferred", "rctimeout", "rcresend", "to_retransmits", "seq_err_naks", "missing_resp", "out_of_buffer", "rnr_nak", "rcvd_rnr", "rnr_exceeded", "pause", "np_ecn", "np_cnp", "rp_cnp", "_bytes", "crc_errors_phy", "buffer_overrun", "retransmitted_packets", "(no pma)", "rcacks", "dmawait", "lifespan",
];
const kindOf = (name: string): Kind | null => {
  const key = name.toLowerCase().replaceAll("_", "").replace(/^ext/, "");
  const kind = KINDS[key];
  if (kind) return kind;
  if (/^[rt]xprio\d(?:pause|pausetransition|pauseduration)$/.test(key)) return "pause";
  if (/^[rt]xprio\d(?:bytes)$/.test(key)) return "prio_bytes";
  return null;
};

interface Counter { device: string | null; name: string; kind: Kind; values: number[]; seen: Seen[]; host: string | null }

function note(scan: Scan, record: LogRecord, device: string | null, name: string, value: number): void {
  const kind = kindOf(name);
  scan.seen.add("counters");
  if (!kind || !Number.isFinite(value)) return;
  const counters = scan.of("counters", () => new Map<string, Counter>());
  const key = `${record.host ?? ""}|${device ?? ""}|${name.toLowerCase()}`;
  const c = counters.get(key) ?? { device, name, kind, values: [], seen: [], host: record.host };
  if (!counters.has(key)) { if (counters.size >= 50000) return; counters.set(key, c); }
  if (c.values.length < 8) { c.values.push(value); c.seen.push({ record, source: scan.source }); } else { c.values[7] = value; c.seen[7] = { record, source: scan.source }; }
}

const reader: Watcher = {
  id: "counters",
  triggers: TRIGGERS,
  plainOnly: true,
  line(scan, record, raw) {
    const text = raw.trim();
    let m: RegExpExecArray | null;
    if ((m = /\/([\w.-]{1,40})\/ports\/\d+\/(?:hw_)?counters\/(\w{1,60}):? ?(\S{1,40})/.exec(text))) { if (/^\d+$/.test(m[3]!)) note(scan, record, m[1]!, m[2]!, Number(m[3])); else scan.seen.add("counters"); return; }
    if ((m = /^link ([\w.-]{1,40})\/\d+ (.{1,4000})$/.exec(text)) && /_\w+ \d+/.test(m[2]!)) {
      const words = m[2]!.split(" ");
      for (let i = 0; i + 1 < words.length; i += 2) note(scan, record, m[1]!, words[i]!, Number(words[i + 1]));
      return;
    }
    if ((m = /^(?:node_infiniband_|infiniband_|rdma_)?(\w{3,60}?)(?:_total)?\{[^}]{0,200}device="([\w.-]{1,40})"[^}]{0,200}\} ([\d.]{1,20}(?:e\+\d{1,2})?)$/.exec(text))) { note(scan, record, m[2]!, m[1]!, Number(m[3])); return; }
    if ((m = /^((?:mlx[45]_|bnxt_re|irdma|rxe|rocep|ibp)\w{0,20})(?:\/\d+)?:? (\w{3,60})[ :=]{1,3}(\d{1,20})$/.exec(text))) { note(scan, record, m[1]!, m[2]!, Number(m[3])); return; }
    if (text.includes("==")) { for (const x of text.matchAll(/\[?(\w{3,60}) == (\d{1,20})/g)) note(scan, record, null, x[1]!, Number(x[2])); return; }
    if ((m = /^(\w{3,60}):\.*(\d{1,20})$/.exec(text)) || (m = /^(\w{3,60}) ?[:=]? ?(\d{1,20})$/.exec(text)) || (m = /^(\w{3,60}) ?: ?(\d{1,20}) ?(?:\(\d+\))?$/.exec(text))) note(scan, record, (scan.state.get("counter_device") as string | undefined) ?? null, m[1]!, Number(m[2]));
    else if ((m = /(?:^|\/)(\w{3,60}): ?(\d{1,20})$/.exec(text))) note(scan, record, null, m[1]!, Number(m[2]));
  },
  end: judge,
};

const LIMIT: Partial<Record<Kind, number>> = { symbol: 100, downed: 10, wait: 1_000_000, discard: 100, loss: 10, loss_weak: 10_000, no_buffer: 100, pause: 1_000_000, pause_storm: 1 };
const CLASS: Partial<Record<Kind, string>> = { symbol: "link.symbol_errors", downed: "link.flapping", wait: "link.congestion_xmit_wait", discard: "link.xmit_discards", loss: "rdma.packet_loss_counters", loss_weak: "rdma.packet_loss_counters", no_buffer: "rdma.out_of_buffer", pause: "rdma.pfc_storm", pause_storm: "rdma.pfc_storm" };
/** What may grow between two readings of a busy, healthy port. */
const GROWTH: Partial<Record<Kind, number>> = { symbol: 1, downed: 1, wait: 1_000_000, discard: 1, loss: 1, loss_weak: 100, no_buffer: 10, pause: 10_000, pause_storm: 1 };

function judge(scan: Scan): void {
  const counters = [...scan.of("counters", () => new Map<string, Counter>()).values()];
  for (const c of counters) {
    const cls = CLASS[c.kind];
    if (!cls) continue;
    const first = c.values[0]!;
    const last = c.values.at(-1)!;
    // hfi1 resends a little all the time: weigh them against what was acknowledged.
    if (c.name.toLowerCase() === "rcresend") continue;
    const two = c.values.length > 1;
    // A counter that went back was cleared or its device came back: the later value counts from then.
    const grown = two ? (last >= first ? last - first : last) : 0;
    const bad = two ? grown >= GROWTH[c.kind]! : last >= LIMIT[c.kind]!;
    if (!bad) continue;
    scan.raise(cls, {
      device: c.device, host: c.host, records: [c.seen.at(-1)!], count: two ? grown : last, params: { counter: c.name, value: last, growth: two ? grown : undefined },
      severity: c.kind === "downed" && !two && last < 10 ? "medium" : undefined,
      meaning: two ? [`${c.name} grew by ${grown} between the readings`, `${c.name} 在两次读数间增长 ${grown}`] : [`${c.name} is ${last} since the start or the last clearing; one reading does not tell the rate`, `${c.name} 自启动或上次清零以来为 ${last}；单次读数不能说明速率`],
    });
  }
  qos(scan, counters);
}

function qos(scan: Scan, counters: readonly Counter[]): void {
  const prio = counters.filter((c) => c.kind === "prio_bytes" && /rx|tx/i.test(c.name));
  const at = (n: number): number => prio.filter((c) => c.name.toLowerCase().includes(`prio${n}`)).reduce((s, c) => s + c.values.at(-1)!, 0);
  const higher = [1, 2, 3, 4, 5, 6, 7].reduce((s, n) => s + at(n), 0);
  const allInZero = prio.length >= 2 && at(0) > 1e6 && higher < at(0) / 1000;
  const ecn = counters.filter((c) => c.kind === "ecn");
  const ecnSilent = ecn.length > 0 && ecn.every((c) => c.values.at(-1) === 0);
  const loss = scan.has("rdma.packet_loss_counters");
  const pfcOff = scan.of<Seen[]>("pfc_off", () => []);
  const ethernet = portsOf(scan).every((p) => p.layer !== "infiniband");
  if (ethernet && ((allInZero && (ecnSilent || loss || ecn.length === 0)) || pfcOff.length > 0 || (loss && ecnSilent))) {
    const seen = pfcOff[0] ?? (allInZero ? prio[0]!.seen[0]! : ecn[0]!.seen[0]!);
    scan.raise("rdma.dcqcn_inactive", { records: [seen] });
  }
}

const deviceLine: Watcher = {
  id: "counter_device",
  triggers: ["/hw_counters", "/counters", "ethtool -s", "perfquery", "nic statistics", "port counters"],
  plainOnly: true,
  line(scan, _record, text) {
    const m = /infiniband\/([\w.-]{1,40})\/ports/.exec(text) ?? /ethtool -S (\S{1,20})/.exec(text);
    if (m) scan.state.set("counter_device", m[1]);
    if (/^(?:[#$] ?)?(?:cat|grep|cd|for|ls|ethtool|perfquery|rdma) /.test(text)) scan.seen.add("counters");
  },
  sourceEnd(scan) { scan.state.delete("counter_device"); },
};

const qosLines: Watcher = {
  id: "qos",
  triggers: ["enabled 0 0 0 0 0 0 0 0", "pfc 0,0,0,0,0,0,0,0", "priority trust state: pcp"],
  plainOnly: true,
  line(scan, record, text) {
    if (/enabled 0 0 0 0 0 0 0 0|pfc 0,0,0,0,0,0,0,0/.test(text)) { const l = scan.of<Seen[]>("pfc_off", () => []); if (l.length < 8) l.push({ record, source: scan.source }); }
  },
};

export const counterWatchers: readonly Watcher[] = [deviceLine, qosLines, reader];
