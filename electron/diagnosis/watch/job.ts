import type { Seen, Watcher } from "./watcher.js";

const rendezvous: Watcher = {
  id: "rendezvous",
  triggers: ["file://", "nccl_comm_id", "none of the nodes has", "not a node of", "no node has address"],
  line(scan, record, text) {
    if (/file:\/\/\/?\S/.test(text) && !/init|rendezvous|dist/i.test(text)) return;
    scan.state.set("rendezvous_hint", { record, source: scan.source });
  },
  end(scan) {
    const hint = scan.state.get("rendezvous_hint") as Seen | undefined;
    if (hint && scan.has("nccl.connect_refused") && !scan.has("host.wrong_interface")) scan.raise("host.stale_rendezvous", { records: [hint] });
  },
};

/** NCCL's channels: over the network, with or without GPUDirect; adapters of both layers in one list. */
const channels: Watcher = {
  id: "nccl_gdr",
  triggers: ["via net/ib", "net/ib"],
  line(scan, record, text) {
    scan.seen.add("job_log");
    if (/via NET\/IB\/\d/.test(text)) {
      if (text.includes("GDRDMA")) scan.state.set("gdr_used", true);
      else scan.of<Seen[]>("gdr_not", () => []).push({ record, source: scan.source });
      if (scan.of<Seen[]>("gdr_not", () => []).length > 16) scan.of<Seen[]>("gdr_not", () => []).length = 16;
      return;
    }
    const list = /NET\/IB ?: ?Using (.{4,2000})/.exec(text);
    if (list && /\/RoCE\b/.test(list[1]!) && /:\d+\/IB\b/.test(list[1]!)) scan.hit("nccl.wrong_hca", record, { device: null });
  },
  end(scan) {
    const without = scan.of<Seen[]>("gdr_not", () => []);
    if (without.length > 0 && scan.state.get("gdr_used") !== true && !scan.has("nccl.gdr_disabled")) scan.raise("nccl.gdr_disabled", { records: without.slice(0, 2), count: without.length });
  },
};

/** The firewall is one suspect of several: it stands back where the address itself is wrong. */
const firewall: Watcher = {
  id: "firewall",
  triggers: ["dport 4791 drop", "dport 4791 reject", "policy drop", "status: active", "reject with"],
  plainOnly: true,
  line(scan, record, text) {
    const t = text.trim();
    if (/^(?:-A|\S.*\b)?.{0,200}\b(?:drop|DROP|reject|REJECT)\b/.test(t) && /4791|udp|tcp|policy drop/i.test(t)) { const l = scan.of<Seen[]>("fw_rules", () => []); if (l.length < 8) l.push({ record, source: scan.source }); }
    if (/^Status: active/i.test(t)) { const l = scan.of<Seen[]>("fw_rules", () => []); if (l.length < 8) l.push({ record, source: scan.source }); }
  },
  end(scan) {
    const rules = scan.of<Seen[]>("fw_rules", () => []);
    const waiting = scan.has("nccl.connect_timeout", "rdma.wc_retry_exc", "nccl.connect_refused", "rdma.cm_addr_error");
    if (rules.length > 0 && waiting) scan.raise("host.firewall", { records: rules.slice(0, 2), params: { proved: 1 } });
    if (rules.length === 0 && scan.has("host.wrong_interface", "host.loopback_hostname")) scan.drop("host.firewall");
  },
};

const INPUT_WORDS: readonly (readonly [RegExp, "job_log" | "module_tools" | "kernel_log" | "system_log"])[] = [
  [/NCCL (?:INFO|WARN)|UCX {1,2}\w|libfabric:|torch|mpirun|RuntimeError/, "job_log"], [/\b(?:insmod|modprobe|depmod)\b/, "module_tools"], [/\bsystemd\[|munge|slurm/, "system_log"],
];

const inputs: Watcher = {
  id: "inputs",
  triggers: ["nccl info", "nccl warn", "ucx ", "libfabric:", "insmod", "modprobe", "runtimeerror", "nvrm:", "mlx5_core", "pcieport", "systemd[", "munge", "dmar:"],
  sourceEnd(scan) { scan.state.delete("inputs_looked"); },
  line(scan, record, text) {
    const looked = ((scan.state.get("inputs_looked") as number | undefined) ?? 0) + 1;
    if (looked > 5000) return;
    scan.state.set("inputs_looked", looked);
    if (!scan.seen.has("kernel_log") && (record.tag === "kernel" || record.clock === "uptime" || /^(?:NVRM|mlx5_core|pcieport|DMAR)\b/.test(text))) scan.seen.add("kernel_log");
    for (const [re, kind] of INPUT_WORDS) if (!scan.seen.has(kind) && re.test(text)) scan.seen.add(kind);
  },
};

export const jobWatchers: readonly Watcher[] = [rendezvous, channels, firewall, inputs];
