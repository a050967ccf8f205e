import type { CollectedSources } from "../collect.js";
import type { SourceId } from "../sources.js";

/** A node as it was read, and what else the console knows of it. */
export interface LiveNode {
  nodeId: string;
  name: string;
  dataAddress: string | null;
  collected: CollectedSources;
  /** GID index that the cluster's membership names for this node; null = not set. */
  gidIndex: number | null;
  /** Interface and RDMA device of the data address as the membership has them: known even when the device is gone. */
  netdev?: string | null;
  rdmaDevice?: string | null;
}

/** Text of a source that could be read; undefined = unknown, never "fine". */
export function text(node: LiveNode, id: SourceId): string | undefined {
  const source = node.collected.get(id);
  return source?.view.state === "ok" ? source.text : undefined;
}
export function lines(node: LiveNode, id: SourceId): string[] | undefined {
  return text(node, id)?.split("\n").map((l) => l.trim()).filter((l) => l !== "").slice(0, 20_000);
}
export function properties(rows: readonly string[] | undefined): Map<string, string> {
  return new Map((rows ?? []).flatMap((l) => { const at = l.indexOf("="); return at > 0 ? [[l.slice(0, at), l.slice(at + 1)] as const] : []; }));
}

export interface Interface { name: string; mtu: number; up: boolean; line: string }

export function interfaces(node: LiveNode): Interface[] | undefined {
  return lines(node, "ip_link")?.flatMap((line) => {
    const m = /^\d{1,6}: ([^:@\s]{1,32})(?:@[^:\s]{1,32})?: <([A-Z0-9_,-]{0,300})> mtu (\d{1,6}) /.exec(line);
    return m ? [{ name: m[1]!, mtu: Number(m[3]), up: m[2]!.split(",").includes("UP") && !m[2]!.split(",").includes("NO-CARRIER"), line }] : [];
  });
}

/** The interface of the data address; without one, the one under the first RDMA device. */
export function dataInterfaceOf(node: LiveNode): Interface | undefined {
  const all = interfaces(node);
  const address = node.dataAddress;
  const byAddress = address === null ? undefined : lines(node, "ip_addr")?.map((l) => /^\d{1,6}: (\S{1,32}) +inet6? ([0-9a-fA-F.:]{2,45})\//.exec(l)).find((m) => m?.[2] === address)?.[1];
  const byRdma = /netdev (\S{1,32})/.exec(text(node, "rdma_link") ?? "")?.[1];
  const name = byAddress ?? node.netdev ?? byRdma;
  return all?.find((i) => i.name === name);
}

/** Names of the node's RDMA devices. */
export function rdmaNamesOf(node: LiveNode): string[] {
  return [...new Set([...(text(node, "rdma_link") ?? "").matchAll(/^(?:link |\d{1,6}: )?([\w.-]{1,40})\/\d+/gm)].map((m) => m[1]!))];
}

/** The largest files of a file system that is full, the largest first. */
export function largeFiles(node: LiveNode): { path: string; bytes: number }[] {
  return (lines(node, "large_files") ?? []).flatMap((l) => {
    const m = /^(\d{1,16}) (\/.{1,300})$/.exec(l);
    return m ? [{ path: m[2]!, bytes: Number(m[1]) }] : [];
  });
}
