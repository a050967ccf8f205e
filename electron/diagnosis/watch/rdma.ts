import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";
import type { Group } from "../types.js";
import { completionWatcher } from "./completion.js";
import { isSoft, portsOf } from "./ports.js";
import type { Seen, Watcher } from "./watcher.js";

interface Gid { device: string; index: number; gid: string; v4: string | null; type: string | null; seen: Seen }

function expand(gid: string): string { return gid.toLowerCase(); }
const isZero = (gid: string): boolean => /^[0:]+$/.test(gid);
const isLinkLocal = (gid: string): boolean => /^fe80[:]/i.test(gid);
/** On InfiniBand every GID begins with fe80 by default; one that was made of a MAC address has ff:fe in its middle. */
const isEthernetLocal = (gid: string, ethernet: boolean): boolean => isLinkLocal(gid) && (ethernet || /:(?:[0-9a-f]{1,2})?ff:fe[0-9a-f]{2}:/i.test(gid));
export function v4Of(gid: string): string | null {
  const dotted = /::ffff:(\d{1,3}(?:\.\d{1,3}){3})$/i.exec(gid);
  if (dotted) return dotted[1]!;
  const hex = /^(?:0{1,4}:){5}ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(gid) ?? /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(gid);
  if (!hex) return null;
  const a = parseInt(hex[1]!, 16);
  const b = parseInt(hex[2]!, 16);
  return `${a >> 8}.${a & 255}.${b >> 8}.${b & 255}`;
}

const gidTable: Watcher = {
  id: "gid_table",
  triggers: ["fe80:", "0000:0000:0000:0000", "gid[", "::ffff:", "/gids/", "n_gids_found", "/gid_attrs/types/"],
  plainOnly: true,
  line(scan, record, raw) {
    const text = raw.trim();
    let m: RegExpExecArray | null;
    let gid: Gid | null = null;
    const seen = { record, source: scan.source };
    if ((m = /^([a-z][\w.-]{1,30}) (\d{1,2}) (\d{1,3}) ([0-9a-f:]{2,39})(?: (\d{1,3}(?:\.\d{1,3}){3}))?(?: (v[12]|RoCE ?v[12]|IB))?/i.exec(text))) gid = { device: m[1]!, index: Number(m[3]), gid: expand(m[4]!), v4: m[5] ?? v4Of(m[4]!), type: m[6] ?? null, seen };
    else if ((m = /\/([\w.-]{1,40})\/ports\/\d+\/gids\/(\d{1,3}):? ?([0-9a-f:]{2,39})$/i.exec(text))) gid = { device: m[1]!, index: Number(m[2]), gid: expand(m[3]!), v4: v4Of(m[3]!), type: null, seen };
    else if ((m = /^GID\[ ?(\d{1,3})\]: ?([0-9a-f:.]{2,46})(?:, ?(RoCE ?v[12]|IB\S{0,10}))?/i.exec(text))) gid = { device: (scan.of("port_context", () => ({ device: null as string | null }))).device ?? "", index: Number(m[1]), gid: expand(m[2]!), v4: v4Of(m[2]!), type: m[3] ?? null, seen };
    else if ((m = /\/([\w.-]{1,40})\/ports\/\d+\/gid_attrs\/types\/(\d{1,3}):? ?((?:IB\/)?RoCE v[12]|IB)/i.exec(text))) {
      const there = gids(scan).find((g) => g.device === m![1] && g.index === Number(m![2]));
      if (there) there.type = m[3]!;
      return;
    }
    if (!gid) return;
    scan.seen.add("gid_table");
    const list = gids(scan);
    if (list.length < 20000) list.push(gid);
  },
};

function gids(scan: Scan): Gid[] { return scan.of<Gid[]>("gids", () => []); }

/** GIDs and indexes that a program names in its messages. */
const gidUse: Watcher = {
  id: "gid_use",
  triggers: ["gid index", "gid_index", "local gid", "localgid", "gid: ", "gid :", "local address:"],
  line(scan, record, text) {
    const seen = { record, source: scan.source };
    let m: RegExpExecArray | null;
    if ((m = /(?:NCCL_IB_GID_INDEX|UCX_IB_GID_INDEX)\b.{0,30}?(?:=|to|:) ?(\d{1,3})/i.exec(text)) || (m = /GID index ?[:=]? ?(\d{1,3})\b/i.exec(text))) scan.state.set("gid_index", { index: Number(m[1]), seen });
    const local = /local ?GID:? ?((?:::|[0-9a-f]{1,4}:)[0-9a-f:.]{1,44})/i.exec(text);
    const remote = /remote ?GIDs?:? ?((?:::|[0-9a-f]{1,4}:)[0-9a-f:.]{1,44})/i.exec(text);
    if (local) {
      const dev = /on dev ([\w.-]{1,40}?)(?::\d+)?,/.exec(text)?.[1] ?? null;
      const used = scan.of<{ local: string; remote: string | null; dev: string | null; seen: Seen }[]>("gids_used", () => []);
      if (used.length < 256) used.push({ local: local[1]!, remote: remote?.[1] ?? null, dev, seen });
    }
    // ibv_*_pingpong: no LID and no GID, or a link-local one, is how a RoCE port is addressed in vain.
    const ping = /local address: ?LID 0x0000,.{0,80}GID ((?:::|[0-9a-f]{1,4}:)[0-9a-f:.]{0,44})/i.exec(text);
    if (ping && (isZero(ping[1]!) || isLinkLocal(ping[1]!))) scan.state.set("gid_bytes_linklocal", seen);
    // perftest prints bytes in decimal: 254:128 is fe80.
    const bytes = /GID: (\d{1,3}(?::\d{1,3}){15})/.exec(text);
    if (bytes && bytes[1]!.startsWith("254:128:")) scan.state.set("gid_bytes_linklocal", seen);
    // Only ports that are addressed by GID get this line: on Ethernet an empty one is no address at all.
    else if (bytes && /^[0:]+$/.test(bytes[1]!) && scan.state.get("perftest_link") === "ethernet") scan.raise("roce.gid_missing", { device: (scan.state.get("perftest_device") as string | undefined) ?? null, records: [seen] });
  },
};

const CONNECTING = ["rdma.wc_retry_exc", "rdma.wc_flush", "rdma.qp_rtr_timeout", "rdma.qp_rtr_unreachable", "rdma.qp_rtr_nodev", "rdma.cm_addr_error"];

const gidJudge: Watcher = {
  id: "gid",
  triggers: [],
  end(scan) {
    const used = scan.of<{ local: string; remote: string | null; dev: string | null; seen: Seen }[]>("gids_used", () => []);
    const table = gids(scan);
    const failing = scan.has(...CONNECTING);
    const ethernet = portsOf(scan).filter((p) => p.layer === "ethernet" && !isSoft(p.device));
    const index = scan.state.get("gid_index") as { index: number; seen: Seen } | undefined;
    const rtr = scan.groupsOf("rdma.qp_rtr_timeout");
    for (const g of [...rtr, ...scan.groupsOf("rdma.qp_rtr_unreachable")]) { const u = used[0]; if (u) { g.params["localGid"] = u.local; if (u.remote) g.params["remoteGid"] = u.remote; } }
    if (crossRail(scan, used, rtr)) return;
    if (!failing) { missing(scan, table); return; }
    const right = used.some((u) => v4Of(u.local) !== null) || (index !== undefined && index.index > 0 && !table.some((g) => g.index === index.index && (isLinkLocal(g.gid) || isZero(g.gid))));
    const linkLocalUsed = used.find((u) => (isEthernetLocal(u.local, portsOf(scan).some((p) => p.layer === "ethernet")) || isZero(u.local)) && (u.remote !== null || ethernet.length > 0) && portsOf(scan).every((p) => p.layer !== "infiniband"));
    const byIndex = table.filter((g) => g.index === 0 && isLinkLocal(g.gid) && table.some((o) => o.device === g.device && o.index > 0 && o.v4 !== null));
    const good = table.find((g) => g.v4 !== null && /v2/i.test(g.type ?? "v2"))?.index;
    // The index that was asked for holds a link-local address, and another one a routable address.
    const chosen = index && table.find((g) => g.index === index.index && isLinkLocal(g.gid) && table.some((o) => o.device === g.device && o.v4 !== null)) ? index.seen : undefined;
    const strong = chosen ?? linkLocalUsed?.seen ?? (index?.index === 0 && (ethernet.length > 0 || byIndex.length > 0) ? index.seen : undefined) ?? (scan.state.get("gid_bytes_linklocal") as Seen | undefined);
    const params = { index: good ?? 3, strong: strong ? 1 : undefined };
    if (strong && !right) scan.raise("roce.gid_wrong_index", { records: [strong], params });
    else if (byIndex.length > 0 && !right) scan.raise("roce.gid_wrong_index", { device: byIndex[0]!.device, records: byIndex.slice(0, 1).map((g) => g.seen), params, severity: rtr.length > 0 ? "medium" : "high" });
    else if (!right && ethernet.some((p) => p.state === "active") && scan.groupsOf("rdma.wc_retry_exc").some((g) => g.params["oldWording"] === 1)) {
      // NCCL of that age takes index 0 unless told otherwise.
      const p = ethernet.find((x) => x.state === "active")!;
      scan.raise("roce.gid_wrong_index", { device: p.device, records: [p.seen], params, checked: [["The port is active, its layer is Ethernet, and this NCCL takes index 0 unless told.", "端口处于活动状态且为以太网，此版本 NCCL 默认使用索引 0。"]] });
    }
    if (scan.has("rdma.qp_rtr_nodev") && ethernet.length > 0) scan.raise("roce.gid_missing", { device: ethernet[0]!.device, records: [ethernet[0]!.seen], severity: "medium" });
    missing(scan, table);
  },
};

function missing(scan: Scan, table: readonly Gid[]): void {
  for (const device of new Set(table.map((g) => g.device))) {
    const of = table.filter((g) => g.device === device);
    const roce = of.some((g) => /roce/i.test(g.type ?? "")) || portsOf(scan).some((p) => p.device === device && p.layer === "ethernet");
    if (of.every((g) => isZero(g.gid)) || (roce && scan.has(...CONNECTING) && of.every((g) => isZero(g.gid) || isLinkLocal(g.gid)))) scan.raise("roce.gid_missing", { device, records: of.slice(0, 1).map((g) => g.seen) });
  }
}

/** Two IPv4 subnets joined by a port that is one of several: a fabric of rails. */
function crossRail(scan: Scan, used: readonly { local: string; remote: string | null; dev: string | null; seen: Seen }[], rtr: readonly Group[]): boolean {
  if (rtr.length === 0) return false;
  const pair = used.find((u) => {
    const a = v4Of(u.local);
    const b = u.remote === null ? null : v4Of(u.remote);
    return a !== null && b !== null && a.split(".").slice(0, 3).join(".") !== b.split(".").slice(0, 3).join(".");
  });
  if (!pair) return false;
  scan.raise("nccl.cross_rail", { records: [pair.seen], params: { localGid: pair.local, remoteGid: pair.remote ?? undefined, device: pair.dev ?? undefined } });
  return true;
}

interface Limit { kib: number | null; owner: string; service: string | null; seen: Seen }
const SERVICES = /(slurmd|slurmstepd|dockerd|containerd|ray(?:let)?|kubelet|pbs_mom|sge_execd|lsfd?|sshd|stepccld|srun|cri-?o|singularity|nomad)/;

const limits: Watcher = {
  id: "memlock",
  triggers: ["max locked memory", "ulimit -l", "limitmemlock", "/limits", "memlock ", "max locked-in-memory", "pidof", "pgrep"],
  plainOnly: true,
  line(scan, record, raw) {
    const text = raw.trim();
    const list = scan.of<Limit[]>("limits", () => []);
    const seen = { record, source: scan.source };
    const service = SERVICES.exec(text)?.[1] ?? SERVICES.exec(scan.source)?.[1];
    if (/\/proc\/|pidof|pgrep|systemctl|service/.test(text) && service) scan.state.set("limit_service", service);
    const inside = /job|container|pod|slurm|docker|srun|inside/i.test(scan.source);
    const add = (kib: number | null, who: string, svc: string | null): void => {
      const owner = inside ? "process" : who; scan.seen.add("limits"); if (list.length < 1024) list.push({ kib, owner, service: svc, seen });
    };
    const bytes = (t: string): number | null => (/unlimited|infinity|18446744073709551615/.test(t) ? null : Number(t) / 1024);
    let m: RegExpExecArray | null;
    if ((m = /max locked memory ?\(k(?:bytes|B), -l\) ?(\d+|unlimited)/i.exec(text))) add(m[1] === "unlimited" ? null : Number(m[1]), "shell", null);
    else if ((m = /^Max locked memory (\d+|unlimited) (\d+|unlimited) bytes/i.exec(text)) || (m = /Max locked memory[ :=]{1,3}(\d+|unlimited)/i.exec(text)) || (m = /MEMLOCK max locked-in-memory address space (\d+|unlimited)/i.exec(text))) add(bytes(m[1]!), "process", (scan.state.get("limit_service") as string | undefined) ?? service ?? null);
    else if ((m = /LimitMEMLOCK(?:Soft)?=(\w+)/.exec(text))) add(/infinity/.test(m[1]!) ? null : bytes(m[1]!.replace(/\D.*$/, "") || "0"), "service", (scan.state.get("limit_service") as string | undefined) ?? service ?? null);
    else if (/ulimit -(?:S|H)?l\b/.test(text)) {
      if ((m = /ulimit -l\W{0,4}(\d+|unlimited)$/.exec(text)) || (m = /(\d+|unlimited)$/.exec(text))) add(m[1] === "unlimited" ? null : Number(m[1]), SERVICES.test(text) || /srun|docker|kubectl exec/.test(text) ? "process" : "shell", service ?? null);
      else { scan.state.set("ulimit_prompt", text); scan.follow(this, 1); }
    }
  },
  follow(scan, record, text) {
    const m = /^(?:\S{1,64}: )?(\d{1,15}|unlimited)$/.exec(text.trim());
    const prompt = String(scan.state.get("ulimit_prompt") ?? "");
    if (m) { scan.seen.add("limits"); scan.of<Limit[]>("limits", () => []).push({ kib: m[1] === "unlimited" ? null : Number(m[1]), owner: /srun|docker|kubectl|sbatch|salloc/.test(prompt) ? "process" : "shell", service: SERVICES.exec(prompt)?.[1] ?? null, seen: { record, source: scan.source } }); }
    return false;
  },
  sourceEnd(scan) { scan.state.delete("limit_service"); },
  end(scan) {
    const list = scan.of<Limit[]>("limits", () => []);
    const small = list.filter((l) => l.kib !== null && l.kib < 1024 * 1024);
    const failed = scan.groupsOf("rdma.memlock_limit");
    if (scan.has("rdma.mkey_limit")) { scan.drop("rdma.memlock_limit"); return; }
    const shellFree = list.some((l) => l.owner === "shell" && l.kib === null);
    // Where a login has no limit, what is small belongs to whoever started the job; so does the limit of a named or bare process.
    const serviceSmall = small.find((l) => l.service !== null || (l.owner !== "shell" && (shellFree || failed.length === 0))) ?? (shellFree ? small[0] : undefined);
    if (serviceSmall) {
      scan.raise("host.memlock_service", { records: [serviceSmall.seen], params: { service: serviceSmall.service ?? "SERVICE", limitKiB: Math.round(serviceSmall.kib!) }, checked: shellFree ? [["The login's own limit is unlimited.", "登录会话自身不受限。"]] : [] });
    } else if (small.length > 0 && failed.length === 0 && !scan.has("rdma.qp_create_failed", "rdma.cq_create_failed")) {
      scan.raise("rdma.memlock_limit", { severity: "info", records: [small[0]!.seen], params: { limitKiB: Math.round(small[0]!.kib!) }, checked: [["No failure in what was read: a small limit alone is a setting.", "所读内容中没有失败：仅限制较小只是一项设置。"]] });
    } else if (small.length > 0 && failed.length === 0) scan.raise("rdma.memlock_limit", { records: [small[0]!.seen], params: { limitKiB: Math.round(small[0]!.kib!) } });
    for (const g of failed) {
      if (small.length > 0) { g.params["limitKiB"] = Math.round(small[0]!.kib!); g.evidence.push({ source: small[0]!.seen.source, line: small[0]!.seen.record.raw.trim().slice(0, 300), lineNumber: small[0]!.seen.record.line, meaning: [`${Math.round(small[0]!.kib!)} KiB may be locked`, `允许锁定 ${Math.round(small[0]!.kib!)} KiB`] }); }
      else if (list.length > 0) {
        // Unlimited was read: then it is the adapter's keys, which the kernel log would prove.
        g.severity = "low";
        scan.raise("rdma.mkey_limit", { severity: "medium", lines: g.evidence, checked: [["The limit of locked memory is unlimited; the kernel log must show CREATE_MKEY.", "锁定内存不受限；需在内核日志中查看 CREATE_MKEY。"]] });
      }
    }
  },
};

interface Node { name: string; mode: string; owner: string; group: string; seen: Seen }

const deviceNodes: Watcher = {
  id: "device_nodes",
  triggers: ["crw", "cr--", "c---", "uid=", "groups="],
  plainOnly: true,
  line(scan, record, raw) {
    const text = raw.trim();
    const id = /^uid=\d+\(([^)]{1,64})\).{0,80}?groups=(.{1,2000})$/.exec(text);
    if (id) { scan.state.set("id", { user: id[1]!, groups: [...id[2]!.matchAll(/\(([^)]{1,64})\)/g)].map((x) => x[1]!) }); return; }
    const m = /^(?:\S{1,20}:)?c([rwxsStT-]{9})[.+@]? \d+ (\S{1,64}) (\S{1,64}) \d+, ?\d+ .{4,40}? (\S{1,200})$/.exec(text);
    if (!m) return;
    scan.seen.add("device_nodes");
    const list = scan.of<Node[]>("nodes", () => []);
    if (list.length < 4096) list.push({ name: m[4]!, mode: m[1]!, owner: m[2]!, group: m[3]!, seen: { record, source: scan.source } });
  },
  end(scan) {
    const id = scan.state.get("id") as { user: string; groups: string[] } | undefined;
    for (const n of scan.of<Node[]>("nodes", () => [])) {
      const base = n.name.slice(n.name.lastIndexOf("/") + 1);
      const others = n.mode[6] === "r" && n.mode[7] === "w";
      const group = n.mode[3] === "r" && n.mode[4] === "w";
      const path = n.name.startsWith("/") ? n.name : /^(?:uverbs|umad|issm|rdma_cm)/.test(base) ? `/dev/infiniband/${base}` : `/dev/${base}`;
      if (/^(?:umad|issm)\d/.test(base)) { if (!others && !group) scan.raise("perm.umad_root_only", { device: base, records: [n.seen] }); continue; }
      const member = id !== undefined && (id.user === "root" || id.groups.includes(n.group));
      if (/^uverbs\d|^rdma_cm$/.test(base)) { if (!others && !(group && member) && (n.group === "root" || id !== undefined) && id?.user !== "root") scan.raise("perm.uverbs_denied", { device: base, records: [n.seen], params: { mode: n.mode } }); continue; }
      if (!/^(?:dma_device|xdma|qdma|fastrpc|wq\d+\.\d)/.test(base)) continue;
      const params = { mode: n.mode, owner: n.owner, group: n.group, user: id?.user };
      if (others) continue;
      if (!group || n.group === "root") scan.raise("perm.dma_device_node", { device: path, records: [n.seen], params });
      else if (id !== undefined && !member) scan.raise("perm.user_not_in_group", { device: path, records: [n.seen], params });
    }
  },
};

const containerNodes: Watcher = {
  id: "container_nodes",
  triggers: ["/sys/class/infiniband", "/dev/infiniband"],
  line(scan, _record: LogRecord, text) {
    if (/\/dev\/infiniband/.test(text) && /no such file|cannot access|total 0|not found/i.test(text)) scan.state.set("no_dev_infiniband", { record: _record, source: scan.source });
    if (/\/sys\/class\/infiniband(?:_verbs)?\/?\w/.test(text) && !/no such file|cannot access/i.test(text)) scan.state.set("sys_infiniband", true);
  },
  end(scan) {
    const none = scan.state.get("no_dev_infiniband") as Seen | undefined;
    const listed = scan.state.get("sys_infiniband") === true || scan.has("perm.container_provider_missing") || portsOf(scan).length > 0;
    if (none && listed) scan.raise("perm.container_node_not_mapped", { records: [none] });
  },
};

export const rdmaWatchers: readonly Watcher[] = [completionWatcher, gidTable, gidUse, gidJudge, limits, deviceNodes, containerNodes];
