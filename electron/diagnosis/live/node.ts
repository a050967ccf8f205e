import type { Scan } from "../scan.js";
import { networkChecks } from "./network.js";
import { lines, properties, text, type LiveNode } from "./read.js";

/** Checks over values: the driver, the daemon, the data interface, its RDMA device and GID. Raises findings in `scan`. */
export function nodeChecks(scan: Scan, node: LiveNode): void {
  driver(scan, node);
  deviceMode(scan, node);
  service(scan, node);
  stopped(scan, node);
  memory(scan, node);
  networkChecks(scan, node);
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
    const device = text(node, "dma_device");
    if (device !== undefined && /No such file/.test(device)) scan.raise("dma.channel_unavailable", { lines: [{ source: "dma_device", line: device.trim() }], checked: [["The module is loaded; udev did not make the node, or it was removed.", "模块已加载；udev 没有创建节点，或节点被删除。"]] });
    return;
  }
  if (kernel && built && built !== kernel) {
    scan.raise("module.vermagic_mismatch", { device: "dma_engine", params: { built, running: kernel }, lines: [{ source: "module_info", line: vermagic! }, { source: "kernel", line: kernel }], checked: [["modinfo of the file that modprobe would take.", "modprobe 将使用的文件的 modinfo。"]] });
  }
  const here = files && kernel ? files.some((f) => f.startsWith(`/lib/modules/${kernel}/`)) : undefined;
  if (here === false || (here === undefined && info && !vermagic)) {
    scan.raise("driver.not_installed", { lines: [{ source: "module_files", line: files && files.length > 0 ? files.slice(0, 3).join(" ") : `no dma_engine.ko under /lib/modules/${kernel ?? ""}` }], checked: [["lsmod, and the module files of every kernel.", "lsmod 以及所有内核的模块文件。"]] });
  } else scan.raise("driver.not_loaded", { lines: [{ source: "modules", line: "lsmod lists no dma_engine" }] });
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

/** Below this share of available memory the kernel is about to end processes. */
const SCARCE = 0.02;

function memory(scan: Scan, node: LiveNode): void {
  const rows = lines(node, "memory") ?? [];
  const kib = (name: string): number | null => { const m = rows.map((l) => new RegExp(`^${name}: +(\\d{1,15}) kB`).exec(l)).find((x) => x); return m ? Number(m[1]) : null; };
  const total = kib("MemTotal");
  const available = kib("MemAvailable");
  if (total === null || available === null || total === 0 || available / total >= SCARCE) return;
  scan.raise("host.oom", { lines: rows.filter((l) => /^Mem(?:Total|Available):/.test(l)).map((line) => ({ source: "memory", line })), meaning: [`${Math.round((available / total) * 1000) / 10} % is available`, `可用 ${Math.round((available / total) * 1000) / 10} %`] });
}

function stopped(scan: Scan, node: LiveNode): void {
  const held = (lines(node, "processes") ?? []).flatMap((line) => {
    const m = /^(\d{1,10}) +([Tt]\S{0,8}) +\d+ +(stepccl\S{0,20})$/.exec(line);
    return m ? [{ line, pid: m[1]!, program: m[3]! }] : [];
  });
  if (held.length === 0) return;
  scan.raise("host.process_stopped", {
    lines: held.slice(0, 4).map(({ line }) => ({ source: "processes", line })), count: held.length, params: { pid: held[0]!.pid, pids: held.map((h) => h.pid).slice(0, 16).join(" "), program: held[0]!.program },
    meaning: ["state T: stopped by a signal or a debugger", "状态 T：被信号或调试器暂停"],
  });
}
