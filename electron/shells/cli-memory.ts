import type { Command } from "commander";
import type { NodeMemoryView, NodeView } from "../contract/index.js";
import { pickNodes, provideSecrets } from "./cli-nodes.js";
import { errorText } from "./cli-print.js";
import type { DiagnoseCommands } from "./cli-diagnose.js";
import { bytesText, table } from "./terminal.js";

const size = (bytes: number | null): string | null => (bytes === null ? null : bytesText(bytes));
const share = (permille: number | null): string | null => (permille === null ? null : `${(permille / 10).toFixed(1)}%`);

/** Host memory, then a row for each process on each GPU. */
export function memoryText(views: readonly NodeMemoryView[], nameOf: (nodeId: string) => string, nowMs: number): string {
  const hosts = table(["NODE", "HOST MEMORY", "AVAILABLE", "DAEMON RSS"], views.map((view) => [nameOf(view.nodeId), size(view.host.totalBytes), size(view.host.availableBytes), view.host.daemonRssKib === null ? null : `${view.host.daemonRssKib} KiB`]));
  const rows = views.flatMap((view) => view.processes.map((process) => {
    const { pool, defrag } = process;
    return [
      nameOf(view.nodeId), process.gpuIndex === null ? process.gpuUuid : String(process.gpuIndex), process.job, `${process.rank}/${process.worldSize}`, process.pid, size(pool.capacityBytes), size(pool.heldBytes), size(pool.usedBytes),
      size(pool.largestFreeBytes), share(pool.fragmentationPermille), process.errorCode ?? (defrag.intervalMs === null ? null : defrag.intervalMs === 0 ? "off" : defrag.blocked === null ? `${defrag.intervalMs} ms` : `held up: ${defrag.blocked}`),
      process.asyncLevel, `${Math.max(0, (nowMs - process.updatedAtMs) / 1000).toFixed(1)} s`,
    ];
  }));
  if (rows.length === 0) return `${hosts}\n\nNo GPU process publishes now.`;
  return `${hosts}\n\n${table(["NODE", "GPU", "JOB", "RANK", "PID", "CAPACITY", "HELD", "USED", "LARGEST FREE", "FRAGMENTED", "DEFRAG", "ASYNC", "AGE"], rows)}`;
}

/** Adds `memory`. */
export function addMemoryCommand(program: Command, c: DiagnoseCommands): void {
  program.command("memory").description("show the GPU pools and the host memory of nodes (of all that are up where none is named)").argument("[node...]").action(c.withHost(async (host, names: string[]) => {
    const picked = await pickNodes(host, names);
    await provideSecrets(host, picked, c.io);
    // A fresh process has no connection yet: dial before asking.
    const connected = await Promise.all(picked.map((node): Promise<NodeView> => host.request("nodes.connect", { nodeId: node.id }, c.signal).catch((error: unknown) => { if (c.signal.aborted) throw error; return node; })));
    const asked = names.length > 0 ? connected : connected.filter((node) => node.phase === "up" || node.phase === "degraded");
    const views = asked.length === 0 ? [] : await host.request("memory.get", { nodeIds: asked.map((node) => node.id) }, c.signal);
    const nameOf = (nodeId: string): string => asked.find((node) => node.id === nodeId)?.name ?? nodeId;
    if (c.isJson()) c.out(JSON.stringify(views, null, 2));
    else if (views.length === 0) c.out("No node is up: run stepccl up first.");
    else c.out(memoryText(views, nameOf, Date.now()));
    for (const view of views) {
      if (view.error) c.note(`${nameOf(view.nodeId)}: ${errorText(view.error)}`);
      if (!view.supported) c.note(`${nameOf(view.nodeId)}: its daemon is older and does not tell of GPU pools; stepccl up ${nameOf(view.nodeId)} renews it.`);
      if (view.damaged + view.omitted > 0) c.note(`${nameOf(view.nodeId)}: ${view.damaged + view.omitted} process(es) could not be shown.`);
    }
    return views.every((view) => view.error === null) ? c.exit.ok : c.exit.failed;
  }));
}
