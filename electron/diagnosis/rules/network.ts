import { rdmaPorts, type NodeSources, type RdmaPort } from "../facts.js";
import { between } from "./driver.js";
import { lineRule, type Hit, type Rule } from "./rule.js";

/** RDMA devices, their ports, and the IOMMU between them and memory. */

const IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:";

function portRule(name: string, severity: Rule["severity"], matches: (port: RdmaPort, all: readonly RdmaPort[]) => boolean): Rule {
  return {
    class: name, severity, needs: ["rdma_sysfs"],
    find: (sources) => {
      const ports = rdmaPorts(sources)!;
      return ports.filter((port) => matches(port, ports)).map((port): Hit => ({
        evidence: [{ source: "rdma_sysfs", line: port.line }, { source: "rdma_sysfs", line: port.stateLine }],
        params: { device: port.device, port: port.port, state: port.state, physState: port.physState, netdev: port.netdev ?? "its netdev" },
      }));
    },
  };
}
/** Another port of the same card works: this one is most likely not meant to be used. */
const spare = (port: RdmaPort, all: readonly RdmaPort[]): boolean => all.some((other) => other !== port && other.device === port.device && other.state === "active");
const isDown = (port: RdmaPort): boolean => port.state === "down" || port.state === "active_defer" || port.state === "unknown";

function noDevice(name: string, stackLoaded: boolean): Rule {
  return {
    class: name, severity: "medium", needs: ["rdma_sysfs", "modules"],
    find: (sources: NodeSources) => {
      if (rdmaPorts(sources)!.length > 0) return [];
      const stack = sources.lines("modules")!.find((line) => line.text.startsWith("ib_uverbs "));
      if ((stack !== undefined) !== stackLoaded) return [];
      return [{ evidence: stack ? [{ source: "modules", line: stack, meaning: "The verbs stack is loaded; no device has registered with it." }] : [] }];
    },
  };
}

/** Start-up noise of a display that scans out while the IOMMU takes over. */
const BOOT_SECONDS = 5;
const bootTransient = (lines: readonly { text: string; uptimeS: number | null }[]): boolean =>
  lines.every((line) => line.uptimeS !== null && line.uptimeS < BOOT_SECONDS && line.text.includes("[00:02.0]"));
const dmar = {
  source: "kernel_log" as const, anyOf: [["DMAR:", "fault addr"]],
  key: (text: string): string => between(text, "Request device [", "]"),
  params: (text: string) => ({ device: between(text, "Request device [", "]"), address: between(`${text} `, "fault addr ", " "), reason: between(text, "[fault reason ", "]") }),
};

export const networkRules: readonly Rule[] = [
  noDevice("perm.node_absent_module", false),
  noDevice("rdma.device_missing", true),
  portRule("link.down_polling", "high", (port, all) => isDown(port) && port.physState === "polling" && !spare(port, all)),
  portRule("link.disabled", "high", (port, all) => isDown(port) && port.physState !== "polling" && !spare(port, all)),
  portRule("link.unused_port_down", "info", (port, all) => isDown(port) && spare(port, all)),
  portRule("link.init_no_sm", "high", (port) => (port.state === "init" || port.state === "armed") && port.linkLayer === "infiniband"),
  portRule("link.not_active", "high", (port) => (port.state === "init" || port.state === "armed") && port.linkLayer !== "infiniband"),
  portRule("roce.gid_missing", "high", (port) =>
    port.linkLayer === "ethernet" && port.state === "active" && !port.gids.some((gid) => gid.type === "RoCE v2" && gid.gid.startsWith(IPV4_MAPPED))),
  lineRule({ ...dmar, class: "iommu.dmar_fault", severity: "high", accepts: (lines) => !bootTransient(lines) }),
  lineRule({ ...dmar, class: "iommu.dmar_boot_transient", severity: "info", accepts: bootTransient }),
];
