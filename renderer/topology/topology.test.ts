import { describe, expect, it } from "vitest";
import type { LinkView } from "../../electron/contract/index.js";
import { fakeBigFleet, fakeFleet } from "../dev/fake-data.js";
import { TelemetryBuffer } from "../store/telemetry.js";
import { buildModel } from "./build-model.js";
import { laneId, laneRate, lanesOf } from "./lanes.js";
import { distanceToSegment, exitPoint, laneSegment, rateWidth } from "./scene/geometry.js";
import { neighbour, place, rackOf } from "./scene/placement.js";

const named = (count: number, name: (index: number) => string) => Array.from({ length: count }, (_, index) => ({ id: `n${index}`, name: name(index) }));
const shuffled = <T>(list: T[]): T[] => list.map((item, index) => [(index * 7919) % list.length, item] as const).sort((a, b) => a[0] - b[0]).map(([, item]) => item);

describe("placement", () => {
  it("does not depend on the order in which nodes came", () => {
    for (const count of [1, 2, 3, 11, 16, 17, 200, 1000]) {
      const nodes = named(count, (index) => `gpu-${index}`);
      const [one, two] = [place(nodes), place(shuffled(nodes))];
      expect([...two.boxes].sort()).toEqual([...one.boxes].sort());
    }
  });
  it("draws up to 16 nodes as cards that do not touch", () => {
    for (let count = 2; count <= 16; count++) {
      const boxes = [...place(named(count, (index) => `gpu-${index}`)).boxes.values()];
      for (const [i, a] of boxes.entries()) {
        for (const b of boxes.slice(i + 1)) {
          expect(Math.abs(a.x - b.x) >= a.width || Math.abs(a.y - b.y) >= a.height, `${count} nodes`).toBe(true);
        }
      }
    }
  });
  it("puts nodes of one rack together and knows a rack by a name with two numbers", () => {
    expect([rackOf("rack07-gpu03"), rackOf("r1.n2.example.net"), rackOf("gpu-12"), rackOf("login")]).toEqual(["rack07", "r1", null, null]);
    const placed = place(fakeBigFleet(64, 0));
    expect(placed.racks.map((rack) => rack.name)).toEqual(["rack01", "rack02", "rack03", "rack04"]);
    const first = placed.racks[0]!;
    for (let slot = 1; slot <= 16; slot++) {
      const box = placed.boxes.get(`n${slot}`)!;
      expect(box.x >= first.x && box.x + box.width <= first.x + first.width && box.y >= first.y && box.y + box.height <= first.y + first.height).toBe(true);
    }
  });
  it("finds every node at its middle and none in the gaps, at 1, 16 and 1000 nodes", () => {
    for (const count of [1, 16, 1000]) {
      const placed = place(fakeBigFleet(count, 0));
      for (const [id, box] of placed.boxes) expect(placed.nodeAt(box.x + box.width / 2, box.y + box.height / 2)).toBe(id);
      expect(placed.nodeAt(-5, -5)).toBeNull();
      expect(placed.nodeAt(1e9, 1e9)).toBeNull();
    }
    const cells = place(fakeBigFleet(100, 0));
    const box = cells.boxes.get("n1")!;
    expect(cells.nodeAt(box.x + box.width + 2, box.y + 2)).toBeNull();
  });
  it("walks with the arrows and stops at the edge", () => {
    const placed = place(fakeBigFleet(100, 0));
    expect(neighbour(placed, null, "right")).toBe("n1");
    expect(neighbour(placed, "n1", "right")).toBe("n2");
    expect(neighbour(placed, "n2", "left")).toBe("n1");
    expect(neighbour(placed, "n1", "down")).toBe("n5");
    expect(neighbour(placed, "n1", "left")).toBeNull();
    expect(neighbour(placed, "n1", "up")).toBeNull();
  });
});

describe("geometry", () => {
  it("begins and ends a lane on the edges of its boxes", () => {
    const [a, b] = [{ x: 0, y: 0, width: 100, height: 40 }, { x: 300, y: 200, width: 100, height: 40 }];
    const onEdge = (box: typeof a, x: number, y: number) => Math.min(Math.abs(x - box.x), Math.abs(x - box.x - box.width), Math.abs(y - box.y), Math.abs(y - box.y - box.height)) < 1e-9;
    for (const index of [0, 1]) {
      const segment = laneSegment(a, b, index, 2, 26);
      expect(onEdge(a, segment.x1, segment.y1) && onEdge(b, segment.x2, segment.y2)).toBe(true);
    }
    expect(exitPoint(a, 50, 20, 0, 0)).toEqual({ x: 50, y: 20 });
  });
  it("measures to the segment, not to its line", () => {
    expect(distanceToSegment(5, 3, { x1: 0, y1: 0, x2: 10, y2: 0 })).toBe(3);
    expect(distanceToSegment(13, 4, { x1: 0, y1: 0, x2: 10, y2: 0 })).toBe(5);
    expect(distanceToSegment(3, 4, { x1: 0, y1: 0, x2: 0, y2: 0 })).toBe(5);
  });
  it("grows the width with the rate and bounds it", () => {
    const widths = [0, 1e6, 1e8, 1e9, 1e10, 1e15].map(rateWidth);
    expect([...widths].sort((x, y) => x - y)).toEqual(widths);
    expect(widths.at(-1)).toBe(8);
  });
});

describe("lanes", () => {
  const link = (change: Partial<LinkView>): LinkView => ({ from: "a", to: "b", transport: "tcp", fromPort: "eth1", toPort: "eth2", state: "up", rttUs: 10, measuredAtMs: 5, reason: null, ...change });

  it("joins both views of a path, keeps the worse state and the newer time, and turns ports round", () => {
    const lanes = lanesOf([link({}), link({ from: "b", to: "a", fromPort: "eth2", toPort: "eth1", state: "down", rttUs: 12, measuredAtMs: 9, reason: "no echo" })]);
    expect(lanes).toEqual([{ id: laneId("b", "a", "tcp"), a: "a", b: "b", transport: "tcp", aPort: "eth1", bPort: "eth2", state: "down", rttUs: 12, measuredAtMs: 9, reason: "no echo" }]);
  });
  it("does not draw shared memory or a node's path to itself", () => {
    expect(lanesOf([link({ transport: "shm" }), link({ to: "a" })])).toEqual([]);
  });
  it("takes rates from the flows of its own transport and direction", () => {
    const [lane] = lanesOf([link({})]);
    const telemetry = new TelemetryBuffer();
    const flow = { queueDepth: 0, errors: 1, bytes: 10 };
    telemetry.apply({ atMs: 1, nodes: [], flows: [
      { ...flow, from: "a", to: "b", transport: "tcp", bytesPerSecond: 100 }, { ...flow, from: "b", to: "a", transport: "tcp", bytesPerSecond: 7 }, { ...flow, from: "a", to: "b", transport: "rdma", bytesPerSecond: 9e9 },
    ] });
    expect(laneRate(lane!, telemetry.flows, telemetry.nodes)).toEqual({ forward: 100, backward: 7, forwardBytes: 10, backwardBytes: 10, errors: 2, sampledAtMs: null });
  });
});

describe("the scene's model", () => {
  it("marks what is old, makes names visible, and carries no rate of a stale node", () => {
    const now = 1_000_000;
    const nodes = fakeFleet(now);
    const telemetry = new TelemetryBuffer();
    const model = buildModel(nodes, [], telemetry, now + 10_000);
    expect(model.nodes.every((node) => node.stale)).toBe(true);
    expect(model.nodes.find((node) => node.id === "n1")?.age).toEqual({ count: 10, unit: "s" });
    expect(model.nodes.find((node) => node.id === "n11")?.name).not.toMatch(/[\u0000-\u001f\u202e]/);
    expect(buildModel(nodes, [], telemetry, now).nodes.find((node) => node.id === "n1")?.stale).toBe(false);
  });
});
