import { execFileSync, spawn } from "node:child_process";
import { chmodSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import { dial } from "./dial.js";
import { errorOf, Fixture } from "./testing/fixture.js";
import { freePort, makeKey } from "./testing/sshd.js";

const f = new Fixture();
afterAll(() => f.close());

describe("credentials", () => {
  it("names each method that was refused", async () => {
    const stranger = makeKey(f.dir, "stranger");
    const { server, session } = await f.pair();
    session.retarget(f.target(server, { auth: { kind: "key", keyPath: stranger.path } }));
    const error = await errorOf(session.connect());
    expect(error.code).toBe("H204");
    expect(error.params?.["detail"]).toContain(`key ${stranger.path} (ssh-ed25519 ${stranger.fingerprint}): refused`);
    session.retarget(f.target(server, { user: "no-such-user" }));
    expect(await errorOf(session.connect())).toMatchObject({ code: "H204", params: { user: "no-such-user" } });
    session.retarget(f.target(server, { auth: { kind: "password", password: "hunter2-secret" } }));
    const refused = await errorOf(session.connect());
    expect(refused).toMatchObject({ code: "H204" });
    expect(JSON.stringify(refused)).toContain("the server does not take password");
    expect(JSON.stringify(refused)).not.toContain("hunter2");
  });

  it("uses encrypted keys with their passphrase and says what is wrong with a key file", async () => {
    const locked = makeKey(f.dir, "locked", "ed25519", "open sesame");
    const server = await f.sshd({ authorized: [locked] });
    f.trustKey({ host: "127.0.0.1", port: server.port }, f.hostKey);
    const withKey = (keyPath: string, passphrase?: string) => f.target(server, { auth: { kind: "key", keyPath, ...(passphrase === undefined ? {} : { passphrase }) } });
    const session = f.session(withKey(locked.path, "open sesame"));
    await session.connect();
    session.close();
    for (const [target, detail] of [
      [withKey(locked.path), /no passphrase/], [withKey(locked.path, "wrong"), /passphrase is wrong/],
      [withKey(`${f.dir}/absent`), /does not exist/], [withKey(`${locked.path}.pub`), /public key/], [withKey(f.dir), /no file/], [withKey("/etc/passwd"), /no private key/],
    ] as const) {
      session.retarget(target);
      const error = await errorOf(session.connect());
      expect(error.code).toBe("H205");
      expect(error.params?.["detail"]).toMatch(detail);
    }
  });

  it("warns of a key file that others can read, and uses it", async () => {
    const loose = makeKey(f.dir, "loose");
    chmodSync(loose.path, 0o644);
    const server = await f.sshd({ authorized: [loose] });
    f.trustKey({ host: "127.0.0.1", port: server.port }, f.hostKey);
    await f.session(f.target(server, { auth: { kind: "key", keyPath: loose.path } })).connect();
    expect(f.warnings.join()).toMatch(/mode 644/);
  });

  it("uses the keys of an SSH agent, and says when it is missing or empty", async () => {
    const socket = `${f.dir}/agent.sock`;
    const agent = spawn("ssh-agent", ["-D", "-a", socket], { stdio: "ignore" });
    try {
      for (let i = 0; i < 100; i++) {
        try {
          execFileSync("ssh-add", ["-l"], { env: { ...process.env, SSH_AUTH_SOCK: socket }, stdio: "ignore" });
          break;
        } catch (error) {
          if ((error as { status?: number }).status === 1) break;
          await sleep(20);
        }
      }
      const { server } = await f.pair();
      const target = f.target(server, { auth: { kind: "agent" } });
      const env = { ...f.env, agentSocket: () => socket };
      const empty = await errorOf(dial(target, env, f.pool));
      expect(empty.code).toBe("H204");
      expect(empty.params?.["detail"]).toContain("offers no key");
      execFileSync("ssh-add", ["-q", f.userKey.path], { env: { ...process.env, SSH_AUTH_SOCK: socket }, stdio: "ignore" });
      (await dial(target, env, f.pool)).close();
      expect(await errorOf(dial(target, { ...f.env, agentSocket: () => `${socket}.gone` }, f.pool))).toMatchObject({ code: "H211" });
      expect(await errorOf(dial(target, { ...f.env, agentSocket: () => null }, f.pool))).toMatchObject({ code: "H211" });
    } finally {
      agent.kill();
    }
  });
});

describe("a node that is not there", () => {
  it("says so for a closed port, a silent one and a name without address", async () => {
    const at = (host: string, port: number) => f.session({ host, port, user: "x", auth: { kind: "key", keyPath: f.userKey.path }, jump: [] });
    expect(await errorOf(at("127.0.0.1", await freePort()).connect())).toMatchObject({ code: "H201", params: { detail: "connection refused" } });
    expect(await errorOf(at("no-such-host.invalid", 22).connect())).toMatchObject({ code: "H201", params: { detail: expect.stringContaining("cannot be resolved") } });
    const { createServer } = await import("node:net");
    const silent = createServer(() => {}).listen(0, "127.0.0.1");
    await new Promise((resolve) => silent.once("listening", resolve));
    const port = (silent.address() as { port: number }).port;
    const quick = new Fixture({ handshakeTimeoutMs: 300 });
    expect(await errorOf(quick.session({ host: "127.0.0.1", port, user: "x", auth: { kind: "key", keyPath: quick.userKey.path }, jump: [] }).connect())).toMatchObject({ code: "H201", params: { detail: expect.stringContaining("handshake") } });
    await quick.close();
    silent.close();
  });

  it("names the algorithm that is missing", async () => {
    const { session } = await f.pair({ config: ["KexAlgorithms sntrup761x25519-sha512@openssh.com"] });
    expect(await errorOf(session.connect())).toMatchObject({ code: "H206", params: { what: "key exchange algorithm" } });
  });

  it("reports a lost connection once and dials again at the next call", async () => {
    const { server, session } = await f.pair();
    const lost: string[] = [];
    session.on("lost", (error) => lost.push(error.view.code));
    const pid = (await session.exec("echo $PPID")).stdout.trim();
    const running = errorOf(session.exec("sleep 30"));
    await sleep(100);
    process.kill(Number(pid), "SIGKILL");
    expect((await running).code).toBe("H207");
    expect(lost).toEqual(["H207"]);
    expect(session.state).toBe("disconnected");
    expect((await session.exec("echo back")).stdout).toBe("back\n");
    expect(session.state).toBe("connected");
    await server.stop();
  });

  it("notices by keepalives that a peer has stopped", async () => {
    const fast = new Fixture({ keepaliveIntervalMs: 100 });
    const { session } = await fast.pair();
    const pid = Number((await session.exec("echo $PPID")).stdout.trim());
    process.kill(pid, "SIGSTOP");
    const lost = new Promise((resolve) => session.once("lost", (error) => resolve(error.view)));
    expect(await lost).toMatchObject({ code: "H207", params: { detail: "no answer to keepalives" } });
    process.kill(pid, "SIGKILL");
    await fast.close();
  });
});

describe("exec", () => {
  it("keeps status, signal, both outputs and hostile bytes apart, within its bounds", async () => {
    const { session } = await f.pair();
    expect(await session.exec("echo out; echo err >&2; exit 7")).toMatchObject({ status: 7, signal: null, stdout: "out\n", stderr: "err\n", droppedBytes: 0 });
    expect(await session.exec("kill -TERM $$")).toMatchObject({ status: null, signal: "SIGTERM" });
    const flood = await session.exec("head -c 3000000 /dev/zero; head -c 100 /dev/urandom >&2", { maxBytes: 1_000 });
    expect(flood.stdout).toHaveLength(1_000);
    expect(flood.droppedBytes).toBe(2_999_000);
    expect(await session.exec("cat", { stdin: "secret\0text\n" })).toMatchObject({ stdout: "secret\0text\n" });
    const lines: string[] = [];
    await session.execLines("printf 'a\\r\\nb\\n\\303'; sleep 0.1; printf '\\274c\\n'; head -c 200000 /dev/zero | tr '\\0' x; printf 'end'", (stream, line) => lines.push(`${stream}:${line}`));
    expect(lines.slice(0, 3)).toEqual(["stdout:a", "stdout:b", "stdout:üc"]);
    expect(lines.slice(3).map((l) => l.length - 7)).toEqual([65_536, 65_536, 65_536, 200_003 - 3 * 65_536]);
  });

  it("ends a command that runs out of time or is aborted, on the node too", async () => {
    const { session } = await f.pair();
    expect(await errorOf(session.exec("sleep 51.5", { timeoutMs: 200 }))).toMatchObject({ code: "H209", params: { what: "sleep 51.5", seconds: 0.2 } });
    const abort = new AbortController();
    const aborted = errorOf(session.exec("sleep 52.5", { signal: abort.signal }));
    await sleep(100);
    abort.abort();
    expect((await aborted).code).toBe("H104");
    // As root sshd refuses signals, so there it is the node's own clock that ends the command.
    const left = async (seconds: string): Promise<string> => (await session.exec(`pgrep -fx 'sleep ${seconds}' | wc -l`)).stdout.trim();
    if (process.getuid?.() === 0) {
      const unique = `50.${process.pid}`;
      expect((await errorOf(session.exec(`sleep ${unique}; true`, { root: true, timeoutMs: 300 }))).code).toBe("H209");
      await expect.poll(() => left(unique), { timeout: 5_000, interval: 200 }).toBe("0");
    } else await expect.poll(() => left("5[12][.]5"), { timeout: 3_000, interval: 100 }).toBe("0");
    expect((await errorOf(session.exec("true", { signal: AbortSignal.abort() }))).code).toBe("H104");
  });

  it("runs as root, and says when that is not allowed", async () => {
    const { session } = await f.pair();
    if (process.getuid?.() === 0) expect((await session.exec("id -u", { root: true })).stdout).toBe("0\n");
    else expect(await errorOf(session.exec("id -u", { root: true }))).toMatchObject({ code: "H303" });
  });

  it("queues sessions below the server's limit and learns a lower one", async () => {
    const { session } = await f.pair();
    let running = 0;
    let most = 0;
    await Promise.all(Array.from({ length: 12 }, async () => {
      await session.execLines("echo start; sleep 0.4; echo end", (_stream, line) => {
        running += line === "start" ? 1 : -1;
        most = Math.max(most, running);
      });
    }));
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(8);
    const { session: narrow } = await f.pair({ config: ["MaxSessions 2"] });
    const all = await Promise.all(Array.from({ length: 8 }, (_, i) => narrow.exec(`sleep 0.02; echo ${i}`)));
    expect(all.map((r) => r.stdout.trim())).toEqual(Array.from({ length: 8 }, (_, i) => String(i)));
    const { session: none } = await f.pair({ config: ["MaxSessions 0"] });
    expect(await errorOf(none.exec("true"))).toMatchObject({ code: "H208" });
  });

  it("shares one dial among calls, and one caller's abort does not end it for the others", async () => {
    const { server, session } = await f.pair();
    const abort = new AbortController();
    const first = errorOf(session.exec("true", { signal: abort.signal }));
    const second = session.exec("echo two");
    abort.abort();
    expect((await first).code).toBe("H104");
    expect((await second).stdout).toBe("two\n");
    expect(server.log().match(/Accepted publickey/g)).toHaveLength(1);
  });
});
