import { findingId } from "../engine.js";
import type { Scan } from "../scan.js";
import type { Group, Text } from "../types.js";
import { lines, text, type LiveNode } from "./read.js";

/** Up to when the log of a finding is history, by the finding's id: it was mended then. Uptime counts within one boot only. */
export type Settled = ReadonlyMap<string, { time: number; clock: string; bootId: string }>;

/** Sources that tell what was, not what is. */
const LOGS = new Set(["kernel_log", "service_log"]);
const LIMIT_UNLIMITED = /^Max locked memory +unlimited/;
/** At this share a file system counts as full; where the rule of `df` begins. */
const FULL_PERCENT = 97;

interface Refutation { classes: RegExp; device?: string; now(node: LiveNode): boolean | undefined; why: Text }

/** What the log alone says of these, and the node's present state denies, is over. `now` gives undefined where the state is not known. */
const REFUTED: readonly Refutation[] = [
  { classes: /^host\.disk_full$/, now: (node) => lines(node, "disk")?.slice(1).every((l) => Number(/ (\d{1,3})% /.exec(l)?.[1] ?? 0) < FULL_PERCENT), why: ["Every file system has space now: these lines are of earlier.", "现在所有文件系统都有空间：这些日志来自之前。"] },
  { classes: /^module\.(?!taint)/, device: "dma_engine", now: (node) => lines(node, "modules")?.some((l) => /^dma_engine\s/.test(l)), why: ["The module is loaded now: this line is of an earlier attempt.", "模块现已加载：此日志来自之前的尝试。"] },
  { classes: /^module\.(?!taint)/, device: "dma_engine", now: (node) => { const kernel = text(node, "kernel")?.trim(); return kernel === undefined ? undefined : lines(node, "module_files")?.every((f) => !f.startsWith(`/lib/modules/${kernel}/`)); }, why: ["No such module file is there now: this line is of an earlier attempt.", "现在没有该模块文件：此日志来自之前的尝试。"] },
  { classes: /^(?:rdma|host)\.memlock/, now: (node) => lines(node, "stepccld_limits")?.some((l) => LIMIT_UNLIMITED.test(l)), why: ["The daemon's limit is lifted now: these lines are of earlier.", "守护进程的上限现已取消：这些日志来自之前。"] },
  { classes: /^perm\.dma_device_node$/, now: (node) => lines(node, "dma_device")?.some((l) => /^crw-rw----\S? +\d+ root +stepccl /.test(l)), why: ["The node is open to its group now: these lines are of earlier.", "该设备节点现已对其用户组开放：这些日志来自之前。"] },
];

/** Makes a note of what only a log says, where the present state denies it, or where it was mended and was not logged since. */
export function settleHistory(scan: Scan, node: LiveNode, settled: Settled): void {
  for (const group of scan.groups.values()) {
    if (group.severity === "info") continue;
    const why = refuted(group, node) ?? mended(group, node, settled);
    if (!why) continue;
    group.severity = "info";
    group.checked.push(why);
  }
}

function refuted(group: Group, node: LiveNode): Text | undefined {
  if (group.evidence.length === 0 || !group.evidence.every((e) => LOGS.has(e.source))) return undefined;
  return REFUTED.find((r) => r.classes.test(group.class) && (r.device === undefined || group.device === r.device) && r.now(node) === true)?.why;
}

function mended(group: Group, node: LiveNode, settled: Settled): Text | undefined {
  const until = settled.get(findingId(group));
  if (!until || !group.last || group.last.clock !== until.clock || group.last.time > until.time) return undefined;
  if (until.clock === "uptime" && text(node, "boot")?.trim() !== until.bootId) return undefined;
  return ["It was mended, and has not been logged since.", "已修复，此后未再记录。"];
}
