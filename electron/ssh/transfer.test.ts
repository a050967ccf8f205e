import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { afterAll, describe, expect, it } from "vitest";
import { awaitProxy, forwardToSocket, proxyCommand } from "./agent_stream.js";
import { dial } from "./dial.js";
import { openExec } from "./exec.js";
import { errorOf, Fixture } from "./testing/fixture.js";

const f = new Fixture();
const servers: Server[] = [];
afterAll(async () => {
  for (const server of servers) server.close();
  await f.close();
});

function source(bytes: Buffer, name = "source"): { path: string; sizeBytes: number; sha256: string } {
  const path = join(f.dir, name);
  writeFileSync(path, bytes);
  return { path, sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

describe("upload", () => {
  it("sends a file whole, with its mode, over an existing one, and reports confirmed bytes", async () => {
    const { session } = await f.pair();
    const bytes = randomBytes(5_000_001);
    const to = join(f.dir, "it's here.bin");
    writeFileSync(to, "old");
    const progress: number[] = [];
    await session.upload(source(bytes), to, 0o640, (n) => progress.push(n));
    expect(readFileSync(to).equals(bytes)).toBe(true);
    expect(statSync(to).mode & 0o777).toBe(0o640);
    expect(existsSync(`${to}.part`)).toBe(false);
    expect(progress.at(-1)).toBe(bytes.length);
    expect(progress).toEqual([...progress].sort((x, y) => x - y));
    await session.upload(source(Buffer.alloc(0), "empty"), join(f.dir, "empty.out"), 0o600);
    expect(statSync(join(f.dir, "empty.out")).size).toBe(0);
  });

  it("leaves the old file when the source is not what it should be, or is missing", async () => {
    const { session } = await f.pair();
    const to = join(f.dir, "kept");
    writeFileSync(to, "old");
    const good = source(randomBytes(10_000), "changed");
    writeFileSync(good.path, randomBytes(10_000));
    expect(await errorOf(session.upload(good, to, 0o600))).toMatchObject({ code: "H313", params: { path: good.path } });
    writeFileSync(good.path, "short");
    expect((await errorOf(session.upload(good, to, 0o600))).code).toBe("H313");
    rmSync(good.path);
    expect((await errorOf(session.upload(good, to, 0o600))).code).toBe("H313");
    expect(readFileSync(to, "utf8")).toBe("old");
    expect(existsSync(`${to}.part`)).toBe(false);
  });

  it("finds out by the node's own checksum that its disk holds other bytes", async () => {
    // The node's sha256sum stands in for a disk that lost bytes: what was written is not what is read back.
    const bin = join(f.dir, "bin");
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, "sha256sum"), `#!/bin/sh\nprintf '%064d  %s\\n' 0 "$2"\n`, { mode: 0o755 });
    const { session } = await f.pair({ config: [`SetEnv PATH=${bin}:/usr/bin:/bin`] });
    const to = join(f.dir, "lost");
    expect(await errorOf(session.upload(source(randomBytes(1_000)), to, 0o600))).toMatchObject({ code: "H308", params: { found: "0".repeat(64) } });
    expect(existsSync(to) || existsSync(`${to}.part`)).toBe(false);
  });

  it("says that the disk is full, and where", async () => {
    // The kernel's own full device, reached by the part file's name; `df` then says what a full disk says.
    const bin = join(f.dir, "full-bin");
    mkdirSync(bin);
    writeFileSync(join(bin, "df"), "#!/bin/sh\nprintf 'Filesystem 1024-blocks Used Available Capacity Mounted on\\n/dev/x 100 96 4 96%% /\\n'\n", { mode: 0o755 });
    const { session } = await f.pair({ config: [`SetEnv PATH=${bin}:/usr/bin:/bin`] });
    const to = join(f.dir, "full");
    symlinkSync("/dev/full", `${to}.part`);
    expect(await errorOf(session.upload(source(randomBytes(200_000)), to, 0o600))).toMatchObject({ code: "H305", params: { path: f.dir, available: 4_096, needed: 200_000 } });
    expect(existsSync(to)).toBe(false);
  });

  it("stops in the middle when it is aborted, and takes the part away", async () => {
    const { session } = await f.pair();
    const abort = new AbortController();
    const to = join(f.dir, "aborted");
    const error = await errorOf(session.upload(source(randomBytes(30_000_000)), to, 0o600, () => abort.abort(), abort.signal));
    expect(error.code).toBe("H104");
    expect(existsSync(to) || existsSync(`${to}.part`)).toBe(false);
    expect((await session.exec("echo usable")).stdout).toBe("usable\n");
  });

  it("says when the server has no SFTP or refuses the place", async () => {
    const { session } = await f.pair({ config: ["Subsystem sftp /nonexistent"] });
    expect((await errorOf(session.upload(source(Buffer.from("x")), join(f.dir, "x"), 0o600))).code).toBe("H310");
    const { session: other } = await f.pair();
    expect(await errorOf(other.upload(source(Buffer.from("x")), "/nonexistent/dir/x", 0o600))).toMatchObject({ code: "H310", params: { detail: "No such file" } });
  });
});

/** A daemon that answers each line with the same line, in upper case. */
async function echoSocket(name: string): Promise<string> {
  const path = join(f.dir, name);
  const server = createServer((socket: Socket) => {
    socket.on("error", () => socket.destroy());
    socket.on("data", (chunk) => socket.write(chunk.toString().toUpperCase()));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return path;
}
const ask = (stream: Duplex, text: string): Promise<string> =>
  new Promise((resolve) => {
    stream.on("data", (chunk: Buffer) => resolve(chunk.toString()));
    stream.write(text);
  });

describe("the daemon's stream", () => {
  it("goes through stream-local forwarding, promptly", async () => {
    const { server } = await f.pair();
    const path = await echoSocket("echo.sock");
    const { client, close } = await dial(f.target(server), f.env, f.pool);
    const stream = await forwardToSocket(client, path);
    const started = performance.now();
    expect(await ask(stream, "hello\n")).toBe("HELLO\n");
    expect(performance.now() - started).toBeLessThan(1_000);
    stream.destroy();
    await expect(forwardToSocket(client, `${path}.missing`)).rejects.toThrow(/open fail/i);
    close();
  });

  it("goes through the proxy where forwarding is off; words of the daemon that come early are not lost", async () => {
    const { server } = await f.pair({ config: ["AllowStreamLocalForwarding no"] });
    const path = await echoSocket("proxied.sock");
    const fake = join(f.dir, "stepccld");
    writeFileSync(fake, `#!/bin/sh\n[ "$1" = proxy ] && [ "$2" = --socket ] || exit 2\nprintf 'early\\n'\nexec python3 -c 'import socket,sys,os,threading
s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
def up():
  while True:
    b=os.read(0,4096)
    if not b: break
    s.sendall(b)
threading.Thread(target=up,daemon=True).start()
while True:
  b=s.recv(4096)
  if not b: break
  os.write(1,b)
' "$3"\n`, { mode: 0o755 });
    const { client, close } = await dial(f.target(server), f.env, f.pool);
    await expect(forwardToSocket(client, path)).rejects.toThrow();
    const stream = await awaitProxy(await openExec(client, proxyCommand(path, fake)), "h", 5_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
    let heard = "";
    stream.on("data", (chunk: Buffer) => {
      heard += chunk.toString();
    });
    stream.write("hello\n");
    await expect.poll(() => heard, { timeout: 5_000 }).toBe("early\nHELLO\n");
    stream.destroy();

    const attempt = async (socket: string, executable: string) => errorOf(awaitProxy(await openExec(client, proxyCommand(socket, executable)), "h", 5_000));
    expect(await attempt(path, "/nonexistent/stepccld")).toMatchObject({ code: "H401", params: { detail: "/nonexistent/stepccld is not installed" } });
    expect(await attempt(`${path}.missing`, fake)).toMatchObject({ code: "H401", params: { detail: `${path}.missing is not there` } });
    expect(await errorOf(awaitProxy(await openExec(client, "echo broken >&2; exit 3"), "h", 5_000))).toMatchObject({ code: "H210", params: { detail: "broken" } });
    expect(await errorOf(awaitProxy(await openExec(client, "echo Welcome to this node"), "h", 5_000))).toMatchObject({ code: "H210", params: { detail: "it printed Welcome to this node" } });
    close();
  });

  it("says that there is no daemon on a node without one", async () => {
    const { session } = await f.pair();
    expect(await errorOf(session.openAgentStream())).toMatchObject({ code: "H401", params: { detail: "/opt/stepccl/current/bin/stepccld is not installed" } });
    expect(await session.canForwardTo(await echoSocket("probe.sock"))).toBe(true);
    const { session: closed } = await f.pair({ config: ["AllowStreamLocalForwarding no"] });
    expect(await closed.canForwardTo(await echoSocket("probe2.sock"))).toBe(false);
  });
});
