/**
 * What is read on a node. Commands only read, need no argument from outside, and run as the SSH user; one that needs root is
 * tried without it first. `PATH` is completed because a login without a terminal often lacks the sbin folders.
 */
export interface SourceSpec {
  id: string;
  /** Tried in order until one can be read. */
  attempts: readonly { command: string; root?: boolean }[];
  timeoutMs: number;
  maxBytes: number;
  /** Statuses that are an answer, not a failure (such as `modinfo` of a module that is not there). */
  answers?: readonly number[];
}

const quick = { timeoutMs: 10_000, maxBytes: 256 * 1024 } as const;
const log = { timeoutMs: 20_000, maxBytes: 4 * 1024 * 1024 } as const;

/** Each port of each RDMA device as sysfs shows it: works without the RDMA tools. */
const RDMA_SYSFS = [
  "for p in /sys/class/infiniband/*/ports/*; do [ -d \"$p\" ] || continue;",
  "echo \"port $(basename \"$(dirname \"$(dirname \"$p\")\")\") $(basename \"$p\")\";",
  "for f in state phys_state link_layer rate; do echo \"$f $(cat \"$p/$f\" 2>/dev/null)\"; done;",
  "for n in \"$(dirname \"$(dirname \"$p\")\")\"/device/net/* \"$(dirname \"$(dirname \"$p\")\")\"/parent; do [ -e \"$n\" ] || continue; case $n in */parent) echo \"netdev $(cat \"$n\")\";; *) echo \"netdev ${n##*/}\";; esac; break; done;",
  "for g in \"$p\"/gids/*; do v=$(cat \"$g\" 2>/dev/null); case $v in *[1-9a-f]*) echo \"gid ${g##*/} $v $(cat \"$p/gid_attrs/types/${g##*/}\" 2>/dev/null)\";; esac; done; done; true",
].join(" ");

export const SOURCES = [
  { id: "kernel_log", attempts: [{ command: "dmesg" }, { command: "dmesg", root: true }, { command: "journalctl -k -b --no-pager -q -n 20000 -o short-monotonic" }], ...log },
  { id: "dma_device", attempts: [{ command: "ls -l /dev/dma_device" }], ...quick, answers: [2] },
  { id: "identity", attempts: [{ command: "id" }], ...quick },
  { id: "group", attempts: [{ command: "getent group stepccl" }], ...quick, answers: [2] },
  { id: "kernel", attempts: [{ command: "uname -r" }], ...quick },
  { id: "modules", attempts: [{ command: "cat /proc/modules" }], ...quick },
  { id: "module_info", attempts: [{ command: "modinfo dma_engine" }], ...quick, answers: [1] },
  { id: "service", attempts: [{ command: "systemctl show stepccld.service --no-pager -p LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,NRestarts,MainPID" }], ...quick },
  { id: "service_log", attempts: [{ command: "journalctl -u stepccld.service --no-pager -q -n 200 -o short-iso", root: true }, { command: "journalctl -u stepccld.service --no-pager -q -n 200 -o short-iso" }], ...quick },
  { id: "daemon_limits", attempts: [{ command: "p=$(systemctl show -p MainPID --value stepccld.service) && [ \"${p:-0}\" != 0 ] && cat /proc/\"$p\"/limits" }], ...quick },
  { id: "rdma_sysfs", attempts: [{ command: RDMA_SYSFS }], ...quick },
  { id: "ibstat", attempts: [{ command: "ibstat" }], ...quick },
  { id: "ibv_devinfo", attempts: [{ command: "ibv_devinfo" }], ...quick },
  { id: "rdma_link", attempts: [{ command: "rdma link show" }], ...quick },
  { id: "ip_addr", attempts: [{ command: "ip -o addr show" }], ...quick },
  { id: "ip_link", attempts: [{ command: "ip -s link show" }], ...quick },
  { id: "disk", attempts: [{ command: "df -P -k / /var/lib /opt /run /dev/shm" }], ...quick, answers: [1] },
  { id: "clock", attempts: [{ command: "date +%s.%N" }], ...quick },
  { id: "uptime", attempts: [{ command: "uptime" }], ...quick },
] as const satisfies readonly SourceSpec[];

export type SourceId = (typeof SOURCES)[number]["id"];
