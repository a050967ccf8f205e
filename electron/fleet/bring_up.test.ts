import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { ConsoleError, OperationView } from "../contract/index.js";
import { errorOf } from "../ssh/testing/fixture.js";
import { KERNELS, makeBundle, MINIMAL } from "./testing/bundle.js";
import { FakeAgent } from "./testing/fakes.js";
import { ended, healthy, input, nameOf, phase, World } from "./testing/world.js";

const world = World.forEachTest();
const { node, open } = world;

describe("bring-up", () => {
  beforeEach(() => {
    makeBundle(world.dir, MINIMAL, KERNELS);
  });

  it("makes members, numbered in the order named, and one failing node does not stop the others", async () => {
    const fleet = open();
    for (const [i, name] of ["n1", "n2", "n3"].entries()) {
      await fleet.add(input(name));
      node(name).answer = healthy();
      node(name).agent = new FakeAgent(`10.77.0.${i + 1}`);
    }
    node("n2").answer = healthy({ "loading the module": "failed=modprobe\ndetail=Key was rejected by service\n" });
    const { operationId } = await fleet.bringUp(["n3", "n2", "n1"]);
    const view = OperationView.parse(await ended(fleet, operationId));
    expect(view.nodes.map((n) => [n.nodeId, n.state, n.error?.code])).toEqual([["n3", "succeeded", undefined], ["n2", "failed", "H307"], ["n1", "succeeded", undefined]]);
    const steps = view.nodes[1]?.steps.map((s) => s.state);
    expect(steps).toEqual(["done", "done", "rolled_back", "rolled_back", "rolled_back", "failed", "pending", "pending", "pending"]);
    expect([phase(fleet, "n3"), phase(fleet, "n2"), phase(fleet, "n1")]).toEqual(["up", "failed", "up"]);
    expect([fleet.get("n3")?.member, fleet.get("n2")?.member, fleet.get("n1")?.member]).toEqual([0, null, 2]);
    const last = fleet.membership.state;
    expect(last.members.map((m) => [m.node, m.name, m.addresses[0]?.address])).toEqual([[0, "n3", "10.77.0.3"], [2, "n1", "10.77.0.1"]]);
    await vi.waitFor(() => expect(node("n3").agent?.cluster?.epoch).toBe(last.epoch));
    node("n2").answer = healthy();
    expect((await ended(fleet, (await fleet.bringUp(["n2"])).operationId)).state).toBe("succeeded");
    expect(fleet.get("n2")?.member).toBe(1);
    expect(fleet.listOperations()).toHaveLength(2);
    await ended(fleet, (await fleet.takeDown(["n3"])).operationId);
    expect(fleet.get("n3")).toMatchObject({ phase: "reachable", member: null, agent: { state: "absent" }, facts: null });
    await vi.waitFor(() => expect(node("n1").agent?.cluster?.members.map((m) => m.node)).toEqual([1, 2]));
  });

  it.each([
    ["H314", { "taking the lock": "held_token=other:1\nheld_owner=eve@host, pid 1\nheld_since=1\n" }, "preflight"],
    ["H308", { "unpacking the bundle": "failed=sha256\ndetail=00\n" }, "verify"],
    ["H305", { "unpacking the bundle": "failed=disk\ndetail=4096\n" }, "verify"],
    ["H306", { "loading the module": "failed=vermagic\ndetail=5.10.0\n" }, "driver"],
    ["H311", { "loading the module": "failed=in_use\ndetail= python3(77)\n" }, "driver"],
    ["H315", { "loading the module": "failed=device\ndetail=600:root:character special file\n" }, "driver"],
    ["H309", { "starting stepccld": "failed=service\ndetail=broken\n" }, "service"],
  ])("says %s for what it finds and undoes what it did", async (code, spoil, at) => {
    const fleet = open();
    await fleet.add(input("n1"));
    let undone = 0;
    const base = healthy(spoil as Record<string, string>);
    node("n1").answer = (command, options) => {
      if (nameOf(options.stdin) === "rolling back") undone++;
      return base(command, options);
    };
    node("n1").agent = new FakeAgent();
    const view = await ended(fleet, (await fleet.bringUp(["n1"])).operationId);
    expect(view.nodes[0]?.error?.code).toBe(code);
    expect(view.nodes[0]?.steps.find((s) => s.state === "failed")?.id).toBe(at);
    expect(undone).toBe(at === "preflight" ? 0 : 1);
    expect(fleet.get("n1")).toMatchObject({ phase: "failed", member: null, error: { code } });
  });

  it("a full disk and a kernel without a module are refused before anything is changed; the others come up, and so do these when mended", async () => {
    makeBundle(world.dir, MINIMAL, KERNELS);
    const fleet = open();
    const asked = new Map<string, string[]>();
    const spoil: Record<string, (text: string) => string> = {
      n2: (text) => text.replace("free_opt=9999999", "free_opt=0"),
      n3: (text) => `${text.replace("kernel=6.1.0", "kernel=5.15.0-91-generic")}build=no\n`,
    };
    for (const [i, name] of ["n1", "n2", "n3"].entries()) {
      await fleet.add(input(name));
      node(name).agent = new FakeAgent(`10.77.0.${i + 1}`);
      asked.set(name, []);
      const base = healthy();
      node(name).answer = async (command, options) => {
        const script = nameOf(options.stdin);
        asked.get(name)!.push(script);
        const answer = await base(command, options);
        return script === "preflight" ? { stdout: (spoil[name] ?? ((text) => text))(answer.stdout ?? "") } : answer;
      };
    }
    const view = await ended(fleet, (await fleet.bringUp(["n1", "n2", "n3"])).operationId);
    expect(view.nodes.map((part) => [part.nodeId, part.state, part.error?.code ?? null])).toEqual([["n1", "succeeded", null], ["n2", "failed", "H305"], ["n3", "failed", "H306"]]);
    expect(view.nodes[1]?.error).toMatchObject({ message: expect.stringContaining("0 bytes free at /opt"), next: expect.stringContaining("Free space") });
    expect(view.nodes[2]?.error).toMatchObject({ message: expect.stringContaining("5.15.0-91-generic"), next: expect.stringContaining("linux-headers-5.15.0-91-generic") });
    expect([asked.get("n2"), asked.get("n3")]).toEqual([["preflight"], ["preflight"]]);
    expect([phase(fleet, "n1"), phase(fleet, "n2"), phase(fleet, "n3")]).toEqual(["up", "failed", "failed"]);
    delete spoil["n2"];
    delete spoil["n3"];
    expect((await ended(fleet, (await fleet.bringUp(["n2", "n3"])).operationId)).state).toBe("succeeded");
  });

  it("shows who else holds a node, breaks exactly that hold, and then goes on", async () => {
    const fleet = open();
    await fleet.add(input("n1"));
    node("n1").agent = new FakeAgent();
    let held: string | null = "other:1";
    const base = healthy();
    node("n1").answer = (command, options) => {
      const name = nameOf(options.stdin);
      if (name === "breaking the lock") {
        const mine = held !== null && command.includes(held);
        if (mine) held = null;
        return { stdout: mine ? "" : "lost=yes\n" };
      }
      if (held !== null && (name === "taking the lock" || name === "looking at the lock")) return { stdout: `held_token=${held}\nheld_owner=eve@host, pid 1\nheld_since=1\nage=7\n` };
      return base(command, options);
    };
    expect((await ended(fleet, (await fleet.bringUp(["n1"])).operationId)).nodes[0]?.error).toMatchObject({ code: "H314", params: { owner: "eve@host, pid 1" } });
    expect(await fleet.lockHolder("n1")).toEqual({ token: "other:1", owner: "eve@host, pid 1", sinceMs: 1000, heartbeatAgeSeconds: 7 });
    expect(await fleet.breakLock("n1", "older:9")).toBe(false);
    expect(fleet.get("n1")?.error?.code).toBe("H314");
    expect(await fleet.breakLock("n1", "other:1")).toBe(true);
    expect(await fleet.lockHolder("n1")).toBeNull();
    expect(fleet.get("n1")).toMatchObject({ phase: "reachable", error: null });
    expect((await ended(fleet, (await fleet.bringUp(["n1"])).operationId)).state).toBe("succeeded");
  });

  it("stops before its next act when its own lock was broken, and leaves the undoing to the other console", async () => {
    const fleet = open();
    await fleet.add(input("n1"));
    const asked: string[] = [];
    const base = healthy();
    let broken = false;
    node("n1").answer = (command, options) => {
      const name = nameOf(options.stdin);
      asked.push(name);
      if (name === "unpacking the bundle") broken = true;
      return name === "the lock's heartbeat" && broken ? { stdout: "lost=yes\n" } : base(command, options);
    };
    const view = (await ended(fleet, (await fleet.bringUp(["n1"])).operationId)).nodes[0];
    expect(view?.error).toMatchObject({ code: "H314", params: { since: "just now" } });
    expect(asked).not.toContain("installing");
    expect(asked).not.toContain("rolling back");
    expect(view?.steps.find((step) => step.id === "verify")?.detail).toContain("another console holds the node");
  });

  it("is refused while another one holds the node, and can be cancelled", async () => {
    const fleet = open();
    await fleet.add(input("n1"));
    const base = healthy();
    node("n1").answer = async (command, options) => {
      if (nameOf(options.stdin) === "unpacking the bundle") await new Promise((resolve) => setTimeout(resolve, 300));
      return base(command, options);
    };
    const first = await fleet.bringUp(["n1"]);
    expect((await ended(fleet, (await fleet.bringUp(["n1"])).operationId)).nodes[0]?.error?.code).toBe("H312");
    expect((await errorOf(fleet.forget(["n1"]))).code).toBe("H312");
    expect(phase(fleet, "n1")).toBe("bringing_up");
    await vi.waitFor(() => expect(fleet.listOperations().find((o) => o.id === first.operationId)?.nodes[0]?.steps[3]?.state).toBe("running"));
    fleet.cancelOperation(first.operationId);
    const view = await ended(fleet, first.operationId);
    expect(view.state).toBe("cancelled");
    expect(view.nodes[0]?.steps.map((s) => s.state).slice(0, 5)).toEqual(["done", "done", "rolled_back", "rolled_back", "pending"]);
    expect(phase(fleet, "n1")).toBe("reachable");
  });

  it("says that the roll-back waits when the node is gone", async () => {
    const fleet = open();
    await fleet.add(input("n1"));
    const base = healthy();
    node("n1").answer = (command, options) => {
      if (!["unpacking the bundle", "rolling back"].includes(nameOf(options.stdin))) return base(command, options);
      throw ConsoleError.of("H207", { host: "n1", detail: "cut" });
    };
    const view = await ended(fleet, (await fleet.bringUp(["n1"])).operationId);
    expect(view.nodes[0]?.error?.code).toBe("H207");
    expect(view.nodes[0]?.steps[2]).toMatchObject({ id: "upload", state: "done", detail: expect.stringContaining("the next bring-up makes it first") });
  });

  it("needs a bundle", async () => {
    const fleet = open({ bundleDir: join(world.dir, "none") });
    await fleet.add(input("n1"));
    expect((await errorOf(fleet.bringUp(["n1"]))).code).toBe("H313");
    expect((await errorOf(fleet.bringUp(["nobody"]))).code).toBe("H301");
  });
});
