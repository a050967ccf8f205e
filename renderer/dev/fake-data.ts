import type { LinkView, NodeFacts, NodeView } from "../../electron/contract/index.js";

/** Stands in every text that names the source, so that no picture of it passes for a real cluster. */
export const FAKE_MARK = "SCRIPTED-DATA-ONLY";
const MIB = 1024 ** 2;

export function fakeFacts(index: number, now: number, gpus: number): NodeFacts {
  return {
    collectedAtMs: now, hostname: `node${index}`, os: "Debian GNU/Linux 12 (bookworm)", kernel: "6.1.0-57-amd64", cpuModel: "AMD EPYC 9354 32-Core Processor", cpuThreads: 64, numaNodes: 2,
    memoryTotalBytes: 768 * 1024 * MIB, memoryAvailableBytes: 700 * 1024 * MIB, memlockBytes: index % 3 === 2 ? 8 * MIB : null,
    nics: [
      { name: "eth0", state: "up", speedMbps: 1000, mtuBytes: 1500, mac: "52:54:00:00:00:01", driver: "virtio_net", pci: "0000:00:02.0", numaNode: 0, addresses: [`10.0.2.${index}/24`], rdmaDevice: null },
      { name: "eth1", state: "up", speedMbps: 25000, mtuBytes: 9000, mac: "52:54:00:00:01:01", driver: "mlx5_core", pci: "0000:41:00.0", numaNode: 1, addresses: [`10.77.0.${index}/24`, "fe80::5054:ff:fe00:101/64"], rdmaDevice: "rxe0" },
    ],
    rdma: [{
      name: "rxe0", netdev: "eth1", port: 1, state: "active", linkLayer: "ethernet", rateGbps: 25, activeMtuBytes: 4096,
      gids: [{ index: 0, gid: "fe80:0000:0000:0000:5054:00ff:fe00:0101", type: "roce_v2" }, { index: 1, gid: "0000:0000:0000:0000:0000:ffff:0a4d:0001", type: "roce_v2" }],
    }],
    gpus: Array.from({ length: gpus }, (_, gpu) => ({ index: gpu, uuid: `GPU-${index}-${gpu}`, name: "NVIDIA H200", pci: `0000:${(0x17 + gpu * 4).toString(16)}:00.0`, numaNode: gpu < gpus / 2 ? 0 : 1, memoryTotalBytes: 141 * 1024 * MIB, memoryUsedBytes: (gpu + 1) * 900 * MIB, nvlinksActive: 18 })),
    driver: { present: true, version: "1.0.0", abi: "1.0", deviceMode: "0660", accessible: true, lastError: null },
    unreadable: index % 3 === 1 ? ["nvidia-smi: command not found"] : [],
  };
}

/** A fingerprint with the right form; not of any key. */
export const fakeFingerprint = (index: number): string => {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  let seed = Math.imul(index, 2654435761) >>> 0;
  let text = "";
  for (let at = 0; at < 43; at++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    text += alphabet[seed >>> 26];
  }
  return `SHA256:${text}`;
};

export function fakeNode(index: number, name: string, change: Partial<NodeView>, now: number): NodeView {
  return {
    id: `n${index}`, name, host: `10.0.2.${index % 250}`, port: 22, user: "ops", authKind: "agent", keyPath: null, jump: [], dataAddress: `10.77.0.${index % 250}`, phase: "up",
    hostKey: { status: "trusted", algorithm: "ssh-ed25519", offered: fakeFingerprint(index), trusted: fakeFingerprint(index), source: "operator, 2026-11-30" },
    connection: { state: "connected", sinceMs: now - 60_000 }, agent: { state: "running", version: "0.1.0", rssKib: 3720 }, member: index, facts: fakeFacts(index, now, 8), error: null, lastSeenMs: now, addedAtMs: now - 3_600_000,
    ...change,
  };
}

const FRESH = { phase: "needs_host_key", agent: { state: "unknown", version: null, rssKib: null }, member: null, facts: null, lastSeenMs: null, dataAddress: null, connection: { state: "disconnected", sinceMs: 0 } } as const;

/** The fleet of the default scene: one node in each state that the page must show. */
export function fakeFleet(now: number): NodeView[] {
  const offered = (index: number) => ({ status: "unconfirmed" as const, algorithm: "ssh-ed25519", offered: fakeFingerprint(index), trusted: null, source: null });
  return [
    fakeNode(1, "gpu-01", {}, now), fakeNode(2, "gpu-02", {}, now), fakeNode(3, "gpu-03", {}, now), fakeNode(4, "gpu-04", {}, now),
    fakeNode(5, "gpu-05", { phase: "degraded", error: { code: "H315", message: "The driver on 10.0.2.5 loaded, but /dev/dma_device is root:root 0600.", next: "Check udev on the node: the rule 70-stepccl.rules must apply.", params: { host: "10.0.2.5", path: "/dev/dma_device", found: "root:root 0600" } } }, now),
    fakeNode(6, "gpu-06", { phase: "unreachable", connection: { state: "disconnected", sinceMs: now - 320_000 }, lastSeenMs: now - 320_000, error: { code: "H207", message: "The connection to 10.0.2.6 was lost: keepalive got no answer.", next: "The console reconnects by itself; check the node if it stays away.", params: { host: "10.0.2.6", detail: "keepalive got no answer" } } }, now),
    fakeNode(7, "gpu-07", { ...FRESH, hostKey: offered(7) }, now),
    fakeNode(8, "gpu-08", { ...FRESH, hostKey: { ...offered(8), status: "changed", trusted: fakeFingerprint(80), source: "~/.ssh/known_hosts:14" } }, now),
    fakeNode(9, "gpu-09", { phase: "reachable", agent: { state: "absent", version: null, rssKib: null }, member: null, facts: { ...fakeFacts(9, now, 8), driver: { present: false, version: null, abi: null, deviceMode: null, accessible: false, lastError: null } }, jump: ["ops@bastion.example.net"] }, now),
    fakeNode(10, "gpu-10", { phase: "failed", agent: { state: "absent", version: null, rssKib: null }, member: null, error: { code: "H204", message: "10.0.2.10 refuses user ops with the credentials tried: agent offers 2 keys, none accepted.", next: "Check the user name and key, and that the public key is in the node's authorized_keys.", params: { host: "10.0.2.10", user: "ops", detail: "agent offers 2 keys, none accepted" } }, facts: null, lastSeenMs: now - 42_000 }, now),
    fakeNode(11, "\u001b[31mevil\u202egnp.exe\u0007<b>x</b>", { ...FRESH, phase: "new", hostKey: { status: "unknown", algorithm: null, offered: null, trusted: null, source: null } }, now),
  ];
}

/** Racks of sixteen, all up but a few: for the map and the lists at scale. */
export function fakeBigFleet(count: number, now: number): NodeView[] {
  return Array.from({ length: count }, (_, index) => {
    const rack = String(Math.floor(index / 16) + 1).padStart(2, "0");
    const slot = String((index % 16) + 1).padStart(2, "0");
    const phase = index % 97 === 5 ? "failed" : index % 61 === 7 ? "unreachable" : index % 43 === 9 ? "degraded" : "up";
    return fakeNode(index + 1, `rack${rack}-gpu${slot}`, { phase, lastSeenMs: phase === "unreachable" ? now - 90_000 : now }, now);
  });
}

/** The links between the nodes that are up, in both directions. */
export function fakeLinks(nodes: readonly NodeView[], now: number): LinkView[] {
  const links: LinkView[] = [];
  const up = nodes.filter((node) => node.phase === "up" || node.phase === "degraded" || node.phase === "unreachable");
  // A true fleet tells of all pairs; a big scripted one of each node's next eight.
  const reach = up.length > 16 ? 8 : up.length;
  up.forEach((a, index) => {
    for (const b of up.slice(index + 1, index + 1 + reach)) {
      for (const transport of ["tcp", "rdma"] as const) {
        const down = a.phase === "unreachable" || b.phase === "unreachable";
        const [fromPort, toPort] = transport === "tcp" ? ["eth1", "eth1"] : ["rxe0", "rxe0"];
        const link = { transport, fromPort, toPort, state: down ? "down" as const : "up" as const, rttUs: down ? null : transport === "tcp" ? 182.4 : 24.1, measuredAtMs: now, reason: down ? "no echo for 30 s" : null };
        links.push({ ...link, from: a.id, to: b.id }, { ...link, from: b.id, to: a.id });
      }
    }
  });
  return links;
}
