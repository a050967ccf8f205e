import { describe, expect, it } from "vitest";
import { errorOf, Fixture } from "../ssh/testing/fixture.js";
import { makeKey } from "../ssh/testing/sshd.js";
import { input, phase, World } from "./testing/world.js";

const world = World.forEachTest();
const { open } = world;

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
    expect(world.store.trust.keysOf(`[127.0.0.1]:${gate.port}`)).toHaveLength(1);
    await f.close();
  });
});
