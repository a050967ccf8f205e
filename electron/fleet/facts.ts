import { isIP, isIPv4 } from "node:net";
import type { NodeFacts } from "../contract/index.js";
import type { AgentFacts } from "../link/schemas.js";
import { plainLine } from "../ssh/index.js";
import type { ClusterState } from "./store.js";

/** The daemon's facts in the terms of the contract. */
export function factsView(facts: AgentFacts, hostname: string): NodeFacts {
  const line = (text: string): string => plainLine(text, 256);
  const lineOrNull = (text: string | null): string | null => (text === null ? null : line(text));
  return {
    collectedAtMs: facts.collected_at_ms, hostname: line(hostname), os: lineOrNull(facts.os.pretty_name ?? facts.os.id), kernel: lineOrNull(facts.kernel.release), cpuModel: lineOrNull(facts.cpu.model),
    cpuThreads: facts.cpu.threads, numaNodes: facts.cpu.numa_nodes.length, memoryTotalBytes: facts.memory.total_bytes, memoryAvailableBytes: facts.memory.available_bytes,
    memlockBytes: facts.limits.memlock_bytes,
    nics: facts.nics.map((n) => ({
      name: line(n.name), state: n.state, speedMbps: n.speed_mbps, mtuBytes: n.mtu, mac: lineOrNull(n.mac), driver: n.driver, pci: n.pci, numaNode: n.numa_node,
      addresses: n.addresses.map((a) => `${line(a.address)}/${a.prefix}`), rdmaDevice: n.rdma_device,
    })),
    rdma: facts.rdma.flatMap((d) => d.ports.map((p) => ({
      name: line(d.name), netdev: d.netdev, port: p.port, state: p.state, linkLayer: p.link_layer, rateGbps: p.rate_gbps, activeMtuBytes: p.active_mtu_bytes,
      gids: p.gids.map((g) => ({ index: g.index, gid: line(g.gid), type: line(g.type) })),
    }))),
    gpus: facts.gpus.map((g) => ({
      index: g.index, uuid: line(g.uuid), name: line(g.name), pci: line(g.pci), numaNode: g.numa_node, memoryTotalBytes: g.memory_total_bytes, memoryUsedBytes: g.memory_used_bytes,
      nvlinksActive: g.nvlinks.filter((l) => l.active).length,
    })),
    driver: {
      present: facts.driver.present, version: facts.driver.version, abi: facts.driver.abi, deviceMode: facts.driver.device.mode,
      accessible: facts.driver.device.accessible, lastError: facts.driver.last_error === null ? null : plainLine(facts.driver.last_error),
    },
    unreadable: facts.unreadable.map((u) => plainLine(`${u.what}: ${u.message}`, 200)),
  };
}

type Address = ClusterState["members"][number]["addresses"][number];
type Nic = AgentFacts["nics"][number];

/** Interfaces that join containers and virtual machines of one host, never two hosts. */
const LOCAL_NETDEV = /^(lo$|docker|veth|virbr|br-|cni|flannel|cali|tap|tun|dummy)/;

/**
 * Where other members reach a node, best first: the operator's word; else the address of an interface that carries an RDMA
 * device; else one of an interface other than SSH's; else SSH's own. Among equals the one that the cluster knows stays.
 * @param sshAddress the node's end of the SSH connection
 * @param host what the operator entered, the last resort
 * @param known the address under which the cluster has the node now
 */
export function memberAddresses(facts: AgentFacts, explicit: string | null, sshAddress: string | null, host: string, known: string | null = null): Address[] {
  const usable = facts.nics.filter((n) => !LOCAL_NETDEV.test(n.name) && n.state !== "down").flatMap((nic) => nic.addresses.filter((a) => isUsable(a.address)).map((a) => ({ nic, address: a.address })));
  const onSsh = (entry: { nic: Nic }): boolean => sshAddress !== null && entry.nic.addresses.some((a) => a.address === sshAddress);
  const rank = (entry: { nic: Nic; address: string }): number =>
    (entry.nic.rdma_device ? 0 : onSsh(entry) ? 8 : 4) + (entry.nic.state === "up" ? 0 : 2) + (isIPv4(entry.address) ? 0 : 1) - (entry.address === known ? 0.5 : 0);
  const sorted = [...usable].sort((a, b) => rank(a) - rank(b));
  const addressOf = (entry: { nic: Nic; address: string }): Address => ({
    address: entry.address, netdev: entry.nic.name, rdma_device: entry.nic.rdma_device, gid_index: entry.nic.rdma_device ? gidIndex(facts, entry.nic.rdma_device, entry.address) : null,
  });
  if (explicit !== null) {
    const own = sorted.find((entry) => entry.address === explicit);
    return [own ? addressOf(own) : { address: explicit, netdev: null, rdma_device: null, gid_index: null }];
  }
  const best = sorted[0];
  if (!best) return [{ address: sshAddress ?? host, netdev: null, rdma_device: null, gid_index: null }];
  const more = best.nic.rdma_device ? sorted.filter((entry) => entry !== best && entry.nic.rdma_device && isIPv4(entry.address) === isIPv4(best.address)) : [];
  return [best, ...more].slice(0, 16).map(addressOf);
}

function isUsable(address: string): boolean {
  return isIP(address) !== 0 && !/^(127\.|169\.254\.|0\.|::1$|fe80:)/i.test(address);
}

/** The RoCE v2 GID that carries `address`; the first of its kind, or the first of InfiniBand, where none does. */
function gidIndex(facts: AgentFacts, device: string, address: string): number | null {
  const gids = facts.rdma.find((d) => d.name === device)?.ports[0]?.gids ?? [];
  const wanted = isIPv4(address) ? mappedGid(address) : null;
  const v2 = gids.filter((g) => g.type === "roce_v2");
  return (v2.find((g) => wanted !== null && expandGid(g.gid) === wanted) ?? v2[0] ?? gids.find((g) => g.type === "ib"))?.index ?? null;
}

/** ::ffff:a.b.c.d as 32 hex digits. */
function mappedGid(ipv4: string): string {
  return `${"0".repeat(20)}ffff${ipv4.split(".").map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`;
}

/** A GID as sysfs or inet_ntop writes it, as 32 hex digits; itself when it is neither. */
function expandGid(gid: string): string {
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(gid);
  const text = dotted ? `${dotted[1]}${mappedGid(dotted[2] ?? "").slice(24, 28)}:${mappedGid(dotted[2] ?? "").slice(28)}` : gid;
  const [head = "", tail] = text.split("::");
  const groups = (part: string): string[] => (part === "" ? [] : part.split(":").map((g) => g.padStart(4, "0")));
  const first = groups(head);
  const last = tail === undefined ? [] : groups(tail);
  return [...first, ...Array<string>(Math.max(0, tail === undefined ? 0 : 8 - first.length - last.length)).fill("0000"), ...last].join("").toLowerCase();
}
