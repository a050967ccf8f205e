import { properties } from "../facts.js";
import type { NodeSources } from "../facts.js";
import type { Evidence, Rule } from "./rule.js";

/** The daemon and what it needs of its host. */

const MIN_MEMLOCK_BYTES = 64 * 1024 * 1024;
const FULL_PERCENT = 95;
const MIN_FREE_KIB = 64 * 1024;

/** The daemon's last words, for the quotation. */
function lastWords(sources: NodeSources): Evidence[] {
  const lines = sources.lines("service_log") ?? [];
  return lines.slice(-3).map((line) => ({ source: "service_log", line }));
}
const propertyLine = (sources: NodeSources, name: string): Evidence[] =>
  sources.lines("service")!.filter((line) => line.text.startsWith(`${name}=`)).slice(0, 1).map((line) => ({ source: "service", line }));

export const daemonRules: readonly Rule[] = [
  {
    class: "agent.not_installed", severity: "high", needs: ["service"],
    find: (sources) => (properties(sources.lines("service")!).get("LoadState") === "not-found" ? [{ evidence: propertyLine(sources, "LoadState") }] : []),
  },
  {
    class: "agent.crashed", severity: "high", needs: ["service"],
    find: (sources) => {
      const service = properties(sources.lines("service")!);
      const result = service.get("Result") ?? "success";
      if (service.get("ActiveState") !== "failed" && (result === "success" || service.get("ActiveState") === "active")) return [];
      return [{ evidence: [...propertyLine(sources, "Result"), ...lastWords(sources)], params: { result: result.slice(0, 40), status: (service.get("ExecMainStatus") ?? "").slice(0, 20) } }];
    },
  },
  {
    class: "agent.not_running", severity: "high", needs: ["service"],
    find: (sources) => {
      const service = properties(sources.lines("service")!);
      const state = service.get("ActiveState");
      if (service.get("LoadState") !== "loaded" || state === "active" || state === "failed" || (service.get("Result") ?? "success") !== "success") return [];
      return [{ evidence: propertyLine(sources, "ActiveState"), params: { state: (state ?? "unknown").slice(0, 40) } }];
    },
  },
  {
    class: "agent.restarted", severity: "low", needs: ["service"],
    find: (sources) => {
      const service = properties(sources.lines("service")!);
      const restarts = Number(service.get("NRestarts") ?? 0);
      if (!(restarts > 0) || service.get("ActiveState") !== "active") return [];
      return [{ evidence: propertyLine(sources, "NRestarts"), count: restarts, params: { restarts } }];
    },
  },
  {
    class: "host.memlock_service", severity: "high", needs: ["daemon_limits"],
    find: (sources) => {
      const line = sources.lines("daemon_limits")!.find((candidate) => candidate.text.startsWith("Max locked memory"));
      const soft = line?.text.slice("Max locked memory".length).trim().split(" ")[0];
      if (!line || !soft || soft === "unlimited" || !/^\d{1,20}$/.test(soft) || Number(soft) >= MIN_MEMLOCK_BYTES) return [];
      return [{ evidence: [{ source: "daemon_limits", line }], params: { limitBytes: Number(soft), neededBytes: MIN_MEMLOCK_BYTES } }];
    },
  },
  {
    class: "host.disk_full", severity: "high", needs: ["disk"],
    find: (sources) => sources.lines("disk")!.flatMap((line) => {
      const match = /^(\S{1,200}) {1,200}(\d{1,18}) {1,40}(\d{1,18}) {1,40}(\d{1,18}) {1,40}(\d{1,3})% (\/.{0,200})$/.exec(line.text);
      if (!match || match[6] === "/dev/shm" || match[6] === "/run") return [];
      const freeKib = Number(match[4]);
      if (Number(match[5]) < FULL_PERCENT && freeKib >= MIN_FREE_KIB) return [];
      return [{ evidence: [{ source: "disk" as const, line }], params: { path: match[6]!, freeBytes: freeKib * 1024, usedPercent: Number(match[5]) } }];
    }).slice(0, 8),
  },
  {
    class: "host.shm_small", severity: "high", needs: ["disk"],
    find: (sources) => sources.lines("disk")!.flatMap((line) => {
      const match = /^\S{1,200} {1,200}\d{1,18} {1,40}\d{1,18} {1,40}(\d{1,18}) {1,40}(\d{1,3})% \/dev\/shm$/.exec(line.text);
      return match && Number(match[1]) < 16 * 1024 ? [{ evidence: [{ source: "disk" as const, line }], params: { freeBytes: Number(match[1]) * 1024 } }] : [];
    }),
  },
];
