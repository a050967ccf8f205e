import type { Duplex } from "node:stream";
import type { Client, ClientChannel } from "ssh2";
import { ConsoleError } from "../contract/index.js";
import { detailOf } from "./failure.js";
import { plainLine, shellQuote } from "./quote.js";

export const AGENT_SOCKET = "/run/stepccl/agent.sock";
export const AGENT_EXECUTABLE = "/opt/stepccl/current/bin/stepccld";
const READY = "stepccl-proxy-ready\n";

/**
 * A Unix socket of the node, by stream-local forwarding (OpenSSH PROTOCOL section 2.4).
 * @throws the raw channel error: sshd answers alike whether forwarding is off or the socket is not there
 */
export function forwardToSocket(client: Client, path: string, signal?: AbortSignal): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    let over = false;
    const onAbort = (): void => {
      over = true;
      reject(ConsoleError.of("H104"));
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) return onAbort();
    const done = (error: Error | undefined, channel?: Duplex): void => {
      signal?.removeEventListener("abort", onAbort);
      if (over) channel?.destroy();
      else if (error || !channel) reject(error ?? new Error("no channel"));
      else resolve(channel);
    };
    try {
      client.openssh_forwardOutStreamLocal(path, (error, channel) => done(error, channel as unknown as Duplex));
    } catch (error) {
      done(error as Error);
    }
  });
}

/**
 * Says first whether the daemon can be reached at all, then becomes `stepccld proxy`. Prints READY and after it nothing but the
 * daemon's bytes; exit 10 = not installed, 11 = no socket, 12 = not permitted.
 */
export function proxyCommand(socket: string, executable: string): string {
  const script = [
    `e=${shellQuote(executable)}; s=${shellQuote(socket)}`,
    `[ -x "$e" ] || { echo "$e is not installed" >&2; exit 10; }`,
    `[ -S "$s" ] || { echo "$s is not there" >&2; exit 11; }`,
    `{ [ -r "$s" ] && [ -w "$s" ]; } || { echo "$(id -un) may not open $s" >&2; exit 12; }`,
    `echo ${READY.trim()}`,
    `exec "$e" proxy --socket "$s"`,
  ].join("; ");
  return `exec /bin/sh -c ${shellQuote(script)}`;
}

/** Holds what comes until somebody listens: a paused stream does not flow again by a listener alone. */
function resumeWhenRead(channel: ClientChannel): void {
  channel.pause();
  const onListener = (event: string | symbol): void => {
    if (event !== "data") return;
    channel.off("newListener", onListener);
    process.nextTick(() => channel.resume());
  };
  channel.on("newListener", onListener);
}

/**
 * Waits until the proxy of an exec channel has said that it is ready, and gives the channel as the daemon's stream.
 * @throws ConsoleError H104, H209, H210 the proxy failed, H401 there is no daemon to reach
 */
export function awaitProxy(channel: ClientChannel, host: string, timeoutMs: number, signal?: AbortSignal): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    let head = Buffer.alloc(0);
    let stderr = "";
    let status: number | null = null;
    const finish = (settle: () => void): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      channel.off("data", onData);
      channel.off("close", onClose);
      settle();
    };
    const fail = (error: ConsoleError): void => finish(() => {
      channel.resume();
      channel.close();
      reject(error);
    });
    const onAbort = (): void => fail(ConsoleError.of("H104"));
    const timer = setTimeout(() => fail(ConsoleError.of("H209", { what: "stepccld proxy", host, seconds: timeoutMs / 1000 })), timeoutMs);
    const onData = (chunk: Buffer): void => {
      head = Buffer.concat([head, chunk]);
      const text = head.subarray(0, READY.length).toString("latin1");
      if (!READY.startsWith(text)) return fail(ConsoleError.of("H210", { host, detail: `it printed ${plainLine(head.toString("utf8"), 120)}` }));
      if (head.length < READY.length) return;
      finish(() => {
        resumeWhenRead(channel);
        if (head.length > READY.length) channel.unshift(head.subarray(READY.length));
        resolve(channel);
      });
    };
    const onClose = (): void => finish(() => {
      const detail = plainLine(stderr, 300) || `it ended with status ${status ?? "unknown"}`;
      reject(ConsoleError.of(status !== null && status >= 10 && status <= 12 ? "H401" : "H210", { host, detail }));
    });
    channel.on("exit", (code: number | null) => {
      status = code;
    });
    channel.on("data", onData);
    channel.on("close", onClose);
    channel.on("error", (error: Error) => fail(ConsoleError.of("H210", { host, detail: detailOf(error) }, error)));
    // Read for as long as the proxy lives, or its window fills and it stops.
    channel.stderr.on("data", (chunk: Buffer) => {
      if (stderr.length < 2048) stderr += chunk.toString("utf8");
    });
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
  });
}
