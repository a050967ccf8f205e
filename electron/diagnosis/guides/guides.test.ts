import { describe, expect, it, vi } from "vitest";
import { AlertRule, GuideRunView, type DiagnosisView, type FindingView, type HangView, type LinkView, type NodeView } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import { RULES } from "../rules/index.js";
import { GUIDES, guidesFor, matches } from "./guides.js";
import { Guides, type GuidesOptions } from "./service.js";

const finding = (cls: string, more: Partial<FindingView> = {}): FindingView => ({
  id: cls, class: cls, code: "S000", severity: "high", title: { en: `title ${cls}`, zh: cls }, explanation: { en: "", zh: "" }, host: null, devices: [], first: null, last: null, count: 1,
  evidence: [{ source: "x", line: `line of ${cls}`, lineNumber: null, meaning: null }], against: [], checked: [], causes: [], consequenceOf: null, candidates: [], mend: [], retest: [], params: {}, ...more,
});
const node = (id: string, last: number, more: Partial<NodeView["facts"] & object> = {}): NodeView => ({
  id, name: id, dataAddress: `10.0.0.${last}`, phase: "up",
  facts: { nics: [{ name: "eth1", addresses: [`10.0.0.${last}/24`], mtuBytes: 9000, pci: "0000:01:00.0", numaNode: 0, rdmaDevice: "rxe0" }], rdma: [{ name: "rxe0", netdev: "eth1", port: 1, state: "active", gids: [] }], gpus: [], ...more },
} as unknown as NodeView);
const done = (nodeId: string, findings: FindingView[] = [], more: Partial<DiagnosisView> = {}): DiagnosisView => ({ nodeId, startedAtMs: 1, endedAtMs: 2, state: "done", verdict: "healthy", sources: [{ id: "modules", command: "lsmod", state: "ok", collectedAtMs: 1, durationMs: 1, text: "Module Size\ndma_engine 65536 0\n", truncatedBytes: 0, error: null }], findings, cannotTell: [], error: null, ...more });
const NO_HANG: HangView = { takenAtMs: 1, groups: [], unread: [] };
const link = (from: string, to: string, rttUs: number | null, state: LinkView["state"] = "up"): LinkView => ({ from, to, transport: "rdma", fromPort: null, toPort: null, state, rttUs, measuredAtMs: 1, reason: null });

function guidesOver(nodes: NodeView[], views: DiagnosisView[], more: Partial<GuidesOptions> = {}, links: LinkView[] = []): Guides {
  return new Guides({
    nodes: { get: (id: string) => nodes.find((n) => n.id === id) } as unknown as NodeDirectory,
    diagnosis: { run: () => ({ operationId: "op", over: Promise.resolve() }), view: (id) => views.find((v) => v.nodeId === id) },
    cancelOperation: vi.fn(), topology: async () => ({ epoch: 1, links }), hangs: async () => NO_HANG,
    verbsPing: async (from, to) => ({ from, to, kind: "verbs", state: "ok", latencyUs: 5, bandwidthGBps: 1, failed: null, text: null, evidence: [], error: null, endedAtMs: 1 }), ...more,
  });
}
async function run(guides: Guides, id: Parameters<Guides["start"]>[0], nodeIds: string[]): Promise<GuideRunView> {
  const { id: runId } = guides.start(id, nodeIds);
  await vi.waitFor(() => expect(guides.runs().find((r) => r.id === runId)!.endedAtMs).not.toBeNull());
  return GuideRunView.parse(guides.runs().find((r) => r.id === runId));
}
const states = (r: GuideRunView): Record<string, string> => Object.fromEntries(r.steps.map((s) => [s.id, s.state]));

describe("guides as data", () => {
  it("name classes that there are, and wait for steps that there are", () => {
    const known = [...RULES.map((r) => r.id), ...AlertRule.options.map((rule) => `alert.${rule}`)];
    for (const g of GUIDES) for (const p of [...g.for, ...g.steps.flatMap((s) => (s.kind === "check" ? s.classes : []))]) expect(known.some((id) => matches([p], id)), `${g.id} ${p}`).toBe(true);
    for (const g of GUIDES) for (const s of g.steps) if (s.kind === "check") for (const a of s.after ?? []) expect(g.steps.map((x) => x.id).concat("interface", "filter", "rdma-modules"), `${g.id} ${s.id}`).toContain(a);
  });
  it("the best guide for a finding comes first", () => {
    expect(guidesFor("perm.dma_device_node")[0]).toBe("dma_init_fails");
    expect(guidesFor("host.process_stopped")[0]).toBe("job_hangs");
    expect(guidesFor("roce.gid_wrong_index")).toEqual(["rdma_connection_fails"]);
    expect(guidesFor("gpu.p2p_acs")).toContain("gpudirect_off");
    expect(AlertRule.options.map((rule) => guidesFor(`alert.${rule}`)[0])).toEqual(["slow", "slow", "job_hangs", "job_hangs", "job_hangs"]);
    expect(guidesFor("nothing.known")).toEqual([]);
  });
});

describe("a run", () => {
  it("asks in order, quotes what it finds, leaves out what follows, and ends in a card", async () => {
    const guides = guidesOver([node("n1", 1)], [done("n1", [finding("driver.not_loaded"), finding("dma.channel_unavailable", { consequenceOf: "driver.not_loaded" })])]);
    const r = await run(guides, "dma_init_fails", ["n1"]);
    expect(states(r)).toMatchObject({ reach: "ok", installed: "ok", loaded: "fault", device: "skipped", limits: "ok" });
    expect(r.steps.find((s) => s.id === "loaded")!.evidence[0]!.line).toBe("line of driver.not_loaded");
    expect(r.conclusion).toMatchObject({ verdict: "cause_found", text: { en: "title driver.not_loaded" }, cards: [{ nodeId: "n1", finding: { class: "driver.not_loaded" } }] });
  });
  it("what is fine is shown with its line, what could not be read is no 'fine'", async () => {
    const guides = guidesOver([node("n1", 1)], [done("n1", [], { cannotTell: [{ class: "host.memlock_service", title: { en: "", zh: "" }, missing: ["stepccld_limits"] }] })]);
    const r = await run(guides, "dma_init_fails", ["n1"]);
    expect(r.steps.find((s) => s.id === "loaded")).toMatchObject({ state: "ok", evidence: [{ source: "modules", line: "dma_engine 65536 0", lineNumber: 2 }] });
    expect(states(r)["limits"]).toBe("cannot_tell");
    expect(r.conclusion!.verdict).toBe("cannot_tell");
  });
  it("an unreachable node is the answer itself", async () => {
    const guides = guidesOver([node("n1", 1)], [done("n1", [], { state: "failed", error: { code: "H201", message: "n1:22 does not answer.", next: "Check it." } })]);
    const r = await run(guides, "node_wont_come_up", ["n1"]);
    expect(r.steps[0]).toMatchObject({ state: "fault", answer: { en: expect.stringContaining("H201") } });
    expect(r.steps.slice(1).every((s) => s.state === "skipped")).toBe(true);
    expect(r.conclusion!.verdict).toBe("cause_found");
  });
  it("a hang names the rank, and a pair ends with a ping when nothing else is wrong", async () => {
    const hang: HangView = { takenAtMs: 1, unread: [], groups: [{ format: "stepccl", job: "j", communicator: "c", worldSize: 2, sequence: "4", verdict: "hang", text: { en: "rank 1 is stopped", zh: "x" }, culprits: [1], ranks: [{ rank: 1, nodeId: "n2", host: "n2", pid: 9, missing: false, alive: true, verdict: "stopped", lastCompleted: "3", current: null }] }] };
    const nodes = [node("n1", 1), node("n2", 2)];
    const r = await run(guidesOver(nodes, [done("n1"), done("n2", [finding("host.process_stopped")])], { hangs: async () => hang }), "job_hangs", ["n1", "n2"]);
    expect(r.steps.find((s) => s.id === "recorders")).toMatchObject({ state: "fault", evidence: [{ line: expect.stringContaining("rank 1 on n2") }] });
    expect(r.conclusion).toMatchObject({ text: { en: "rank 1 is stopped" }, cards: [{ nodeId: "n2", finding: { class: "host.process_stopped" } }] });
    const ping = await run(guidesOver(nodes, [done("n1"), done("n2")]), "rdma_connection_fails", ["n1", "n2"]);
    expect(states(ping)["ping"]).toBe("ok");
    expect(ping.conclusion!.verdict).toBe("not_found");
  });
  it("walks GPU, PCIe, NIC, link and peer, and marks the first that breaks a rule by the ids of the topology", async () => {
    const gpu = { gpus: [{ index: 0, name: "H100", pci: "0000:41:00.0", numaNode: 1 }] } as never;
    const nodes = [node("n1", 1, gpu), node("n2", 2, gpu)];
    const far = await run(guidesOver(nodes, [done("n1"), done("n2")], {}, [link("n1", "n2", 10)]), "gpudirect_off", ["n1", "n2"]);
    expect(far.paths[0]!.elements.map((e) => e.ref.kind)).toEqual(["gpu", "pcie", "nic", "rdma", "link", "rdma", "nic", "pcie", "gpu"]);
    expect(far.paths[0]!.elements[far.paths[0]!.firstBroken!]).toMatchObject({ ref: { kind: "pcie", nodeId: "n1", pci: "0000:01:00.0" }, state: "broken", class: "host.numa_misplaced" });
    const none = await run(guidesOver([node("n1", 1), node("n2", 2)], [done("n1"), done("n2")]), "gpudirect_off", ["n1", "n2"]);
    expect(none.paths[0]!.firstBroken).toBe(0);
    expect(none.paths[0]!.elements[0]!.rule.en).toContain("no GPU");
  });
  it("a ring's slow, lossy or unmeasured link is told", async () => {
    const nodes = [node("n1", 1), node("n2", 2), node("n3", 3), node("n4", 4)];
    const links = [link("n1", "n2", 10), link("n2", "n3", 90), link("n3", "n4", 11), link("n4", "n1", 12)];
    const slow = await run(guidesOver(nodes, nodes.map((n) => done(n.id)), {}, links), "ring_slow", nodes.map((n) => n.id));
    expect(slow.paths.map((p) => p.firstBroken)).toEqual([null, 2, null, null]);
    expect(slow.paths[1]!.elements[2]).toMatchObject({ ref: { kind: "link", from: "n2", to: "n3", transport: "rdma" }, rule: { en: "An echo takes 90 us; the median of the ring is 12 us." } });
    const lossy = await run(guidesOver(nodes, nodes.map((n) => done(n.id, n.id === "n3" ? [finding("rdma.packet_loss_counters", { params: { peer: "10.0.0.4" } })] : [])), {}, links.map((l) => ({ ...l, rttUs: 10 }))), "ring_slow", nodes.map((n) => n.id));
    expect(lossy.paths.map((p) => p.firstBroken)).toEqual([null, null, 2, null]);
    expect(lossy.conclusion!.cards).toMatchObject([{ nodeId: "n3" }]);
    const open = await run(guidesOver(nodes, nodes.map((n) => done(n.id))), "ring_slow", nodes.map((n) => n.id));
    expect(open.conclusion!.verdict).toBe("cannot_tell");
  });
  it("takes the nodes that it is about, and can be cancelled", async () => {
    const guides = guidesOver([node("n1", 1)], [done("n1")], { diagnosis: { run: () => ({ operationId: "op", over: new Promise((r) => setTimeout(r, 20)) }), view: () => done("n1") } });
    expect(() => guides.start("rdma_connection_fails", ["n1"])).toThrow(/H606/);
    expect(() => guides.start("slow", ["n9"])).toThrow(/H301/);
    const { id } = guides.start("dma_init_fails", ["n1"]);
    guides.cancel(id);
    await vi.waitFor(() => expect(guides.runs()[0]).toMatchObject({ state: "cancelled", error: null }));
  });
});
