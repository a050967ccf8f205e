import type { Severity } from "../../contract/index.js";
import { deviceNode, modinfoField } from "../facts.js";
import { lineRule, type Rule } from "./rule.js";

/** The driver: module, device node, and what it says itself. */

const MODULE = "dma_engine";
const loaded = (lines: readonly { text: string }[]): boolean => lines.some((line) => line.text.startsWith(`${MODULE} `));

/** Codes of the driver's log that mean something is wrong, with how bad it is (driver/README.md). */
const REPORTED: Record<string, Severity> = {
  DE003: "info", DE004: "info", DE005: "low", DE006: "low",
  DE101: "high", DE102: "medium", DE103: "medium", DE104: "high", DE105: "medium",
  DE201: "low", DE203: "medium", DE204: "high", DE205: "high",
  DE301: "critical", DE302: "high", DE303: "medium", DE304: "critical", DE501: "high",
};
const codeIn = (text: string): string => /dma_engine: (DE\d{3})/.exec(text)?.[1] ?? "";

const reported: Rule[] = Object.entries(REPORTED).map(([code, severity]) =>
  lineRule({
    class: `driver.${code.toLowerCase()}`, severity, source: "kernel_log", anyOf: [[`dma_engine: ${code} `]],
    params: (text) => ({ code: codeIn(text), text: text.slice(text.indexOf(code) + code.length + 1).slice(0, 200) }),
  }));

export const driverRules: readonly Rule[] = [
  lineRule({
    class: "module.vermagic_mismatch", severity: "high", source: "kernel_log", anyOf: [["version magic '", "should be '"]], explains: ["driver.not_loaded"],
    key: (text) => text.slice(0, text.indexOf(":")),
    params: (text) => ({
      module: text.slice(0, Math.max(0, text.indexOf(":"))).slice(-64), found: between(text, "version magic '", "'"), expected: between(text, "should be '", "'"),
    }),
  }),
  {
    class: "module.wrong_kernel", severity: "high", needs: ["module_info", "kernel", "modules"], explains: ["driver.not_loaded"],
    find: (sources) => {
      if (loaded(sources.lines("modules")!)) return [];
      const line = modinfoField(sources.lines("module_info")!, "vermagic");
      const built = line?.text.slice("vermagic:".length).trim().split(" ")[0];
      const release = sources.text("kernel")!.trim();
      if (!line || !built || built === release) return [];
      return [{ evidence: [{ source: "module_info", line }], params: { module: MODULE, found: built.slice(0, 80), expected: release.slice(0, 80) } }];
    },
  },
  lineRule({
    class: "module.key_rejected", severity: "high", source: "kernel_log", explains: ["driver.not_loaded"],
    anyOf: [["Key was rejected by service"], ["Loading of module with unavailable key is rejected"]],
    params: (text) => ({ module: between(text, "module '", "'") || MODULE }),
  }),
  lineRule({
    class: "module.lockdown_eperm", severity: "high", source: "kernel_log", explains: ["driver.not_loaded"],
    anyOf: [["Lockdown:", "unsigned module loading is restricted"], ["Loading of unsigned module is rejected"]],
  }),
  lineRule({
    class: "module.unknown_symbol", severity: "high", source: "kernel_log", anyOf: [["dma_engine: Unknown symbol "]], explains: ["driver.not_loaded"],
    params: (text) => ({ symbol: (text.slice(text.indexOf("Unknown symbol ") + 15).split(" ")[0] ?? "").slice(0, 80) }),
  }),
  lineRule({
    class: "module.symbol_version_mismatch", severity: "high", source: "kernel_log", anyOf: [["dma_engine: disagrees about version of symbol"]], explains: ["driver.not_loaded"],
  }),
  {
    class: "driver.not_loaded", severity: "high", needs: ["modules"], explains: ["dma.channel_unavailable"],
    find: (sources) => (loaded(sources.lines("modules")!) ? [] : [{ evidence: [], params: { module: MODULE } }]),
  },
  {
    class: "dma.channel_unavailable", severity: "high", needs: ["dma_device"],
    find: (sources) => (deviceNode(sources) === null ? [{ evidence: sources.lines("dma_device")!.slice(0, 1).map((line) => ({ source: "dma_device" as const, line })), params: { path: "/dev/dma_device" } }] : []),
  },
  {
    class: "perm.dma_device_node", severity: "medium", needs: ["dma_device"],
    find: (sources) => {
      const node = deviceNode(sources);
      if (!node || (node.mode === "0660" && node.group === "stepccl")) return [];
      return [{ evidence: [{ source: "dma_device", line: node.line }], params: { mode: node.mode, owner: node.owner, group: node.group } }];
    },
  },
  {
    class: "perm.user_not_in_group", severity: "medium", needs: ["identity", "group"],
    find: (sources) => {
      const identity = sources.lines("identity")![0];
      const group = sources.lines("group")![0];
      if (!identity || !group || identity.text.startsWith("uid=0(") || identity.text.includes("(stepccl)")) return [];
      const user = between(identity.text, "(", ")");
      const listed = (group.text.split(":")[3] ?? "").split(",").includes(user);
      return [{ evidence: [{ source: "identity", line: identity, ...(listed ? { meaning: "The group's list has the user: a new login takes it up." } : {}) }], params: { user } }];
    },
  },
  ...reported,
];

/** What stands between two texts; empty where they do not. */
export function between(text: string, before: string, after: string): string {
  const from = text.indexOf(before);
  if (from < 0) return "";
  const to = text.indexOf(after, from + before.length);
  return to < 0 ? "" : text.slice(from + before.length, to).trim().slice(0, 120);
}
