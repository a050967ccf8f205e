import { afterAll, describe, expect, it } from "vitest";
import { dial, probeHostKey } from "./dial.js";
import { parseJump, type Endpoint } from "./endpoint.js";
import { errorOf, Fixture } from "./testing/fixture.js";
import { makeKey, type KeyPair, type Sshd } from "./testing/sshd.js";

const f = new Fixture();
afterAll(() => f.close());

const endpoint = (s: Sshd): Endpoint => ({ host: "127.0.0.1", port: s.port, user: s.user });
type Three<T> = [T, T, T];
async function chain(): Promise<{ servers: Three<Sshd>; keys: KeyPair[] }> {
  const keys = ["outer", "inner", "node"].map((name, i) => makeKey(f.dir, `${name}${i}-${Math.random()}`));
  const servers = await Promise.all(keys.map((key) => f.sshd({ hostKeys: [key] }))) as Three<Sshd>;
  servers.forEach((s, i) => f.trustKey({ host: "127.0.0.1", port: s.port }, keys[i] as KeyPair));
  return { servers, keys };
}

describe("jump hosts", () => {
  it("reaches a node through two hops, and dials each hop once for many nodes", async () => {
    const { servers: [outer, inner, node] } = await chain();
    const target = f.target(node, { jump: [endpoint(outer), endpoint(inner)] });
    const sessions = Array.from({ length: 5 }, () => f.session(target));
    const results = await Promise.all(sessions.map((s) => s.exec("echo through")));
    expect(results.map((r) => r.stdout)).toEqual(Array(5).fill("through\n"));
    expect(outer.log().match(/Accepted publickey/g)).toHaveLength(1);
    expect(inner.log().match(/Accepted publickey/g)).toHaveLength(1);
    expect(node.log().match(/Accepted publickey/g)).toHaveLength(5);
    for (const s of sessions) s.close();
    const again = f.session(target);
    expect((await again.exec("echo again")).stdout).toBe("again\n");
    again.close();
  });

  it("verifies each hop under its own name", async () => {
    const { servers: [outer, inner, node] } = await chain();
    const jump = [endpoint(outer), endpoint(inner)];
    const wrong = makeKey(f.dir, "wrong");
    f.trustKey({ host: "127.0.0.1", port: inner.port }, wrong);
    expect(await errorOf(dial(f.target(node, { jump }), f.env, f.pool))).toMatchObject({ code: "H203", params: { expected: wrong.fingerprint } });
    expect(node.log()).not.toContain("Accepted");
    f.trust.forget(`[127.0.0.1]:${inner.port}`);
    const probed = await probeHostKey(f.target(node, { jump }), f.env, f.pool);
    expect(probed.endpoint.port).toBe(inner.port);
    expect(probed.judge.judge(probed.key).status).toBe("unconfirmed");
  });

  it("tells the node's sessions when a hop dies", async () => {
    const { servers: [outer, , node] } = await chain();
    const session = f.session(f.target(node, { jump: [endpoint(outer)] }));
    await session.connect();
    const lost = new Promise((resolve) => session.once("lost", (error) => resolve(error.view.code)));
    const hop = f.session(f.target(outer));
    const pids = (await hop.exec(`pgrep -P $(pgrep -f 'sshd.*-f' | head -1) >/dev/null; ps -o ppid= -p $PPID`)).stdout.trim();
    expect(pids).toMatch(/^\d+$/);
    hop.close();
    await outer.stop();
    const killed = outer.log().match(/Accepted publickey for \S+ from 127\.0\.0\.1 port (\d+)/);
    expect(killed).not.toBeNull();
    const { execFileSync } = await import("node:child_process");
    const owners = execFileSync("ss", ["-Htnp", "sport", "=", `:${outer.port}`], { encoding: "utf8" });
    for (const [, pid] of owners.matchAll(/pid=(\d+)/g)) if (Number(pid) !== process.pid) process.kill(Number(pid), "SIGKILL");
    expect(await lost).toBe("H207");
  });

  it("names the server that cannot be reached behind a hop", async () => {
    const { servers: [outer, , node] } = await chain();
    await node.stop();
    expect(await errorOf(dial(f.target(node, { jump: [endpoint(outer)] }), f.env, f.pool))).toMatchObject({ code: "H201", params: { port: node.port, detail: expect.stringContaining("jump host could not reach it") } });
  });

  it("reads hops as ProxyJump writes them", () => {
    expect(parseJump("ops@gate:2222", "me")).toEqual({ user: "ops", host: "gate", port: 2222 });
    expect(parseJump("ssh://gate/", "me")).toEqual({ user: "me", host: "gate", port: 22 });
    expect(parseJump("a@[fe80::1%eth0]:22", "me")).toEqual({ user: "a", host: "fe80::1%eth0", port: 22 });
    for (const bad of ["", "-oProxyCommand=x", "a b", "host:0", "host:70000", "u@", "h;x", "[::1"]) expect(() => parseJump(bad, "me")).toThrow();
  });
});
