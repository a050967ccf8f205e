import { describe, expect, it } from "vitest";
import type { RoutePath } from "../link/schemas.js";
import { mergeLinks } from "./links.js";

const path = (local: string, peer: string, more: Partial<RoutePath> = {}): RoutePath => ({
  transport: "tcp", local_address: local, peer_address: peer, netdev: "eth1", rdma_device: null, gid_index: null, state: "up", rtt_us: 100, measured_at_ms: 5, reason: null, ...more,
});
const nodeOf = (member: number): string | undefined => ["a", "b", "c"][member];

describe("mergeLinks", () => {
  it("each direction is a link: measured by its own end, with both ends' ports", () => {
    const view = mergeLinks([
      { nodeId: "a", member: 0, routes: { epoch: 3, routes: [{ from: 0, to: 1, paths: [path("10.0.0.1", "10.0.0.2", { rtt_us: 120, measured_at_ms: 9 })] }, { from: 1, to: 0, paths: [path("x", "y", { state: "unknown" })] }] } },
      { nodeId: "b", member: 1, routes: { epoch: 2, routes: [{ from: 1, to: 0, paths: [path("10.0.0.2", "10.0.0.1", { netdev: "eth7" })] }] } },
    ], nodeOf);
    expect(view).toEqual({ epoch: 3, links: [
      { from: "a", to: "b", transport: "tcp", fromPort: "eth1", toPort: "eth7", state: "up", rttUs: 120, measuredAtMs: 9, reason: null },
      { from: "b", to: "a", transport: "tcp", fromPort: "eth7", toPort: "eth1", state: "up", rttUs: 100, measuredAtMs: 5, reason: null },
    ] });
  });
  it("rails stay apart, a direction may be down alone, RDMA is named by its device", () => {
    const rdma = { transport: "rdma" as const, rdma_device: "rxe0" };
    const view = mergeLinks([
      { nodeId: "a", member: 0, routes: { epoch: 1, routes: [{ from: 0, to: 1, paths: [path("10.0.0.1", "10.0.0.2", rdma), path("10.1.0.1", "10.1.0.2", { netdev: "eth2" })] }] } },
      { nodeId: "b", member: 1, routes: { epoch: 1, routes: [{ from: 1, to: 0, paths: [path("10.1.0.2", "10.1.0.1", { state: "down", reason: "no carrier", rtt_us: null }), path("10.0.0.2", "10.0.0.1", rdma)] }] } },
    ], nodeOf);
    expect(view.links).toMatchObject([
      { from: "a", transport: "rdma", fromPort: "rxe0", toPort: "rxe0", state: "up" }, { from: "a", transport: "tcp", fromPort: "eth2", toPort: "eth1", state: "up" },
      { from: "b", transport: "tcp", fromPort: "eth1", toPort: "eth2", state: "down", reason: "no carrier" }, { from: "b", transport: "rdma", state: "up" },
    ]);
  });
  it("a silent node's paths come from what others derive, and say so", () => {
    const view = mergeLinks([
      { nodeId: "a", member: 0, routes: { epoch: 1, routes: [{ from: 0, to: 1, paths: [path("10.0.0.1", "10.0.0.2", { state: "down" })] }, { from: 1, to: 2, paths: [path("10.0.0.2", "10.0.0.3", { state: "unknown", rtt_us: null, measured_at_ms: null })] }] } },
    ], nodeOf);
    expect(view.links).toMatchObject([{ from: "a", to: "b", state: "down", toPort: null }, { from: "b", to: "c", state: "unknown", rttUs: null }]);
  });
  it("members that no node of ours is are left out", () => {
    const view = mergeLinks([{ nodeId: "a", member: 0, routes: { epoch: 1, routes: [{ from: 0, to: 9, paths: [path("1", "2")] }] } }], nodeOf);
    expect(view.links).toEqual([]);
  });
});
