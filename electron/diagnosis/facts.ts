import { normaliseLog, plainLines, type LogLine } from "./normalise.js";
import type { CollectedSources } from "./collect.js";
import type { SourceId } from "./sources.js";

/** What the sources say, parsed. A source that could not be read gives undefined: unknown, never "fine". */
export interface NodeSources {
  nodeId: string;
  /** Lines of a source, or undefined when it could not be read. */
  lines(id: SourceId): readonly LogLine[] | undefined;
  text(id: SourceId): string | undefined;
  collected: CollectedSources;
}

const LOGS: ReadonlySet<SourceId> = new Set<SourceId>(["kernel_log", "service_log"]);

export function sourcesOf(nodeId: string, collected: CollectedSources): NodeSources {
  const cache = new Map<SourceId, readonly LogLine[]>();
  const text = (id: SourceId): string | undefined => {
    const source = collected.get(id);
    return source?.view.state === "ok" ? source.text : undefined;
  };
  return {
    nodeId, collected, text,
    lines: (id) => {
      const whole = text(id);
      if (whole === undefined) return undefined;
      let lines = cache.get(id);
      if (!lines) cache.set(id, (lines = LOGS.has(id) ? normaliseLog(whole) : plainLines(whole)));
      return lines;
    },
  };
}

export interface DeviceNode {
  line: LogLine;
  mode: string;
  owner: string;
  group: string;
}
/** `ls -l /dev/dma_device`: the node, null when there is none, undefined when that cannot be told. */
export function deviceNode(sources: NodeSources): DeviceNode | null | undefined {
  const lines = sources.lines("dma_device");
  if (!lines) return undefined;
  for (const line of lines) {
    const match = /^c([rwxsStT-]{9})[.+@]? {1,8}\d{1,6} {1,8}(\S{1,64}) {1,16}(\S{1,64}) /.exec(line.text);
    if (match) return { line, mode: octal(match[1]!), owner: match[2]!, group: match[3]! };
  }
  return lines.some((line) => line.text.includes("No such file or directory")) ? null : undefined;
}

function octal(letters: string): string {
  const digit = (part: string): number => [..."rwx"].reduce((sum, _letter, i) => sum + (part[i] === "-" || part[i] === "S" || part[i] === "T" ? 0 : 4 >> i), 0);
  return `0${digit(letters.slice(0, 3))}${digit(letters.slice(3, 6))}${digit(letters.slice(6, 9))}`;
}

/** `key=value` lines, as `systemctl show` prints them. */
export function properties(lines: readonly LogLine[]): Map<string, string> {
  return new Map(lines.flatMap((line) => {
    const at = line.text.indexOf("=");
    return at > 0 ? [[line.text.slice(0, at), line.text.slice(at + 1)] as const] : [];
  }));
}

/** A field of `modinfo`, or undefined when the module is not there. */
export const modinfoField = (lines: readonly LogLine[], field: string): LogLine | undefined => lines.find((line) => line.text.startsWith(`${field}:`));

export interface RdmaPort {
  device: string;
  port: number;
  state: string;
  physState: string;
  linkLayer: string;
  netdev: string | null;
  gids: { index: number; gid: string; type: string }[];
  line: LogLine;
  stateLine: LogLine;
}
/** The output of the rdma_sysfs source. */
export function rdmaPorts(sources: NodeSources): RdmaPort[] | undefined {
  const lines = sources.lines("rdma_sysfs");
  if (!lines) return undefined;
  const ports: RdmaPort[] = [];
  for (const line of lines) {
    const [word = "", ...rest] = line.text.split(" ");
    const value = rest.join(" ").trim();
    const port = ports.at(-1);
    if (word === "port") ports.push({ device: (rest[0] ?? "").slice(0, 64), port: Number(rest[1] ?? 0), state: "unknown", physState: "unknown", linkLayer: "unknown", netdev: null, gids: [], line, stateLine: line });
    else if (!port) continue;
    else if (word === "state") Object.assign(port, { state: afterNumber(value).toLowerCase(), stateLine: line });
    else if (word === "phys_state") port.physState = afterNumber(value).toLowerCase();
    else if (word === "link_layer") port.linkLayer = value.toLowerCase();
    else if (word === "netdev") port.netdev = value.slice(0, 64);
    else if (word === "gid") port.gids.push({ index: Number(rest[0]), gid: rest[1] ?? "", type: rest.slice(2).join(" ").trim() });
  }
  return ports;
}
/** "4: ACTIVE" -> "ACTIVE". */
const afterNumber = (value: string): string => value.replace(/^\d{1,2}: ?/, "");

export interface Netdev {
  name: string;
  mtu: number;
  up: boolean;
  line: LogLine;
}
/** The first line of each interface of `ip -s link show`. */
export function netdevs(sources: NodeSources): Netdev[] | undefined {
  return sources.lines("ip_link")?.flatMap((line) => {
    const match = /^\d{1,6}: ([^:@\s]{1,32})(?:@[^:\s]{1,32})?: <([A-Z0-9_,-]{0,300})> mtu (\d{1,6}) /.exec(line.raw);
    return match ? [{ name: match[1]!, mtu: Number(match[3]), up: match[2]!.split(",").includes("UP"), line }] : [];
  });
}

/** Addresses by interface, of `ip -o addr show`. */
export function addresses(sources: NodeSources): Map<string, string[]> | undefined {
  const lines = sources.lines("ip_addr");
  if (!lines) return undefined;
  const found = new Map<string, string[]>();
  for (const line of lines) {
    const match = /^\d{1,6}: (\S{1,32}) {1,16}inet6? ([0-9a-fA-F.:]{2,45})\//.exec(line.text);
    if (match) found.set(match[1]!, [...(found.get(match[1]!) ?? []), match[2]!]);
  }
  return found;
}
