import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ConsoleError, NodeView, OperationView, type NodeInput } from "../contract/index.js";
import { errorOf, Fixture } from "../ssh/testing/fixture.js";
import { makeKey } from "../ssh/testing/sshd.js";
import { Fleet, type FleetOptions } from "./fleet.js";
import { MemorySecretKeeper } from "./secrets.js";
import { openStore, type Store } from "./store.js";
import { KERNELS, makeBundle, MINIMAL } from "./testing/bundle.js";
import { FakeAgent, FakeNode, type Answer } from "./testing/fakes.js";

let dir: string;
let store: Store;
let nodes: Map<string, FakeNode>;
let secrets: MemorySecretKeeper;
const fleets: Fleet[] = [];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "stepccl-fleet-"));
  store = openStore(join(dir, "data"));
  nodes = new Map();
  secrets = new MemorySecretKeeper();
});
afterEach(async () => {
  for (const fleet of fleets.splice(0)) await fleet.close();
  store.close();
  rmSync(dir, { recursive: true, force: true });
});

const node = (id: string): FakeNode => {
  let fake = nodes.get(id);
  if (!fake) nodes.set(id, (fake = new FakeNode(id)));
  return fake;
};
function open(options: Partial<FleetOptions> = {}): Fleet {
  const fleet = new Fleet({
    store, secrets, bundleDir: join(dir, "bundle"), sshConfig: join(dir, "no-config"), ssh: { knownHostsFiles: [] }, factsIntervalMs: 50, openSession: (id) => node(id),
    connectAgent: async (stream) => {
      const owner = [...nodes.values()].find((n) => n.agent && !n.agent.closed && n.lastStream === stream);
      if (!owner?.agent) throw ConsoleError.of("H401", { host: "?", detail: "nobody" });
      return owner.agent;
    },
    ...options,
  });
  fleets.push(fleet);
  return fleet;
}
const input = (name: string, more: Partial<NodeInput> = {}): NodeInput => ({ name, host: `${name}.lab`, port: 22, user: "ops", auth: { kind: "agent" }, jump: [], ...more });
const ANSWERS: Record<string, string> = {
  preflight: "system=Linux\nmachine=x86_64\nkernel=6.1.0\nos=Debian\nsystemd=yes\nuser=ops\nfree_opt=9999999\nfree_tmp=9999999\nfree_modules=9999999\ntime=1\nssh_address=10.0.2.15\n",
  "taking the lock": "taken=yes\n", "opening the transaction": "wrong=it is not there\n", "making a folder": "dir=/var/tmp/stepccl-upload.abc123\n",
  "unpacking the bundle": "unpacked=yes\n", installing: "changed=yes\n", "loading the module": "loaded=new\nversion=1.0.0\ndevice=660:stepccl:character special file\n",
  "starting stepccld": "service=started\npid=7\n", "closing the transaction": "committed=yes\n", "rolling back": "undone=yes\n",
  "reading the node's address": "ssh_address=10.0.2.15\n", "removing the service": "removed=yes\n", "removing the driver": "removed=yes\n", "removing the files": "removed=yes\n",
};
/** The name of the script that was sent (see runScript). */
const nameOf = (stdin: unknown): string => /^# StepCCL: (.*)$/m.exec(String(stdin))?.[1] ?? "";
/** What a healthy node answers to the scripts of a bring-up; `spoil` answers some otherwise. */
const healthy = (spoil: Record<string, string> = {}): Answer => (_command, options) => {
  const name = nameOf(options.stdin);
  return { stdout: spoil[name] ?? ANSWERS[name] ?? "" };
};
async function ended(fleet: Fleet, id: string): Promise<OperationView> {
  return await vi.waitFor(() => {
    const view = fleet.listOperations().find((o) => o.id === id);
    if (!view || view.state === "running") throw new Error("still running");
    return view;
  }, { timeout: 10_000 });
}
const phase = (fleet: Fleet, id: string): string | undefined => fleet.get(id)?.phase;

describe("the inventory", () => {
  it("adds, refuses the same node twice, finds names for ids and forgets", async () => {
    const fleet = open();
    const changes: string[][] = [];
    fleet.onChange((ids) => changes.push([...ids]));
    const first = await fleet.add(input("GPU node #1"));
    expect(NodeView.parse(first)).toMatchObject({ id: "gpu-node-1", phase: "new", hostKey: { status: "unknown" } });
    expect((await fleet.add(input("gpu node 1", { host: "other" }))).id).toBe("gpu-node-1-2");
    expect(await errorOf(fleet.add(input("x", { host: "GPU node #1.LAB".toLowerCase() })))).toMatchObject({ code: "H302" });
    expect((await errorOf(fleet.add(input("y", { jump: ["-oProxyCommand=x"] })))).code).toBe("H101");
    await fleet.forget(["gpu-node-1"]);
    expect(fleet.list().map((n) => n.id)).toEqual(["gpu-node-1-2"]);
    expect((await errorOf(fleet.connect("gpu-node-1"))).code).toBe("H301");
    expect(changes.flat()).toContain("gpu-node-1");
    expect(open().list()).toEqual([]);
    const later = open();
    await later.start();
    expect(later.list().map((n) => n.id)).toEqual(["gpu-node-1-2"]);
  });

  it("keeps secrets out of the store, and asks again for a password that is gone", async () => {
    const fleet = open();
    await fleet.add(input("n1", { auth: { kind: "password", password: "hunter2-secret" } }));
    expect(node("n1").target?.auth).toEqual({ kind: "password", password: "hunter2-secret" });
    expect(JSON.stringify(fleet.list())).not.toContain("hunter2");
    await fleet.close();
    store.close();
    for (const file of ["console.db", "console.db-wal"]) {
      try {
        expect(readFileSync(join(dir, "data", file)).includes("hunter2")).toBe(false);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
    }
    store = openStore(join(dir, "data"));
    secrets = new MemorySecretKeeper();
    const later = open();
    await later.start();
    expect(await errorOf(later.connect("n1"))).toMatchObject({ code: "H204", params: { detail: expect.stringContaining("not kept") } });
    expect((await later.setAuth("n1", { kind: "agent" })).authKind).toBe("agent");
    expect((await later.connect("n1")).phase).toBe("reachable");
  });
});

describe("host keys", () => {
  it("are shown, confirmed by exactly their fingerprint and refused when they change", async () => {
    const f = new Fixture();
    const server = await f.sshd();
    const fleet = open({ openSession: undefined as never, ssh: { knownHostsFiles: [] } });
    const { id } = await fleet.add(input("real", { host: "127.0.0.1", port: server.port, user: server.user, auth: { kind: "key", keyPath: f.userKey.path } }));
    expect(await errorOf(fleet.connect(id))).toMatchObject({ code: "H202" });
    expect(phase(fleet, id)).toBe("needs_host_key");
    expect(await fleet.checkHostKey(id)).toMatchObject({ status: "unconfirmed", offered: f.hostKey.fingerprint });
    const other = makeKey(f.dir, "other");
    expect(await errorOf(fleet.trustHostKey(id, other.fingerprint))).toMatchObject({ code: "H203" });
    expect(await errorOf(fleet.connect(id))).toMatchObject({ code: "H202" });
    expect((await fleet.trustHostKey(id, f.hostKey.fingerprint)).hostKey).toMatchObject({ status: "trusted", trusted: f.hostKey.fingerprint });
    expect((await fleet.connect(id)).phase).toBe("reachable");
    const session = await fleet.session(id);
    expect((await session.exec("echo ok")).stdout).toBe("ok\n");
    await fleet.close();
    await server.stop();
    const again = await f.sshd({ hostKeys: [other], port: server.port });
    const later = open({ openSession: undefined as never, ssh: { knownHostsFiles: [] } });
    await later.start();
    expect(later.get(id)?.hostKey).toMatchObject({ status: "trusted", offered: null });
    expect(await errorOf(later.connect(id))).toMatchObject({ code: "H203", params: { expected: f.hostKey.fingerprint, fingerprint: other.fingerprint } });
    expect(phase(later, id)).toBe("needs_host_key");
    await again.stop();
    await f.close();
  });

  it("of a hop are confirmed under the hop's own name", async () => {
    const f = new Fixture();
    const [gate, target] = [await f.sshd(), await f.sshd({ hostKeys: [makeKey(f.dir, "target")] })];
    const fleet = open({ openSession: undefined as never, ssh: { knownHostsFiles: [] } });
    const { id } = await fleet.add(input("real", { host: "127.0.0.1", port: target.port, user: target.user, auth: { kind: "key", keyPath: f.userKey.path }, jump: [`127.0.0.1:${gate.port}`] }));
    const hop = await fleet.checkHostKey(id);
    expect(hop.offered).toBe(f.hostKey.fingerprint);
    await fleet.trustHostKey(id, hop.offered ?? "");
    const own = await fleet.checkHostKey(id);
    expect(own.offered).not.toBe(f.hostKey.fingerprint);
    await fleet.trustHostKey(id, own.offered ?? "");
    expect((await fleet.connect(id)).phase).toBe("reachable");
    expect(store.trust.keysOf(`[127.0.0.1]:${gate.port}`)).toHaveLength(1);
    await f.close();
  });
});

describe("bring-up", () => {
  beforeEach(() => {
    makeBundle(dir, MINIMAL, KERNELS);
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
    makeBundle(dir, MINIMAL, KERNELS);
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
    const fleet = open({ bundleDir: join(dir, "none") });
    await fleet.add(input("n1"));
    expect((await errorOf(fleet.bringUp(["n1"]))).code).toBe("H313");
    expect((await errorOf(fleet.bringUp(["nobody"]))).code).toBe("H301");
  });
});

describe("links", () => {
  async function upFleet(names: string[]): Promise<Fleet> {
    makeBundle(dir, MINIMAL, KERNELS);
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
      if (name !== "n0") store.trust.trust({ name: `${name}.lab`, type: "ssh-ed25519", key: Buffer.from(`\0\0\0\vssh-ed25519${name}`), addedAtMs: 0, source: "operator" });
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
        const fleet = open({ openSession: undefined as never, store: openStore(join(dir, name)), dialQuietly });
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
    store.trust.trust({ name: "n1.lab", type: "ssh-ed25519", key: Buffer.from("k"), addedAtMs: 0, source: "operator" });
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
    const other = openStore(join(dir, "second"));
    const second = open({ store: other });
    await second.add(input("n2"));
    expect(await second.connect("n2")).toMatchObject({ phase: "up", member: 1, agent: { state: "running" } });
    expect(second.membership.state).toEqual(fleet.membership.state);
    await second.close();
    other.close();
  });
});
