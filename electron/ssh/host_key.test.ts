import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import ssh2 from "ssh2";
import { afterAll, describe, expect, it, vi } from "vitest";
import { dial, probeHostKey } from "./dial.js";
import { hostKeyName } from "./endpoint.js";
import { HostKeyJudge, MemoryTrustStore, strictVerifier } from "./host_key.js";
import type { KnownHost } from "./known_hosts.js";
import { fingerprintOf } from "./public_key.js";
import { errorOf, Fixture } from "./testing/fixture.js";
import { makeKey } from "./testing/sshd.js";

const f = new Fixture();
afterAll(() => f.close());

/** What ssh2 makes of a verifier: "accepted" as soon as it goes on to authenticate. */
function verdictOf(port: number, verifier: unknown): Promise<"accepted" | "refused"> {
  return new Promise((resolve) => {
    const client = new ssh2.Client();
    client.on("handshake", () => {
      resolve("accepted");
      client.destroy();
    });
    client.on("error", () => resolve("refused"));
    client.connect({ sock: connect({ host: "127.0.0.1", port, noDelay: true }), username: "x", hostVerifier: verifier as never, readyTimeout: 2_000 });
  });
}

describe("rotation of host keys", () => {
  it("learns what a trusted server proves, follows it, and drops what it showed the others instead of", async () => {
    const f = new Fixture();
    try {
      const [next, rsa] = [makeKey(f.dir, "next"), makeKey(f.dir, "rsa", "rsa")];
      let server = await f.sshd({ hostKeys: [f.hostKey, next, rsa] });
      const name = hostKeyName({ host: "127.0.0.1", port: server.port });
      f.trustKey({ host: "127.0.0.1", port: server.port }, f.hostKey);
      const kept = (): string[] => f.trust.keysOf(name).map((key) => fingerprintOf(key.key));
      const visit = async (): Promise<void> => {
        const session = f.session(f.target(server));
        await session.connect();
        await session.exec("true");
        session.close();
      };
      await visit();
      await vi.waitFor(() => expect(kept().sort()).toEqual([f.hostKey, next, rsa].map((key) => key.fingerprint).sort()));
      expect(f.trust.keysOf(name).map((key) => key.source)).toEqual(["operator", "rotation", "rotation"]);
      await server.stop();
      server = await f.sshd({ hostKeys: [next, rsa], port: server.port });
      await visit();
      await vi.waitFor(() => expect(kept().sort()).toEqual([next, rsa].map((key) => key.fingerprint).sort()));
    } finally {
      await f.close();
    }
  });
  it("is not for what known_hosts vouches for, nor for keys that are revoked", async () => {
    const key = (name: string): Buffer => Buffer.from(`\0\0\0\u000bssh-ed25519${name}`);
    const store = new MemoryTrustStore();
    const judge = (): HostKeyJudge => new HostKeyJudge({ host: "h", port: 22 }, [
      { file: "f", line: 1, marker: null, hosts: "h", type: "ssh-ed25519", key: key("listed") }, { file: "f", line: 2, marker: "revoked", hosts: "h", type: "ssh-ed25519", key: key("bad") },
    ] satisfies KnownHost[], store);
    expect(judge().rotated(key("listed"), [key("listed"), key("new")], 1)).toBeNull();
    store.trust({ name: "h", type: "ssh-ed25519", key: key("own"), addedAtMs: 0, source: "operator" });
    expect(judge().rotated(key("own"), [key("own")], 1)).toBeNull();
    expect(judge().rotated(key("own"), [key("new")], 1)).toBeNull();
    expect(judge().rotated(key("own"), [key("own"), key("bad"), key("new")], 1)?.map((k) => k.key)).toEqual([key("own"), key("new")]);
  });
});

describe("strictVerifier", () => {
  const misuse: [string, () => unknown][] = [
    ["false", () => false], ["null", () => null], ["0", () => 0], ["undefined", () => undefined], ["an empty text", () => ""],
    ["the text true", () => "true"], ["1", () => 1], ["an object", () => ({})], ["a promise of false", async () => false],
    ["a promise of true", async () => true], ["a rejected promise", async () => { throw new Error("no"); }], ["a throw", () => { throw new Error("no"); }],
  ];
  it("refuses every answer but a literal true, against a real server", async () => {
    const { port } = await f.sshd();
    const results = await Promise.all(misuse.map(async ([name, answer]) => [name, await verdictOf(port, strictVerifier(answer as () => boolean))]));
    expect(results).toEqual(misuse.map(([name]) => [name, "refused"]));
    expect(await verdictOf(port, strictVerifier(() => true))).toBe("accepted");
  });

  it("is needed: ssh2 by itself accepts what only looks like a refusal", async () => {
    const { port } = await f.sshd();
    expect(await verdictOf(port, async () => false)).toBe("accepted");
    expect(await verdictOf(port, () => null)).toBe("accepted");
  });
});

describe("host keys at a dial", () => {
  it("shows an unknown key and gives no credentials to it", async () => {
    const server = await f.sshd();
    expect(await errorOf(dial(f.target(server), f.env, f.pool))).toMatchObject({ code: "H202", params: { host: "127.0.0.1", fingerprint: f.hostKey.fingerprint, algorithm: "ssh-ed25519" } });
    expect(server.log()).not.toMatch(/Accepted|Failed|userauth/);
  });

  it("connects to a trusted key, and refuses the same server with another one", async () => {
    const { server, session } = await f.pair();
    await session.connect();
    expect((await session.exec("echo hi")).stdout).toBe("hi\n");
    session.close();
    await server.stop();
    const other = makeKey(f.dir, "other");
    const again = await f.sshd({ hostKeys: [other], port: server.port });
    expect(await errorOf(session.connect())).toMatchObject({ code: "H203", params: { expected: f.hostKey.fingerprint, fingerprint: other.fingerprint } });
    await again.stop();
  });

  it("refuses a revoked key although the operator trusted it", async () => {
    const file = join(f.dir, "revoked");
    writeFileSync(file, `@revoked * ${f.hostKey.line}\n`);
    const { server } = await f.pair();
    expect(await errorOf(dial(f.target(server), { ...f.env, knownHostsFiles: [file] }, f.pool))).toMatchObject({ code: "H213", params: { fingerprint: f.hostKey.fingerprint, source: `${file}:1` } });
  });

  it("refuses everything while a known_hosts file cannot be read", async () => {
    const { server } = await f.pair();
    expect(await errorOf(dial(f.target(server), { ...f.env, knownHostsFiles: [f.dir] }, f.pool))).toMatchObject({ code: "H212" });
  });

  it("asks for the type that known_hosts has, so that a good server does not look unknown", async () => {
    const rsa = makeKey(f.dir, "rsa", "rsa");
    const file = join(f.dir, "rsa_known");
    const server = await f.sshd({ hostKeys: [f.hostKey, rsa] });
    writeFileSync(file, `[127.0.0.1]:${server.port} ${rsa.line}\n`);
    const dialled = await dial(f.target(server), { ...f.env, knownHostsFiles: [file] }, f.pool);
    dialled.close();
  });

  it("learns the key by a probe that never authenticates", async () => {
    const server = await f.sshd();
    const probed = await probeHostKey(f.target(server, { user: "nobody-at-all", auth: { kind: "password", password: "secret" } }), f.env, f.pool);
    expect(probed.judge.view(probed.key)).toEqual({ status: "unconfirmed", algorithm: "ssh-ed25519", offered: f.hostKey.fingerprint, trusted: null, source: null });
    expect(server.log()).not.toMatch(/nobody-at-all|userauth|Failed/);
  });
});

describe("the tree", () => {
  it("hands ssh2 no verifier that says yes to all, and in the console none but the strict one", () => {
    const root = join(import.meta.dirname, "../..");
    const found: string[] = [];
    const walk = (dir: string): void => {
      for (const name of readdirSync(dir)) {
        const path = join(dir, name);
        if (statSync(path).isDirectory()) walk(path);
        else if (/\.(ts|tsx|mjs|js)$/.test(name) && !name.includes(".test.")) {
          const text = readFileSync(path, "utf8");
          if (/hostVerifier\s*[:=]\s*(async\s*)?\([^)]*\)(:\s*\w+)?\s*=>\s*(true|\{\s*return true)/.test(text)) found.push(`${path} accepts every key`);
          if (path.startsWith(join(root, "electron")) && /hostVerifier\s*[:=](?!\s*strictVerifier\()/.test(text)) found.push(`${path} bypasses strictVerifier`);
        }
      }
    };
    for (const room of ["electron", "e2e", "agent", "native/addon"]) walk(join(root, room));
    expect(found).toEqual([]);
  });
});
