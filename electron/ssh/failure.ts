import { ConsoleError } from "../contract/index.js";
import { plainLine } from "./quote.js";

/** What ssh2 and Node's sockets put on their errors. */
export interface SshFailure extends Error {
  level?: string;
  code?: string | number;
  /** Reason code of SSH_MSG_CHANNEL_OPEN_FAILURE (RFC 4254 section 5.1). */
  reason?: number | string;
}

const SOCKET_TEXT: Record<string, string> = {
  ECONNREFUSED: "connection refused", EHOSTUNREACH: "no route to host", ENETUNREACH: "network unreachable", ETIMEDOUT: "connection timed out",
  ECONNRESET: "connection reset", ENOTFOUND: "the name cannot be resolved", EAI_AGAIN: "the name cannot be resolved now", EPIPE: "connection closed",
};

export function detailOf(error: unknown): string {
  const failure = error as SshFailure;
  const known = typeof failure?.code === "string" ? SOCKET_TEXT[failure.code] : undefined;
  return known ?? plainLine(error instanceof Error ? error.message : String(error), 300);
}

/**
 * A failure before the connection was ready, in the terms of HOST_ERRORS.
 * @param authReport what became of each method tried
 */
export function dialError(error: unknown, at: { host: string; port: number; user: string }, authReport: () => string): ConsoleError {
  if (error instanceof ConsoleError) return error;
  const failure = error as SshFailure;
  const noMatch = /no matching (.+)$/.exec(failure.message ?? "");
  if (failure.level === "handshake" && noMatch) {
    return ConsoleError.of("H206", { host: at.host, what: plainLine(noMatch[1] ?? "", 60), detail: "the server offers none that this console has" }, error);
  }
  if (failure.level === "client-authentication" || /too many authentication failures/i.test(failure.message ?? "")) {
    const report = authReport();
    const detail = failure.level === "client-authentication" ? report : `${plainLine(failure.message, 120)}; ${report}`;
    return ConsoleError.of("H204", { host: at.host, user: at.user, detail }, error);
  }
  return ConsoleError.of("H201", { host: at.host, port: at.port, detail: detailOf(error) }, error);
}

/** A failure after the connection was ready. */
export function lostError(error: unknown, host: string): ConsoleError {
  if (error instanceof ConsoleError) return error;
  const failure = error as SshFailure | undefined;
  if (failure?.level === "client-timeout") return ConsoleError.of("H207", { host, detail: "no answer to keepalives" }, error);
  return ConsoleError.of("H207", { host, detail: error === undefined ? "the server closed the connection" : detailOf(error) }, error);
}

/** RFC 4254 section 5.1. */
export const OPEN_ADMINISTRATIVELY_PROHIBITED = 1;
export const OPEN_CONNECT_FAILED = 2;
