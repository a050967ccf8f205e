import type { LinkView, NodeView, TelemetryTick } from "../../electron/contract/index.js";

/** Samples that go up and down by themselves; node n4 has stopped telling. */
export class FakeTelemetry {
  readonly #began = Date.now();
  readonly #totals = new Map<string, number>();

  tick(nodes: readonly NodeView[], links: readonly LinkView[], now: number): TelemetryTick {
    const fresh = nodes.filter((node) => node.phase === "up" || node.phase === "degraded");
    const wave = (seed: number) => Math.max(0, Math.sin(now / 4000 + seed)) ** 2;
    const flows: TelemetryTick["flows"] = [];
    for (const link of links) {
      if (link.state !== "up" || link.transport !== "rdma") continue;
      const seed = Number(link.from.slice(1)) * 7 + Number(link.to.slice(1));
      const bytesPerSecond = seed % 5 === 0 || nodes.length < 16 ? Math.round(wave(seed) * 2.4e9) : 0;
      const key = `${link.from}/${link.to}`;
      const bytes = (this.#totals.get(key) ?? seed * 1e9) + bytesPerSecond / 2;
      this.#totals.set(key, bytes);
      if (bytesPerSecond > 0) flows.push({ from: link.from, to: link.to, transport: link.transport, bytesPerSecond, bytes, queueDepth: 4, errors: 0 });
    }
    return {
      atMs: now, flows,
      nodes: fresh.map((node, index) => ({
        nodeId: node.id, sampledAtMs: node.id === "n4" && nodes.length < 16 ? this.#began - 12_000 : now, ranks: 0, lostOps: 0, daemonRssKib: 3700 + (index % 7) * 12, cpuPermille: 20, memoryAvailableBytes: 700 * 1024 ** 3,
        nics: [
          { name: "eth1", kind: "netdev", state: "active", speedMbps: 25000, txBytesPerSecond: wave(index) * 2.4e9, rxBytesPerSecond: wave(index + 1) * 2.2e9, txBytes: 1e12, rxBytes: 1e12, errors: 0, drops: 0 },
          { name: "rxe0", kind: "rdma", state: "active", speedMbps: 25000, txBytesPerSecond: wave(index) * 2.3e9, rxBytesPerSecond: wave(index + 1) * 2.1e9, txBytes: 1e12, rxBytes: 1e12, errors: node.id === "n2" ? 3 : 0, drops: 0 },
        ],
      })),
    };
  }
}
