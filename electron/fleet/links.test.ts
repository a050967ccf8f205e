import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { ConsoleError } from "../contract/index.js";
import { Fixture } from "../ssh/testing/fixture.js";
import type { Fleet } from "./fleet.js";
import { openStore } from "./store.js";
import { KERNELS, makeBundle, MINIMAL } from "./testing/bundle.js";
import { FakeAgent } from "./testing/fakes.js";
import { ended, healthy, input, phase, World } from "./testing/world.js";

const world = World.forEachTest();
const { node, open } = world;

describe("links", () => {
  async function upFleet(names: string[]): Promise<Fleet> {
    makeBundle(world.dir, MINIMAL, KERNELS);
    const fleet = open();
    for (const [i, name] of names.entries()) {
      await fleet.add(input(name));
      node(name).answer = healthy();
      node(name).agent = new FakeAgent(`10.77.0.${i + 1}`);
    }
    expect((await ended(fleet, (await fleet.bringUp(names)).operationId)).state).toBe("succeeded");
    return fleet;
  }

  it("notice a lost daemon and take it up again", async () => {
    const fleet = await upFleet(["n1"]);
    const events: string[] = [];
    fleet.on("agent-up", (id) => events.push(`up ${id}`));
    fleet.on("agent-down", (id, reason) => events.push(`down ${id} ${reason.view.code}`));
    const old = node("n1").agent as FakeAgent;
    node("n1").agent = null;
    old.die("killed");
    expect(phase(fleet, "n1")).toBe("degraded");
    expect(fleet.agentOf("n1")).toBeNull();
    expect(fleet.get("n1")?.error?.code).toBe("H401");
    node("n1").agent = old.again();
    await vi.waitFor(() => expect(phase(fleet, "n1")).toBe("up"), { timeout: 5_000 });
    expect(fleet.get("n1")?.error).toBeNull();
    expect(events).toEqual(["down n1 H401", "up n1"]);
  });

  it("say unreachable for a node that is gone, dial again by themselves, and leave the others alone", async () => {
    const fleet = await upFleet(["n1", "n2"]);
    node("n1").unreachable = ConsoleError.of("H201", { host: "n1", port: 22, detail: "no route to host" });
    node("n1").connectDelayMs = 400;
    node("n1").lose();
    expect(fleet.get("n1")).toMatchObject({ phase: "unreachable", error: { code: "H207" } });
    const seen = fleet.get("n2")?.lastSeenMs ?? 0;
    await vi.waitFor(() => expect(fleet.get("n2")?.lastSeenMs).toBeGreaterThan(seen), { timeout: 300 });
    await vi.waitFor(() => expect(fleet.get("n1")?.error?.code).toBe("H201"), { timeout: 5_000 });
    node("n1").unreachable = null;
    node("n1").agent = new FakeAgent("10.77.0.1");
    await vi.waitFor(() => expect(phase(fleet, "n1")).toBe("up"), { timeout: 8_000 });
    expect(node("n1").agent?.cluster?.members).toHaveLength(2);
  });

  it("are degraded while facts cannot be read, and tell a member the epoch that it missed", async () => {
    const fleet = await upFleet(["n1", "n2"]);
    const agent = node("n1").agent as FakeAgent;
    agent.failure = ConsoleError.of("H209", { what: "facts.get", host: "n1", seconds: 15 });
    await vi.waitFor(() => expect(phase(fleet, "n1")).toBe("degraded"));
    await ended(fleet, (await fleet.takeDown(["n2"])).operationId);
    expect(agent.cluster?.members).toHaveLength(2);
    agent.failure = null;
    await vi.waitFor(() => expect(agent.cluster?.members).toHaveLength(1), { timeout: 5_000 });
    expect(phase(fleet, "n1")).toBe("up");
  });

  it("are taken up after a restart of the console", async () => {
    const fleet = await upFleet(["n1"]);
    await fleet.close();
    node("n1").agent = (node("n1").agent as FakeAgent).again();
    const later = open();
    await later.start();
    await vi.waitFor(() => expect(later.get("n1")).toMatchObject({ phase: "up", member: 0 }), { timeout: 5_000 });
  });

  it("of nodes that are not up are dialled quietly on start, few at a time, and again when they are lost", async () => {
    const names = Array.from({ length: 80 }, (_, i) => `n${i}`);
    const first = open({ dialQuietly: false });
    for (const name of names) await first.add(input(name));
    await first.close();
    let dialling = 0;
    let most = 0;
    for (const name of names) {
      const fake = node(name);
      const dial = fake.connect.bind(fake);
      fake.connect = async (signal) => {
        most = Math.max(most, ++dialling);
        await new Promise((resolve) => setTimeout(resolve, 5));
        await dial(signal).finally(() => dialling--);
      };
      // As known_hosts would: nothing is dialled whose key is not known.
      if (name !== "n0") world.store.trust.trust({ name: `${name}.lab`, type: "ssh-ed25519", key: Buffer.from(`\0\0\0\vssh-ed25519${name}`), addedAtMs: 0, source: "operator" });
    }
    node("n1").unreachable = ConsoleError.of("H201", { host: "n1", port: 22, detail: "no route to host" });
    const later = open();
    await later.start();
    await vi.waitFor(() => expect(later.list().filter((view) => view.phase === "reachable")).toHaveLength(78), { timeout: 15_000 });
    expect(most).toBeLessThanOrEqual(32);
    expect(node("n0").dials).toBe(0);
    expect(later.get("n1")).toMatchObject({ phase: "failed", error: { code: "H201" } });
    node("n1").unreachable = null;
    node("n2").lose();
    expect(phase(later, "n2")).toBe("unreachable");
    await vi.waitFor(() => expect([phase(later, "n1"), phase(later, "n2")]).toEqual(["reachable", "reachable"]), { timeout: 8_000 });
  });

  it("are taken up as soon as the key is trusted; a command of the CLI leaves that to itself", async () => {
    const f = new Fixture();
    const server = await f.sshd();
    try {
      for (const [name, dialQuietly] of [["quiet", true], ["cli", false]] as const) {
        const fleet = open({ openSession: undefined as never, store: openStore(join(world.dir, name)), dialQuietly });
        const { id } = await fleet.add(input("real", { host: "127.0.0.1", port: server.port, user: server.user, auth: { kind: "key", keyPath: f.userKey.path } }));
        await fleet.trustHostKey(id, f.hostKey.fingerprint);
        if (dialQuietly) await vi.waitFor(() => expect(fleet.get(id)).toMatchObject({ phase: "reachable", connection: { state: "connected" } }), { timeout: 15_000 });
        else expect(fleet.get(id)?.connection.state).toBe("disconnected");
      }
    } finally {
      await f.close();
    }
  });

  it("that were up are dialled again though their login is refused, as it is while they boot", async () => {
    const fleet = await upFleet(["n1"]);
    node("n1").unreachable = ConsoleError.of("H204", { host: "n1", user: "ops", detail: "System is booting up" });
    node("n1").lose();
    await vi.waitFor(() => expect(fleet.get("n1")?.error?.code).toBe("H204"), { timeout: 5_000 });
    node("n1").unreachable = null;
    node("n1").agent = new FakeAgent("10.77.0.1");
    await vi.waitFor(() => expect(phase(fleet, "n1")).toBe("up"), { timeout: 8_000 });
  });

  it("whose login is refused are not tried again and again", async () => {
    const fleet = open();
    world.store.trust.trust({ name: "n1.lab", type: "ssh-ed25519", key: Buffer.from("k"), addedAtMs: 0, source: "operator" });
    node("n1").unreachable = ConsoleError.of("H204", { host: "n1", user: "ops", detail: "publickey" });
    await fleet.add(input("n1"));
    await vi.waitFor(() => expect(fleet.get("n1")?.error?.code).toBe("H204"));
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    expect(node("n1").dials).toBe(1);
    node("n1").unreachable = null;
    await fleet.setAuth("n1", { kind: "agent" });
    await vi.waitFor(() => expect(phase(fleet, "n1")).toBe("reachable"));
  });

  it("of a second console find the daemon and its cluster", async () => {
    const fleet = await upFleet(["n1", "n2"]);
    const other = openStore(join(world.dir, "second"));
    const second = open({ store: other });
    await second.add(input("n2"));
    expect(await second.connect("n2")).toMatchObject({ phase: "up", member: 1, agent: { state: "running" } });
    expect(second.membership.state).toEqual(fleet.membership.state);
    await second.close();
    other.close();
  });
});
