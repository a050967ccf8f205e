import { connect } from "node:net";
import { ConsoleError } from "../contract/index.js";
import { fingerprintOf, keyTypeOf, type KeyBlob } from "./public_key.js";

/** A key that an SSH agent holds. `usable` is false for types that ssh2 cannot use (FIDO "sk-" keys, certificates). */
export interface AgentKey {
  readonly type: string;
  readonly fingerprint: string;
  readonly comment: string;
  readonly usable: boolean;
}

const REQUEST_IDENTITIES = 11;
const IDENTITIES_ANSWER = 12;
const MAX_ANSWER_BYTES = 256 * 1024;
const USABLE = new Set(["ssh-ed25519", "ssh-rsa", "ssh-dss", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"]);

/** Where the agent listens: the variable is read anew for each dial, since it changes after a new login. */
export function agentSocketPath(): string | null {
  if (process.env["SSH_AUTH_SOCK"]) return process.env["SSH_AUTH_SOCK"];
  return process.platform === "win32" ? "\\\\.\\pipe\\openssh-ssh-agent" : null;
}

/**
 * Asks an agent which keys it holds (draft-ietf-sshm-ssh-agent section 4.4). ssh2 leaves out silently those that it cannot use;
 * here they are named.
 * @throws ConsoleError H211 no agent answers, H104 aborted
 */
export function listAgentKeys(path: string, signal?: AbortSignal, timeoutMs = 10_000): Promise<AgentKey[]> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path });
    const chunks: Buffer[] = [];
    let received = 0;
    const finish = (outcome: AgentKey[] | ConsoleError): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      socket.destroy();
      if (outcome instanceof ConsoleError) reject(outcome);
      else resolve(outcome);
    };
    const fail = (detail: string, cause?: unknown): void => finish(ConsoleError.of("H211", { path, detail }, cause));
    const abort = (): void => finish(ConsoleError.of("H104"));
    const timer = setTimeout(() => fail("no answer in time"), timeoutMs);
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) return abort();
    socket.on("error", (error) => fail(error.message, error));
    socket.on("close", () => fail("it closed the connection"));
    socket.on("connect", () => socket.write(Buffer.from([0, 0, 0, 1, REQUEST_IDENTITIES])));
    socket.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      received += chunk.length;
      if (received > MAX_ANSWER_BYTES) return fail("its answer is too long");
      const answer = Buffer.concat(chunks);
      if (answer.length < 4 || answer.length < 4 + answer.readUInt32BE(0)) return;
      const keys = parseIdentities(answer.subarray(4, 4 + answer.readUInt32BE(0)));
      if (keys) finish(keys);
      else fail("its answer is malformed");
    });
  });
}

/** Null when the message is no well-formed IDENTITIES_ANSWER. */
export function parseIdentities(message: Buffer): AgentKey[] | null {
  if (message.length < 5 || message[0] !== IDENTITIES_ANSWER) return null;
  const count = message.readUInt32BE(1);
  let at = 5;
  const take = (): Buffer | null => {
    if (at + 4 > message.length) return null;
    const length = message.readUInt32BE(at);
    if (at + 4 + length > message.length) return null;
    at += 4 + length;
    return message.subarray(at - length, at);
  };
  const keys: AgentKey[] = [];
  for (let i = 0; i < count; i++) {
    const blob: KeyBlob | null = take();
    const comment = take();
    if (!blob || !comment) return null;
    const type = keyTypeOf(blob) ?? "unknown";
    keys.push({ type, fingerprint: fingerprintOf(blob), comment: comment.toString("utf8").slice(0, 128), usable: USABLE.has(type) });
  }
  return keys;
}
