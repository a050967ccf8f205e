import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { NodeSettingsView, SETTINGS, SettingChanges, SettingName, type NodeFacts, type TopologyView } from "../contract/index.js";
import { directoryOf, FakeNode } from "../collectives/testing.js";
import { RpcFailure } from "../link/testing.js";
import { openHistory } from "../telemetry/history_db.js";
import { adviseNode } from "./advice.js";
import { SettingsLog } from "./log.js";
import { NodeSettings } from "./service.js";

let dir: string;
let history: ReturnType<typeof openHistory>;
let nodes: FakeNode[];
let kept: Record<string, unknown>[];
let topology: TopologyView;
let settings: NodeSettings;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "stepccl-settings-"));
  history = openHistory(dir);
  topology = { epoch: 1, links: [] };
  nodes = [new FakeNode(0), new FakeNode(1), new FakeNode(2)];
  kept = nodes.map(() => ({}));
  nodes.forEach((node, i) => {
    node.daemon.handlers["settings.get"] = () => kept[i];
    node.daemon.handlers["settings.set"] = (params: object) => (kept[i] = { ...kept[i], ...params });
  });
  settings = new NodeSettings({ nodes: directoryOf(nodes), topology: () => topology, log: new SettingsLog(history), now: () => 1234 });
});
afterEach(() => {
  history.close();
  rmSync(dir, { recursive: true });
});

describe("the settings of the nodes", () => {
  it("are read from every node that is up, each with its own answer or error", async () => {
    kept[0] = { pipeline_depth: 8, paging: false };
    nodes[1]!.reachable = false;
    nodes[2]!.view = { ...nodes[2]!.view, phase: "reachable" };
    const views = await settings.get();
    expect(views.map((view) => NodeSettingsView.parse(view))).toMatchObject([
      { nodeId: "n0", values: { pipeline_depth: 8, paging: false, compression: null }, error: null }, { nodeId: "n1", values: null, error: { code: "H401" } },
    ]);
  });
  it("are changed on the nodes that take them; who changed what is logged and outlives the console", async () => {
    kept[1] = { pipeline_depth: 4 };
    nodes[2]!.daemon.handlers["settings.set"] = () => { throw new RpcFailure("A402", "disk full"); };
    const views = await settings.set(["n0", "n1", "n2"], SettingChanges.parse({ pipeline_depth: 4, compression: true }));
    expect(views.map((view) => [view.nodeId, view.values?.compression ?? null, view.error?.code ?? null])).toEqual([["n0", true, null], ["n1", true, null], ["n2", null, "A402"]]);
    history.close();
    history = openHistory(dir);
    const log = new SettingsLog(history).list(10);
    expect(log).toHaveLength(3);
    expect(log).toContainEqual(expect.objectContaining({ atMs: 1234, nodeId: "n0", setting: "pipeline_depth", from: null, to: 4, by: expect.stringContaining("@") }));
    expect(log.filter((entry) => entry.nodeId === "n1").map((entry) => entry.setting)).toEqual(["compression"]);
  });
  it("asks nothing of a node that there is not", async () => {
    await expect(settings.set(["nobody"], { paging: true })).rejects.toMatchObject({ view: { code: "H301" } });
  });
  it.each([
    [{}, false], [{ pipeline_depth: 0 }, false], [{ pipeline_depth: 257 }, false], [{ pipeline_depth: 1.5 }, false], [{ page_bytes: 5000 }, false], [{ paging: 1 }, false], [{ unknown: 1 }, false],
    [{ pipeline_depth: 256 }, true], [{ page_bytes: 4096 }, true], [{ paging: null, buffer_bytes: null }, true],
  ])("%j passes the contract: %s", (changes, passes) => expect(SettingChanges.safeParse(changes).success).toBe(passes));
});

describe("what is recommended", () => {
  const facts = (gpus: number, rdma: boolean): NodeFacts => ({
    collectedAtMs: 0, hostname: "h", os: null, kernel: null, cpuModel: null, cpuThreads: 1, numaNodes: 1, memoryTotalBytes: 1, memoryAvailableBytes: 1, memlockBytes: null, nics: [],
    rdma: rdma ? [{ name: "mlx5_0", netdev: null, port: 1, state: "active", linkLayer: "infiniband", rateGbps: 400, activeMtuBytes: null, gids: [] }] : [],
    gpus: Array.from({ length: gpus }, (_, index) => ({ index, name: "H200", pci: "0", numaNode: 0, memoryTotalBytes: 1, memoryUsedBytes: 1, nvlinksActive: 18 })),
    driver: { present: true, version: null, abi: null, deviceMode: null, accessible: true, lastError: null }, unreadable: [],
  });
  it.each([[null, null, "depth_unmeasured"], [4.9, 4, "depth_short"], [5, null, "depth_between"], [20, null, "depth_between"], [20.1, 8, "depth_long"]])("pipeline depth at %s us one way: %s (%s)", (us, value, reason) => {
    expect(adviseNode(null, us).pipeline_depth).toMatchObject({ value, reason });
  });
  it.each([[0, null], [1, 1], [2, 1], [8, 4], [16, 8]])("DMA concurrency with %i GPUs: %s", (gpus, value) => expect(adviseNode(facts(gpus, true), null).dma_concurrency.value).toBe(value));
  it("GPUDirect Async needs GPU and RDMA", () => {
    expect([adviseNode(facts(0, true), null), adviseNode(facts(8, false), null), adviseNode(facts(8, true), null)].map((advice) => advice.async_gd.value)).toEqual([null, false, true]);
  });
  it("is always something that the contract and the daemon take, with its reason filled in", () => {
    for (const all of [adviseNode(null, null), adviseNode(facts(8, true), 3), adviseNode(facts(1, false), 50)]) {
      for (const name of SettingName.options) {
        expect(SettingChanges.safeParse({ [name]: all[name].value }).success).toBe(true);
        expect(all[name].text).not.toMatch(/\{\w+\}/);
        expect(Object.keys(SETTINGS)).toContain(name);
      }
    }
  });
  it("takes the latency of the node's own links", async () => {
    topology = { epoch: 1, links: [{ from: "n0", to: "n1", transport: "rdma", fromPort: null, toPort: null, state: "up", rttUs: 6, measuredAtMs: 1, reason: null }, { from: "n0", to: "n2", transport: "tcp", fromPort: null, toPort: null, state: "down", rttUs: 1, measuredAtMs: 1, reason: null }] };
    const views = await settings.get();
    expect(views[0]?.advice.pipeline_depth).toMatchObject({ value: 4, params: { us: 3 } });
    expect(views[1]?.advice.pipeline_depth.value).toBeNull();
  });
});

describe("settings of the GPU pools", () => {
  it("are bounded as the daemon bounds them, and recommended only where there is a GPU", () => {
    const taken = (changes: object): boolean => SettingChanges.safeParse(changes).success;
    expect([{ hbm_cache_ratio_permille: 1 }, { hbm_cache_ratio_permille: 900 }, { sm_budget: 32 }, { sm_budget: null }].map(taken)).toEqual([true, true, true, true]);
    expect([{ hbm_cache_ratio_permille: 0 }, { hbm_cache_ratio_permille: 901 }, { hbm_cache_ratio_permille: 0.1 }, { sm_budget: 33 }].map(taken)).toEqual([false, false, false, false]);
    expect([adviseNode(null, null).hbm_cache_ratio_permille, adviseNode(null, null).sm_budget]).toMatchObject([{ value: null, reason: "no_gpu" }, { value: null, reason: "no_gpu" }]);
  });
  it("who looks at the pools is told which nodes took a change, and no other", async () => {
    const told: string[][] = [];
    nodes[1]!.reachable = false;
    settings = new NodeSettings({ nodes: directoryOf(nodes), topology: () => topology, log: new SettingsLog(history), onChanged: (ids) => told.push([...ids]) });
    await settings.set(["n0", "n1", "n2"], { hbm_defrag: true });
    expect(told).toEqual([["n0", "n2"]]);
  });
});
