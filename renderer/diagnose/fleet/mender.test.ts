import { afterEach, describe, expect, it } from "vitest";
import type { FindingView } from "../../../electron/contract/index.js";
import { Client } from "../../client/client.js";
import { FakeHost } from "../../dev/fake-host.js";
import { createConsole, type Console } from "../../store/console.js";
import { faultGroups, type FaultGroup } from "./groups.js";
import { GroupMender, tally, type GroupConsent, type GroupRun } from "./mender.js";
import { planOf } from "./plan.js";

let host: FakeHost;
let console: Console;
afterEach(() => { console.dispose(); host.close(); });

/** Nodes with the faults of the scripted fleet, and the group of one class. */
async function fleet(count: number, faultClass = "perm.dma_device_node"): Promise<FaultGroup> {
  host = new FakeHost({ fleet: count, stepMs: 4 });
  console = createConsole(new Client(host));
  while (!console.diagnoses.api.getState().loaded) await new Promise((resolve) => setTimeout(resolve, 1));
  return faultGroups(console.diagnoses.api.getState().items.values()).find((group) => group.finding.class === faultClass)!;
}
function consentTo(group: FaultGroup, mendId: string, change: Partial<GroupConsent> = {}): GroupConsent {
  const plan = planOf(group.members, new Set([mendId]), { nowMs: Date.now(), diagnosis: (id) => console.diagnoses.api.getState().items.get(id), mends: [] });
  return { title: group.finding.title, class: group.finding.class, plan, parallel: 4, oneFirst: false, ...change };
}
const sent = (method: string) => host.received.filter((message) => (message as { method?: string }).method === method) as Array<{ params: Record<string, unknown> }>;
const states = (run: GroupRun) => [...run.entries.values()].map((entry) => entry.state);

describe("a mend of many nodes", () => {
  it("runs on each of them once, never on more at a time than was agreed to", async () => {
    const group = await fleet(40);
    const mender = new GroupMender(console);
    let most = 0;
    const leave = mender.store.subscribe(({ runs }) => { most = Math.max(most, states(runs[0]!).filter((state) => state === "applying" || state === "retesting").length); });
    const { id, over } = mender.start(consentTo(group, "device-node"));
    await over;
    leave();
    expect(most).toBe(4);
    expect(tally(mender.run(id)!)).toEqual({ mended: group.nodeIds.length, notMended: 0, running: 0, waiting: 0, notRun: 0 });
    expect(new Set(sent("mends.apply").map((message) => message.params.offerId)).size).toBe(group.nodeIds.length);
    expect(mender.run(id)!.endedAtMs).not.toBeNull();
    mender.dismiss(id);
    expect(mender.run(id)).toBeUndefined();
  });

  it("is tried on one node first, and not on the others when that one is not mended", async () => {
    const group = await fleet(60, "link.mtu_mismatch");
    const mender = new GroupMender(console);
    const { id, over } = mender.start(consentTo(group, "mtu", { oneFirst: true }));
    await over;
    expect(sent("mends.apply")).toHaveLength(1);
    expect(states(mender.run(id)!)).toEqual(["not_mended", ...Array<string>(group.members.length - 1).fill("not_begun")]);
    expect(mender.run(id)!.heldBack).toBe(true);
  });

  it("that is stopped begins no further node, and says which were not begun", async () => {
    const group = await fleet(30);
    const mender = new GroupMender(console);
    const { id, over } = mender.start(consentTo(group, "device-node", { parallel: 2 }));
    while (!states(mender.run(id)!).includes("applying")) await new Promise((resolve) => setTimeout(resolve, 1));
    mender.stop(id);
    await over;
    expect(sent("mends.apply").length).toBeLessThanOrEqual(2);
    expect(tally(mender.run(id)!).notRun).toBe(group.members.length - sent("mends.apply").length);
    expect(mender.run(id)!.heldBack).toBe(false);
  });

  it("gives the console's second consent only where the person gave one for all", async () => {
    const group = await fleet(15);
    const mender = new GroupMender(console);
    const agreed = consentTo(group, "wipe");
    await mender.start(agreed).over;
    expect(sent("mends.apply")[0]!.params).toMatchObject({ secondConsent: "rack01-gpu02" });
    const asSafe = consentTo(group, "wipe");
    const { id, over } = mender.start({ ...asSafe, plan: { ...asSafe.plan, risk: "none" } });
    const before = sent("mends.apply").length;
    await over;
    expect(sent("mends.apply")).toHaveLength(before);
    expect(states(mender.run(id)!).every((state) => state === "changed" || state === "gone")).toBe(true);
  });

  it("runs nothing where the console would run something else by now, refuses, or finds no fault any more", async () => {
    const group = await fleet(15);
    const consent = consentTo(group, "device-node");
    const change = (nodeId: string, findings: (of: FindingView[]) => FindingView[]) => {
      const before = host.diagnoses.get(nodeId)!;
      host.diagnoses.set(nodeId, { ...before, findings: findings(before.findings) });
    };
    change("n2", (of) => of.map((each) => ({ ...each, mend: each.mend.map((one) => ({ ...one, command: `${one.command} --other` })) })));
    change("n4", () => []);
    console.diagnoses.upsert({ ...console.diagnoses.api.getState().items.get("n5")!, findings: [] });
    const mender = new GroupMender(console);
    const { id, over } = mender.start(consent);
    await over;
    const of = (nodeId: string) => [...mender.run(id)!.entries.values()].find((entry) => entry.member.nodeId === nodeId)!;
    expect([of("n2").state, of("n4").state, of("n5").state]).toEqual(["changed", "refused", "gone"]);
    expect(of("n4").error?.code).toBe("H301");
    expect(sent("mends.apply")).toHaveLength(group.members.length - 3);
  });

  it("whose answer is lost is told as not known, not as not run", async () => {
    const group = await fleet(12);
    const mender = new GroupMender(console);
    const send = host.send.bind(host);
    host.send = (message) => {
      if ((message as { method?: string }).method === "mends.apply") queueMicrotask(() => host.setState("closed"));
      else send(message);
    };
    const { id, over } = mender.start(consentTo(group, "device-node", { oneFirst: true }));
    await over;
    expect(states(mender.run(id)!)).toEqual(["unknown", ...Array<string>(group.members.length - 1).fill("not_begun")]);
  });
});
