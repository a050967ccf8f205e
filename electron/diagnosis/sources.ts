import { isIP } from "node:net";
import type { InputKind } from "./types.js";

export interface Attempt {
  command: string;
  root?: boolean;
  /** Of a later attempt as root: made at once, unless this condition of the shell holds, which says that the user may read it. */
  unless?: string;
}

/**
 * What is read on a node. Commands only read, need no argument from outside but peers' addresses, and run as the SSH user;
 * one that needs root is tried without it first. `collect.ts` completes PATH, because a login without a terminal often lacks the sbin folders.
 */
export interface SourceSpec {
  id: string;
  /** Tried in order until one can be read. */
  attempts: readonly Attempt[];
  timeoutMs: number;
  maxBytes: number;
  /** Statuses that are an answer, not a failure (such as `modinfo` of a module that is not there). */
  answers?: readonly number[];
  /** What rules call this input; read by the log engine unless `valuesOnly`. */
  kind: InputKind;
  /** Runs beside the others: it takes seconds. A re-test reads it only where the finding needs it. */
  beside?: boolean;
  /** Reads a bounded file in memory, or runs one small program: needs neither a clock nor a limit of its own, and every re-test reads it. */
  light?: boolean;
  /** Parsed by live/ alone: its text would only confuse the log engine. */
  valuesOnly?: boolean;
}

const quick = { timeoutMs: 20_000, maxBytes: 256 * 1024 } as const;
const log = { timeoutMs: 40_000, maxBytes: 4 * 1024 * 1024 } as const;

/** Time between the two readings of the counters, in seconds. */
export const COUNTER_INTERVAL_S = 3;
const COUNTER_FILES = "grep -sH . /sys/class/infiniband/*/ports/*/counters/* /sys/class/infiniband/*/ports/*/hw_counters/*";

/** A table has hundreds of places and few of them are taken: only of those the type and the interface are read, by the shell itself. */
const GIDS = "grep -sH . /sys/class/infiniband/*/ports/*/gids/* | while IFS= read -r l; do case $l in *:0000:0000:0000:0000:0000:0000:0000:0000) continue ;; esac; echo \"$l\"; f=${l%%:*}; p=${f%/gids/*}/gid_attrs; i=${f##*/}; for a in types ndevs; do { read -r v <\"$p/$a/$i\"; } 2>/dev/null && echo \"$p/$a/$i:$v\"; done; done; true";

/** Looked for only where a file system is nearly full. */
const LARGE_FILES = "m=$(df -P / /var/lib /opt 2>/dev/null | while read -r _ _ _ _ use at; do use=${use%\\%}; case $use in *[!0-9]* | '') continue ;; esac; [ \"$use\" -lt 97 ] || echo \"$at\"; done); [ -z \"$m\" ] || echo \"$m\" | sort -u | while read -r at; do find \"$at\" -xdev -type f -size +8M -printf '%s %p\\n' 2>/dev/null; done | sort -rn | head -n 20";

const FIXED = [
  { id: "kernel_log", kind: "kernel_log", attempts: [{ command: "dmesg" }, { command: "dmesg", root: true, unless: "read -r r </proc/sys/kernel/dmesg_restrict && [ \"$r\" = 0 ]" }, { command: "journalctl -k -b --no-pager -q -n 20000 -o short-monotonic" }], ...log },
  { id: "boot", kind: "kernel_log", light: true, attempts: [{ command: "cat /proc/sys/kernel/random/boot_id" }], ...quick, valuesOnly: true },
  { id: "dma_device", kind: "device_nodes", light: true, attempts: [{ command: "ls -l /dev/dma_device" }], ...quick, answers: [2] },
  { id: "verbs_nodes", kind: "device_nodes", light: true, attempts: [{ command: "ls -l /dev/infiniband" }], ...quick, answers: [2], valuesOnly: true },
  { id: "identity", kind: "device_nodes", light: true, attempts: [{ command: "id" }], ...quick },
  { id: "group", kind: "device_nodes", light: true, attempts: [{ command: "getent group stepccl" }], ...quick, answers: [2], valuesOnly: true },
  { id: "kernel", kind: "modules", light: true, attempts: [{ command: "uname -r" }], ...quick, valuesOnly: true },
  { id: "modules", kind: "modules", light: true, attempts: [{ command: "lsmod" }], ...quick },
  { id: "module_info", kind: "modules", light: true, attempts: [{ command: "modinfo dma_engine" }], ...quick, answers: [1], valuesOnly: true },
  { id: "module_files", kind: "modules", light: true, attempts: [{ command: "for f in /lib/modules/*/updates/stepccl/dma_engine.ko* /lib/modules/*/updates/dkms/dma_engine.ko* /lib/modules/*/updates/dma_engine.ko* /lib/modules/*/extra/dma_engine.ko*; do [ ! -e \"$f\" ] || echo \"$f\"; done" }], ...quick, valuesOnly: true },
  { id: "driver_state", kind: "modules", attempts: [{ command: "grep -sH . /sys/class/misc/dma_device/stats/* /sys/class/misc/dma_device/last_error /sys/module/dma_engine/version /sys/module/dma_engine/refcnt; stepccl-dma info 2>&1" }], ...quick, answers: [1, 2, 127], valuesOnly: true },
  { id: "service", kind: "service", attempts: [{ command: "systemctl show stepccld.service --no-pager -p LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,NRestarts,MainPID" }], ...quick, valuesOnly: true },
  { id: "service_log", kind: "service", attempts: [{ command: "journalctl -u stepccld.service --no-pager -q -n 200 -o short-iso", root: true }, { command: "journalctl -u stepccld.service --no-pager -q -n 200 -o short-iso" }], ...quick },
  { id: "stepccld_limits", kind: "limits", light: true, attempts: [{ command: "p=$(pgrep -ox stepccld) && cat /proc/\"$p\"/limits" }], ...quick },
  { id: "processes", kind: "service", light: true, attempts: [{ command: "ps -eo pid,stat,etimes,comm --no-headers" }], ...quick, valuesOnly: true },
  { id: "rdma_ports", kind: "rdma_ports", light: true, attempts: [{ command: "grep -sH . /sys/class/infiniband/*/ports/*/state /sys/class/infiniband/*/ports/*/phys_state /sys/class/infiniband/*/ports/*/link_layer /sys/class/infiniband/*/ports/*/rate /sys/class/infiniband/*/ports/*/lid /sys/class/infiniband/*/ports/*/sm_lid; [ -d /sys/class/infiniband ]" }], ...quick, answers: [1, 2] },
  { id: "rdma_link", kind: "rdma_ports", light: true, attempts: [{ command: "rdma link show" }], ...quick },
  { id: "gids", kind: "gid_table", light: true, attempts: [{ command: GIDS }], ...quick },
  { id: "counters", kind: "counters", attempts: [{ command: `${COUNTER_FILES}; sleep ${COUNTER_INTERVAL_S}; ${COUNTER_FILES}; true` }], timeoutMs: 40_000, maxBytes: 1024 * 1024, beside: true },
  { id: "pci", kind: "pci", attempts: [{ command: "lspci -vv", root: true }, { command: "lspci -vv" }], timeoutMs: 40_000, maxBytes: 2 * 1024 * 1024, beside: true },
  { id: "gpu", kind: "gpu", attempts: [{ command: "nvidia-smi -q; nvidia-smi topo -m" }], timeoutMs: 60_000, maxBytes: 1024 * 1024, beside: true },
  { id: "ip_addr", kind: "network", light: true, attempts: [{ command: "ip -o addr show" }], ...quick, valuesOnly: true },
  { id: "ip_link", kind: "network", light: true, attempts: [{ command: "ip -s link show" }], ...quick, valuesOnly: true },
  { id: "qdisc", kind: "network", light: true, attempts: [{ command: "tc qdisc show" }], ...quick, valuesOnly: true },
  { id: "firewall", kind: "network", attempts: [{ command: "nft -a list ruleset", root: true }, { command: "iptables-save", root: true }], ...quick, valuesOnly: true },
  { id: "disk", kind: "disk", attempts: [{ command: "df -P -k / /var/lib /opt /run /dev/shm" }], ...quick, answers: [1] },
  { id: "large_files", kind: "disk", attempts: [{ command: LARGE_FILES, root: true }, { command: LARGE_FILES }], ...quick, timeoutMs: 90_000, valuesOnly: true },
  { id: "memory", kind: "memory", light: true, attempts: [{ command: "cat /proc/meminfo" }], ...quick },
  { id: "clock", kind: "clock", light: true, attempts: [{ command: "date +%s.%N" }], ...quick, valuesOnly: true },
  { id: "time_sync", kind: "clock", light: true, attempts: [{ command: "if [ -e /run/systemd/timesync/synchronized ]; then echo NTPSynchronized=yes; else echo NTPSynchronized=no; fi; chronyc -n tracking 2>/dev/null; true" }], ...quick, valuesOnly: true },
  { id: "command_line", kind: "kernel_log", light: true, attempts: [{ command: "cat /proc/cmdline" }], ...quick },
  // Only shown: on a slow node their turn comes last.
  { id: "ibstat", kind: "rdma_ports", attempts: [{ command: "ibstat" }], ...quick, valuesOnly: true },
  { id: "ibv_devinfo", kind: "rdma_ports", attempts: [{ command: "ibv_devinfo" }], ...quick, valuesOnly: true },
  { id: "rdma_resources", kind: "rdma_ports", light: true, attempts: [{ command: "rdma resource show" }], ...quick, valuesOnly: true },
  { id: "ip_route", kind: "network", attempts: [{ command: "ip route show table all" }], ...quick, valuesOnly: true },
  { id: "sysctl", kind: "network", light: true, attempts: [{ command: "sysctl -e net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce net.ipv4.conf.all.rp_filter net.ipv4.ip_local_port_range net.core.rmem_max net.core.wmem_max vm.nr_hugepages kernel.dmesg_restrict" }], ...quick, valuesOnly: true },
] as const satisfies readonly SourceSpec[];

export type SourceId = (typeof FIXED)[number]["id"] | "peers" | "cluster";
export type Spec = SourceSpec & { id: SourceId };

/** Echoes in one go: enough to lose one nearly always where 5 % are lost each way (1 - 0.9025^60). */
const ECHOES = 60;
/** Where one was lost, so many more tell a lossy link from a busy machine. */
const MORE_ECHOES = 240;
/** The kernel answers a connection at once; ten seconds are three of its repeats. */
const TCP_TIMEOUT_S = 10;

/** The sources of one node; `peers` are the data addresses of the other members. */
export function sourcesFor(peers: readonly string[]): Spec[] {
  const addresses = peers.filter((p) => isIP(p) !== 0).slice(0, 16);
  if (addresses.length === 0) return [...FIXED];
  // Three questions to each: does it answer at all and completely, does a full frame pass, does TCP get through.
  const command = [
    `for p in ${addresses.join(" ")}; do echo "peer $p"; m=1500; d=; for w in $(ip -o route get "$p" 2>/dev/null); do [ "$d" != dev ] || { read -r m <"/sys/class/net/$w/mtu"; break; }; d=$w; done;`,
    `echoes() { r=$(ping -q -n -c "$1" -i 0.02 -W 1 "$p" 2>&1); echo "$r" | while IFS= read -r l; do case $l in *transmitted* | rtt*) echo "$l" ;; esac; done; };`,
    `echoes ${ECHOES}; case $r in *", 0% packet loss"* | *", 100% packet loss"*) ;; *transmitted*) echoes ${MORE_ECHOES} ;; esac;`,
    "if ping -q -n -M do -s $((m - 28)) -c 3 -i 0.2 -W 3 \"$p\" >/dev/null 2>&1; then echo \"full frame of $m passes\"; else echo \"full frame of $m does not pass\"; fi;",
    // The same connection to this node itself: when that is late too, the machine is slow and nothing is blocked.
    `timeout ${TCP_TIMEOUT_S} bash -c \"exec 3<>/dev/tcp/$p/22\" 2>/dev/null; s=$?; if [ $s = 124 ]; then timeout ${TCP_TIMEOUT_S} bash -c \"exec 3<>/dev/tcp/127.0.0.1/22\" 2>/dev/null || s=slow; fi; echo \"tcp status $s\"; done`,
  ].join(" ");
  return [...FIXED, { id: "peers", kind: "cluster", attempts: [{ command }], timeoutMs: 20_000 + addresses.length * 40_000, maxBytes: 64 * 1024, valuesOnly: true, beside: true }];
}
