import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type WebSocket } from "ws";
import { ConsoleError, MAX_MESSAGE_BYTES, toErrorView, type ErrorView } from "../contract/index.js";
import type { Dispatcher } from "../gate.js";
import { Access, cookieOf } from "./access.js";
import { contentSecurityPolicy, newNonce, readPageFile, SAFE_HEADERS, withNonce } from "./page-files.js";
import { Session } from "./session.js";

export interface BrowserShellOptions {
  host: Dispatcher;
  /** The built page. */
  pageDir: string;
  /** 0 = a free one. */
  port?: number;
}

export interface BrowserShell {
  readonly port: number;
  /** A fresh address with a one-time token in its fragment: opens one browser. */
  address(): string;
  close(): Promise<void>;
}

const MAX_BODY_BYTES = 1024;
const MAX_PAGES = 32;

/** What a browser without a session gets: trades the address's token for the cookie, then loads the page. */
const ENTER_HTML = `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>StepCCL Console</title>
<script src="/enter.js" defer></script></head><body><p id="note"></p></body></html>`;
const ENTER_JS = `"use strict";
const token = /^#(?:token=)?([A-Za-z0-9_-]{16,512})$/.exec(location.hash)?.[1];
history.replaceState(null, "", "/");
const say = (text) => { document.getElementById("note").textContent = text; };
const refused = "H103: The session token is missing or wrong. Open the address that the console printed when it started.";
if (!token) say(refused);
else fetch("/session", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token }) })
  .then((answer) => { if (answer.ok) location.replace("/"); else say(refused); }, () => say("The console does not answer."));
`;

/**
 * The console for a browser on this machine: HTTP and one WebSocket per page on 127.0.0.1. Every request must name our
 * own address as its host; all but the entry needs the cookie; what changes something must come from our own origin.
 */
export async function startBrowserShell(options: BrowserShellOptions): Promise<BrowserShell> {
  const access = new Access();
  const sockets = new WebSocketServer({ noServer: true, maxPayload: MAX_MESSAGE_BYTES, perMessageDeflate: false, clientTracking: true });
  const server = createServer({ maxHeaderSize: 16 * 1024, requestTimeout: 15_000, headersTimeout: 10_000 });
  await new Promise<void>((done, fail) => {
    server.once("error", fail);
    server.listen(options.port ?? 0, "127.0.0.1", () => {
      server.off("error", fail);
      done();
    });
  });
  const port = (server.address() as AddressInfo).port;
  const hosts = [`127.0.0.1:${port}`, `localhost:${port}`];
  const cookieName = `stepccl_${port}`;

  const hostOf = (request: IncomingMessage): string | null => {
    // Node joins nothing for Host: two of them are refused by its parser or show in rawHeaders.
    const named = request.rawHeaders.filter((_, i) => i % 2 === 0).filter((name) => name.toLowerCase() === "host").length;
    const host = request.headers.host;
    return named === 1 && host !== undefined && hosts.includes(host) ? host : null;
  };
  const fromOurPage = (request: IncomingMessage, host: string): boolean => request.headers.origin === `http://${host}`;
  const hasCookie = (request: IncomingMessage): boolean => access.accepts(cookieOf(request.headers.cookie, cookieName));

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const host = hostOf(request);
    if (!host) return answerError(response, 421, refused("the request names another host"));
    const pathname = (request.url ?? "").split(/[?#]/, 1)[0] ?? "";
    if (pathname === "/session") return openSession(request, response, host);
    if (request.method !== "GET" && request.method !== "HEAD") return answerError(response, 405, refused(`method ${String(request.method).slice(0, 16)}`), { allow: "GET, HEAD" });

    if (!hasCookie(request)) {
      if (pathname === "/enter.js") return answer(response, 200, "text/javascript; charset=utf-8", ENTER_JS);
      if (pathname === "/" || pathname === "/index.html") return answerDocument(response, host, Buffer.from(ENTER_HTML));
      return answerError(response, 401, ConsoleError.of("H103").view);
    }
    const file = await readPageFile(options.pageDir, pathname);
    if (!file) {
      const detail = pathname === "/" ? "the page is not built; run npm run build" : `there is no file ${pathname.slice(0, 200)}`;
      return answerError(response, 404, refused(detail));
    }
    if (file.type.startsWith("text/html")) return answerDocument(response, host, file.bytes);
    return answer(response, 200, file.type, file.bytes);
  }

  function answerDocument(response: ServerResponse, host: string, html: Buffer): void {
    const nonce = newNonce();
    const csp = contentSecurityPolicy(nonce, ["'self'", `ws://${host}`]);
    answer(response, 200, "text/html; charset=utf-8", withNonce(html, nonce), { "content-security-policy": csp });
  }

  async function openSession(request: IncomingMessage, response: ServerResponse, host: string): Promise<void> {
    if (request.method !== "POST") return answerError(response, 405, refused("only POST"), { allow: "POST" });
    if (!fromOurPage(request, host)) return answerError(response, 403, refused("the request comes from another origin"));
    if (request.headers["content-type"]?.split(";")[0]?.trim().toLowerCase() !== "application/json") return answerError(response, 415, refused("the body must be application/json"));
    const token = tokenOf(await readBody(request));
    const cookie = token === null ? null : access.exchange(token);
    if (!cookie) return answerError(response, 401, ConsoleError.of("H103").view);
    answer(response, 204, null, "", { "set-cookie": `${cookieName}=${cookie}; HttpOnly; SameSite=Strict; Path=/` });
  }

  server.on("request", (request, response) => {
    handle(request, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else answerError(response, error instanceof BodyTooLarge ? 413 : 500, error instanceof BodyTooLarge ? refused("the body is too large") : toErrorView(error));
    });
  });
  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on("error", () => socket.destroy());
    const host = hostOf(request);
    const status = !host ? 421 : !fromOurPage(request, host) ? 403 : !hasCookie(request) ? 401 : request.url !== "/ws" ? 404 : sockets.clients.size >= MAX_PAGES ? 503 : 0;
    if (status !== 0) return void socket.end(`HTTP/1.1 ${status} Refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    sockets.handleUpgrade(request, socket, head, (page) => attach(page, options.host));
  });
  server.on("clientError", (_error, socket: Duplex) => {
    if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    else socket.destroy();
  });

  return {
    port,
    address: () => `http://127.0.0.1:${port}/#token=${access.mint()}`,
    close: async () => {
      for (const page of sockets.clients) page.terminate();
      sockets.close();
      server.closeAllConnections();
      await new Promise<void>((done) => server.close(() => done()));
    },
  };
}

/** Joins one page's WebSocket to the host. */
function attach(page: WebSocket, host: Dispatcher): void {
  const session = new Session(host, {
    send: (text) => {
      if (page.readyState === page.OPEN) page.send(text);
    },
    backlogBytes: () => page.bufferedAmount,
    close: (reason) => page.close(1008, reason),
  });
  let alive = true;
  const heartbeat = setInterval(() => {
    if (!alive) return page.terminate();
    alive = false;
    page.ping();
  }, 30_000);
  heartbeat.unref();
  page.on("pong", () => { alive = true; });
  page.on("message", (data, isBinary) => {
    alive = true;
    if (isBinary) session.refuse("binary messages have no meaning here");
    else session.receive((data as Buffer).toString("utf8"));
  });
  page.on("error", () => page.terminate());
  page.on("close", () => {
    clearInterval(heartbeat);
    session.close();
  });
}

const refused = (detail: string): ErrorView => ConsoleError.of("H101", { detail }).view;

function answer(response: ServerResponse, status: number, type: string | null, body: string | Buffer, headers: Record<string, string> = {}): void {
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  response.writeHead(status, { ...SAFE_HEADERS, ...(type ? { "content-type": type } : {}), "content-length": bytes.length, ...headers });
  response.end(response.req.method === "HEAD" ? undefined : bytes);
}

function answerError(response: ServerResponse, status: number, error: ErrorView, headers: Record<string, string> = {}): void {
  answer(response, status, "application/json", JSON.stringify({ error }), { connection: "close", ...headers });
}

class BodyTooLarge extends Error {}

async function readBody(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > MAX_BODY_BYTES) throw new BodyTooLarge();
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

function tokenOf(body: string): string | null {
  try {
    const value: unknown = JSON.parse(body);
    if (typeof value !== "object" || value === null || !("token" in value)) return null;
    return typeof value.token === "string" && value.token.length <= 512 ? value.token : null;
  } catch {
    return null;
  }
}
