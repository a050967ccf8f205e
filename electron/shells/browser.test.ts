import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { request, type IncomingHttpHeaders } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { MAX_MESSAGE_BYTES } from "../contract/index.js";
import { startBrowserShell, type BrowserShell } from "./browser.js";

let shell: BrowserShell;
let folder: string;
let cookie: string;
const dispatched: string[] = [];

interface Answer { status: number; headers: IncomingHttpHeaders; body: string }

/** A raw request: the path goes out as it stands, and every header is ours. */
function ask(path: string, options: { method?: string; headers?: Record<string, string>; body?: string } = {}): Promise<Answer> {
  return new Promise((done, fail) => {
    const outgoing = request({ host: "127.0.0.1", port: shell.port, path, method: options.method ?? "GET", headers: options.headers ?? {}, agent: false }, (answer) => {
      let body = "";
      answer.setEncoding("utf8").on("data", (part: string) => { body += part; }).on("end", () => done({ status: answer.statusCode ?? 0, headers: answer.headers, body }));
    });
    outgoing.on("error", fail);
    outgoing.end(options.body);
  });
}
const origin = (): string => `http://127.0.0.1:${shell.port}`;
const tokenFrom = (address: string): string => new URL(address).hash.replace("#token=", "");
const exchange = (token: string, headers: Record<string, string> = {}): Promise<Answer> =>
  ask("/session", { method: "POST", headers: { origin: origin(), "content-type": "application/json", ...headers }, body: JSON.stringify({ token }) });
const withCookie = (): Record<string, string> => ({ cookie });

function dial(path: string, headers: Record<string, string>): Promise<number> {
  return new Promise((done) => {
    const socket = new WebSocket(`ws://127.0.0.1:${shell.port}${path}`, { headers });
    socket.on("open", () => {
      socket.terminate();
      done(101);
    });
    socket.on("unexpected-response", (_request, answer) => {
      answer.resume();
      done(answer.statusCode ?? 0);
    });
    socket.on("error", () => {});
  });
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "stepccl-page-"));
  const page = join(folder, "page");
  mkdirSync(join(page, "assets"), { recursive: true });
  writeFileSync(join(page, "index.html"), "<!doctype html><html><head><title>t</title></head></html>");
  writeFileSync(join(page, "assets", "main.js"), "1;");
  writeFileSync(join(page, ".hidden.js"), "secret");
  writeFileSync(join(folder, "secret.js"), "secret");
  symlinkSync(join(folder, "secret.js"), join(page, "link.js"));
  shell = await startBrowserShell({
    pageDir: page,
    host: {
      dispatch: async (method) => {
        dispatched.push(method);
        return { echo: method };
      },
      subscribe: () => () => {},
    },
  });
  const answer = await exchange(tokenFrom(shell.address()));
  expect(answer.status).toBe(204);
  const set = answer.headers["set-cookie"]?.[0] ?? "";
  expect(set).toMatch(/^stepccl_\d+=[A-Za-z0-9_-]{43}; HttpOnly; SameSite=Strict; Path=\/$/);
  cookie = set.split(";")[0] ?? "";
});
afterAll(async () => {
  await shell.close();
  rmSync(folder, { recursive: true });
});

describe("entry", () => {
  it("a token has 256 bits, opens one session, and is refused the second time", async () => {
    const token = tokenFrom(shell.address());
    expect(token).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect((await exchange(token)).status).toBe(204);
    const again = await exchange(token);
    expect(again.status).toBe(401);
    expect(JSON.parse(again.body)).toMatchObject({ error: { code: "H103" } });
  });

  it.each([
    ["no origin", { origin: "" }, 403],
    ["another origin", { origin: "http://evil.example" }, 403],
    ["another port's origin", { origin: "http://127.0.0.1:1" }, 403],
    ["an origin that merely begins like ours", { origin: "http://127.0.0.1.evil.example" }, 403],
    ["a form's content type", { "content-type": "text/plain" }, 415],
  ])("POST /session with %s is refused and the token stays good", async (_name, headers, status) => {
    const token = tokenFrom(shell.address());
    expect((await exchange(token, headers as Record<string, string>)).status).toBe(status);
    expect((await exchange(token)).status).toBe(204);
  });

  it("a wrong token, no token, a large body, no JSON", async () => {
    expect((await exchange("x".repeat(43))).status).toBe(401);
    for (const [body, status] of [["", 401], ["[]", 401], ['{"token":7}', 401], [`{"token":"${"x".repeat(2000)}"}`, 413]] as const) {
      const answer = await ask("/session", { method: "POST", headers: { origin: origin(), "content-type": "application/json" }, body });
      expect(answer.status, body.slice(0, 20)).toBe(status);
    }
  });

  it("without a session only the entry is served", async () => {
    const root = await ask("/");
    expect(root.status).toBe(200);
    expect(root.body).toContain("/enter.js");
    expect((await ask("/enter.js")).body).toContain("/session");
    expect((await ask("/assets/main.js")).status).toBe(401);
    expect((await ask("/assets/main.js", { headers: { cookie: `${cookie.slice(0, -1)}!` } })).status).toBe(401);
    expect((await ask("/assets/main.js", { headers: { cookie: `other=${cookie.split("=")[1]}` } })).status).toBe(401);
  });
});

describe("every answer", () => {
  it("the page comes with the policy and its nonce", async () => {
    const page = await ask("/", { headers: withCookie() });
    const csp = String(page.headers["content-security-policy"]);
    const nonce = /csp-nonce" content="([^"]+)"/.exec(page.body)?.[1];
    expect(nonce).toMatch(/^[A-Za-z0-9+/]{24}$/);
    expect(csp).toBe(
      `default-src 'none'; script-src 'self'; style-src 'self' 'nonce-${nonce}'; img-src 'self' data:; font-src 'self'; connect-src 'self' ws://127.0.0.1:${shell.port}; ` +
      "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'");
    expect(page.headers).toMatchObject({ "x-content-type-options": "nosniff", "cache-control": "no-store", "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin" });
    expect(page.headers["access-control-allow-origin"]).toBeUndefined();
    const second = await ask("/", { headers: withCookie() });
    expect(second.headers["content-security-policy"]).not.toBe(csp);
  });

  it.each(["evil.example", "127.0.0.1", "127.0.0.1.evil.example:1", "127.evil.com", "localhost", "[::1]:80", "0.0.0.0:1"])("a request for host %s is refused (DNS rebinding)", async (host) => {
    const answer = await ask("/", { headers: { host, ...withCookie() } });
    expect(answer.status).toBe(421);
    expect(answer.body).not.toContain("<html");
  });

  it("localhost with our port is us", async () => {
    expect((await ask("/", { headers: { host: `localhost:${shell.port}` } })).status).toBe(200);
  });

  it("two Host headers are refused", async () => {
    const answer = await new Promise<string>((done) => {
      const socket = connect(shell.port, "127.0.0.1", () => socket.write(`GET / HTTP/1.1\r\nHost: 127.0.0.1:${shell.port}\r\nHost: evil.example\r\nConnection: close\r\n\r\n`));
      let text = "";
      socket.setEncoding("utf8").on("data", (part: string) => { text += part; }).on("close", () => done(text));
    });
    expect(answer).toMatch(/^HTTP\/1\.1 (400|421) /);
  });

  it.each([
    "/../secret.js", "/%2e%2e/secret.js", "/..%2fsecret.js", "/%2e%2e%2fsecret.js", "/assets/../../secret.js", "/assets/%2e%2e/%2e%2e/secret.js", "//secret.js", "/..\\secret.js", "/%5c..%5csecret.js",
    "/link.js", "/.hidden.js", "/secret.js%00.html", "/%00", "/%ff", "/%", "/assets", "/assets/", "/index.html/x.js", `/${"a".repeat(5000)}.js`,
  ])("%s reaches nothing outside the page", async (path) => {
    const answer = await ask(path, { headers: withCookie() });
    expect(answer.status).toBe(404);
    expect(answer.body).not.toBe("secret");
  });

  it("serves what belongs to the page, and HEAD without a body", async () => {
    expect(await ask("/assets/main.js?v=1", { headers: withCookie() })).toMatchObject({ status: 200, body: "1;" });
    expect(await ask("/assets/main.js", { method: "HEAD", headers: withCookie() })).toMatchObject({ status: 200, body: "" });
  });

  it.each(["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])("%s is refused", async (method) => {
    expect((await ask("/", { method, headers: { ...withCookie(), origin: origin() } })).status).toBe(405);
  });
});

describe("the WebSocket", () => {
  it("needs our host, our origin, the cookie and the path", async () => {
    expect(await dial("/ws", { origin: origin(), ...withCookie() })).toBe(101);
    expect(await dial("/ws", { origin: origin() })).toBe(401);
    expect(await dial("/ws", { origin: origin(), cookie: `stepccl_${shell.port}=wrong` })).toBe(401);
    expect(await dial("/ws", withCookie())).toBe(403);
    expect(await dial("/ws", { origin: "http://evil.example", ...withCookie() })).toBe(403);
    expect(await dial("/ws", { origin: "null", ...withCookie() })).toBe(403);
    expect(await dial("/ws", { origin: `http://localhost:${shell.port}`, ...withCookie() })).toBe(403);
    expect(await dial("/ws", { origin: origin(), host: "evil.example", ...withCookie() })).toBe(421);
    expect(await dial("/other", { origin: origin(), ...withCookie() })).toBe(404);
  });

  it("several pages at once; binary is answered and does nothing; a large message closes that page alone", async () => {
    const open = (): Promise<WebSocket> => new Promise((done) => {
      const socket = new WebSocket(`ws://127.0.0.1:${shell.port}/ws`, { headers: { origin: origin(), ...withCookie() } });
      socket.on("open", () => done(socket));
    });
    const next = (socket: WebSocket): Promise<unknown> => new Promise((done) => socket.once("message", (data) => done(JSON.parse(String(data)))));
    const [one, two] = await Promise.all([open(), open()]);
    const answers = Promise.all([next(one), next(two)]);
    one.send('{"type":"request","id":1,"method":"hello","params":{}}');
    two.send('{"type":"request","id":1,"method":"nodes.list","params":{}}');
    expect(await answers).toEqual([{ type: "result", id: 1, result: { echo: "hello" } }, { type: "result", id: 1, result: { echo: "nodes.list" } }]);

    const refusal = next(one);
    const before = dispatched.length;
    one.send(Buffer.from('{"type":"request","id":2,"method":"hello","params":{}}'), { binary: true });
    expect(await refusal).toMatchObject({ type: "error", id: null, error: { code: "H101" } });
    expect(dispatched).toHaveLength(before);

    const gone = new Promise<number>((done) => one.on("close", (code) => done(code)));
    one.send("x".repeat(MAX_MESSAGE_BYTES + 1));
    expect(await gone).toBe(1009);
    const alive = next(two);
    two.send('{"type":"request","id":2,"method":"hello","params":{}}');
    expect(await alive).toMatchObject({ type: "result", id: 2 });
    two.terminate();
  });
});
