import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { NodeMemoryView, type NodeFacts } from "../contract/index.js";
import { directoryOf, FakeNode } from "../collectives/testing.js";
import { NO_ANSWER, RpcFailure } from "../link/testing.js";
import { NodeMemory } from "./service.js";
import { toldProcess } from "./testing.js";

let nodes: FakeNode[];
let listeners: Set<(ids: readonly string[]) => void>;
let memory: NodeMemory;
let nowMs: number;
const tell = (ids: readonly string[]): void => { for (const listener of listeners) listener(ids); };
const soon = <T>(look: () => T): Promise<T> => vi.waitFor(look, { timeout: 8000, interval: 5 });
const asked = (node: FakeNode): number => node.daemon.callsOf("gpu.processes").length;
const facts = (gpus: NodeFacts["gpus"]): NodeFacts => ({
  collectedAtMs: 5, hostname: "h", os: null, kernel: null, cpuModel: null, cpuThreads: 1, numaNodes: 1, memoryTotalBytes: 64e9, memoryAvailableBytes: 60e9, memlockBytes: null, nics: [], rdma: [], gpus,
  driver: { present: true, version: null, abi: null, deviceMode: null, accessible: true, lastError: null }, unreadable: [],
});
const make = (count: number, pace = { atOnce: 4, spacingMs: 1 }): void => {
  nodes = Array.from({ length: count }, (_, i) => new FakeNode(i));
  for (const node of nodes) node.daemon.handlers["gpu.processes"] = () => ({ processes: [toldProcess()], omitted: 0 });
  const directory = { ...directoryOf(nodes), list: () => nodes.map((node) => node.view), get: (id: string) => nodes.find((node) => node.view.id === id)?.view, onChange: (listener: (ids: readonly string[]) => void) => { listeners.add(listener); return () => void listeners.delete(listener); } };
  memory = new NodeMemory({ nodes: directory, sampleOf: (id) => (id === "n0" ? { memoryAvailableBytes: 1e9, daemonRssKib: 2100, sampledAtMs: 7 } : undefined), now: () => nowMs, pace, onError: (error) => { throw error; } });
};

beforeEach(() => {
  nowMs = 1_000_000;
  listeners = new Set();
});
afterEach(() => memory.close());

describe("memory of the nodes", () => {
  it("tells host, GPUs and processes of each; a GPU is known by its UUID", async () => {
    make(2);
    nodes[0]!.view.facts = facts([{ index: 3, name: "H200", pci: "0", numaNode: 0, memoryTotalBytes: 141e9, memoryUsedBytes: 1e9, nvlinksActive: 18, uuid: "GPU-0" }]);
    const [first, second] = (await memory.get(undefined)).map((view) => NodeMemoryView.parse(view));
    expect(first).toMatchObject({
      nodeId: "n0", readAtMs: nowMs, supported: true, error: null, host: { totalBytes: 64e9, availableBytes: 1e9, sampledAtMs: 7, daemonRssKib: 2100 },
      gpus: [{ index: 3, totalBytes: 141e9, usedBytes: 1e9 }], processes: [{ gpuIndex: 3, rank: 0 }],
    });
    expect(second).toMatchObject({ host: { totalBytes: null, availableBytes: null, sampledAtMs: null }, gpus: [], processes: [{ gpuIndex: null }] });
  });
  it("one damaged description hides no other, one silent node holds up no other", async () => {
    make(3);
    nodes[0]!.daemon.handlers["gpu.processes"] = () => ({ processes: ["<script>", toldProcess({ rank: 1 }), toldProcess({ pool: null }), toldProcess({ rank: 0 })], omitted: 3 });
    nodes[1]!.reachable = false;
    nodes[2]!.daemon.handlers["gpu.processes"] = () => { throw new RpcFailure("A102", "unknown method"); };
    const views = await memory.get(undefined);
    expect(views[0]).toMatchObject({ damaged: 2, omitted: 3, processes: [{ rank: 0 }, { rank: 1 }] });
    expect(views[1]).toMatchObject({ readAtMs: null, processes: [], error: { code: "H401" } });
    expect(views[2]).toMatchObject({ supported: false, processes: [], error: null });
  });
  it("an answer that is none is an error of that node alone", async () => {
    make(1);
    nodes[0]!.daemon.handlers["gpu.processes"] = () => ({ processes: { length: 1e9 } });
    expect((await memory.get(["n0"]))[0]).toMatchObject({ error: { code: "H404" }, processes: [] });
    await expect(memory.get(["n9"])).rejects.toMatchObject({ view: { code: "H301" } });
  });
  it("a node that falls silent keeps its last words, with their age; what ended is forgotten", async () => {
    make(1);
    await memory.get(undefined);
    nodes[0]!.kill();
    nowMs += 60_000;
    expect((await memory.get(undefined))[0]).toMatchObject({ readAtMs: 1_000_000, processes: [{ updatedAtMs: 999_900 }], error: { code: "H401" } });
    nodes[0]!.reachable = true;
    nodes[0]!.daemon.handlers["gpu.processes"] = () => ({ processes: [], omitted: 0 });
    // The old connection takes a moment to notice that it is cut.
    await vi.waitFor(async () => expect((await memory.get(undefined))[0]).toMatchObject({ processes: [], error: null }));
    expect((await memory.map("n0", "4242.0.00000000deadbeef")).map).toBeNull();
  });
  it("one look at a pool serves all who look at that moment", async () => {
    make(1);
    const looks = await Promise.all(Array.from({ length: 20 }, () => memory.map("n0", "4242.0.00000000deadbeef")));
    await memory.map("n0", "4242.0.00000000deadbeef");
    expect(asked(nodes[0]!)).toBe(1);
    expect(looks[0]!.map).toMatchObject({ ranges: [{ kind: "engine" }, { kind: "buffer" }, { kind: "free" }], before: null, history: [{ fragmentationPermille: 250 }] });
    nowMs += 1000;
    await memory.map("n0", "4242.0.00000000deadbeef");
    expect(asked(nodes[0]!)).toBe(2);
  });
  it("who stops waiting is let go; the call ends with the last of them", async () => {
    make(1);
    nodes[0]!.daemon.handlers["gpu.processes"] = () => NO_ANSWER;
    const [one, two] = [new AbortController(), new AbortController()];
    const looks = [memory.map("n0", "x", one.signal), memory.map("n0", "x", two.signal)].map((look) => expect(look).rejects.toMatchObject({ view: { code: "H104" } }));
    await soon(() => expect(asked(nodes[0]!)).toBe(1));
    one.abort();
    await looks[0];
    two.abort();
    await looks[1];
    nodes[0]!.daemon.handlers["gpu.processes"] = () => ({ processes: [], omitted: 0 });
    expect((await memory.map("n0", "x")).node).toMatchObject({ error: null, readAtMs: nowMs });
  });
});

describe("the stream", () => {
  it("asks nobody while nobody listens, those that are up while somebody does, and stops with the last", async () => {
    make(3);
    nodes[2]!.view = { ...nodes[2]!.view, phase: "reachable" };
    await new Promise((done) => setTimeout(done, 30));
    expect(nodes.map(asked)).toEqual([0, 0, 0]);
    const seen = new Map<string, NodeMemoryView>();
    const take = (event: unknown): void => {
      const { kind, items, upsert } = event as { kind: string; items?: NodeMemoryView[]; upsert?: NodeMemoryView[] };
      for (const view of (kind === "snapshot" ? items : upsert)!) seen.set(view.nodeId, NodeMemoryView.parse(view));
    };
    const leave = [memory.topic.subscribe(take), memory.topic.subscribe(() => {})];
    await soon(() => expect([...seen.values()].map((view) => view.processes.length)).toEqual([1, 1]));
    expect(asked(nodes[2]!)).toBe(0);
    leave.forEach((each) => each());
    leave[0]!();
    const before = nodes.map(asked);
    memory.soon(["n0"]);
    await new Promise((done) => setTimeout(done, 60));
    expect(nodes.map(asked)).toEqual(before);
  });
  it("asks a large fleet a few at a time, and ends what runs when nobody listens any more", async () => {
    make(60, { atOnce: 4, spacingMs: 0 });
    let running = 0;
    let most = 0;
    let hold = true;
    for (const node of nodes) {
      node.daemon.handlers["gpu.processes"] = async () => {
        most = Math.max(most, ++running);
        await new Promise((done) => setTimeout(done, hold ? 5 : 0));
        running--;
        return { processes: [], omitted: 0 };
      };
    }
    const leave = memory.topic.subscribe(() => {});
    await soon(() => expect(nodes.every((node) => asked(node) === 1)).toBe(true));
    expect(most).toBe(4);
    leave();
    hold = false;
  });
  it("looks again at once after a change of settings", async () => {
    make(1);
    const leave = memory.topic.subscribe(() => {});
    await soon(() => expect(asked(nodes[0]!)).toBe(1));
    await new Promise((done) => setTimeout(done, 50));
    expect(asked(nodes[0]!)).toBe(1);
    memory.soon(["n0"]);
    await soon(() => expect(asked(nodes[0]!)).toBe(2));
    leave();
  });
  it("a node that is gone is removed", async () => {
    make(2);
    const events: { remove?: string[] }[] = [];
    const leave = memory.topic.subscribe((event) => events.push(event as never));
    await soon(() => expect(asked(nodes[1]!)).toBe(1));
    nodes.pop();
    tell(["n1"]);
    await soon(() => expect(events.some((event) => event.remove?.includes("n1"))).toBe(true));
    leave();
  });
});
