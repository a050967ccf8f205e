import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import ssh2 from "ssh2";
import type { AnyAuthMethod, AuthenticationType, NextAuthHandler, ParsedKey } from "ssh2";
import { ConsoleError, type AuthMethod } from "../contract/index.js";
import { agentSocketPath, listAgentKeys } from "./agent_list.js";
import { fingerprintOf } from "./public_key.js";
import { plainLine } from "./quote.js";

interface Method {
  readonly type: AuthenticationType;
  /** How a report names it; never a secret. */
  readonly label: string;
  readonly make: (user: string) => AnyAuthMethod;
}

/**
 * The methods to try at one server, in order, and what became of each. One plan serves one dial.
 */
export class AuthPlan {
  readonly warnings: readonly string[];
  readonly #user: string;
  readonly #methods: Method[];
  readonly #notes: string[];
  readonly #refused: string[] = [];
  #current: Method | null = null;
  #accepts: readonly string[] | null = null;
  #partial = false;

  constructor(user: string, methods: Method[], notes: string[], warnings: string[]) {
    this.#user = user;
    this.#methods = [...methods];
    this.#notes = notes;
    this.warnings = warnings;
  }

  /** ssh2's authHandler. The first try is "none", by which the server says which methods it takes. */
  readonly handler = (left: AuthenticationType[] | null, partial: boolean, next: NextAuthHandler): void => {
    if (this.#current) this.#refused.push(partial ? `${this.#current.label}: accepted, but the server wants more` : `${this.#current.label}: refused`);
    this.#partial ||= partial === true;
    if (left) this.#accepts = left;
    if (left === null) return next({ type: "none", username: this.#user });
    for (let method = this.#methods.shift(); method; method = this.#methods.shift()) {
      if (!left.includes(method.type === "agent" ? "publickey" : method.type)) {
        this.#refused.push(`${method.label}: the server does not take ${method.type === "agent" ? "publickey" : method.type}`);
        continue;
      }
      this.#current = method;
      return next(method.make(this.#user));
    }
    this.#current = null;
    // ssh2 documents `false` as the end of the list; its types leave that out.
    next(false as unknown as AnyAuthMethod);
  };

  /** An agent that fails in the middle is one refused method, not the end of the dial. */
  noteAgentError(message: string): void {
    this.#notes.push(`SSH agent: ${plainLine(message, 200)}`);
  }

  /** Every method and its outcome, in one line. */
  report(): string {
    const parts = [...this.#refused, ...this.#notes];
    if (this.#current) parts.push(`${this.#current.label}: not answered`);
    if (this.#accepts) parts.push(`the server takes ${this.#accepts.map((m) => plainLine(String(m), 40)).join(", ") || "nothing more"}`);
    if (this.#partial) parts.push("it wants more than one method, which the console does not offer");
    return parts.join("; ") || "no method to try";
  }
}

export interface AuthSources {
  /** Default: SSH_AUTH_SOCK. */
  readonly agentSocket?: () => string | null;
  readonly signal?: AbortSignal;
}

/**
 * Prepares the credentials of one server.
 * @throws ConsoleError H205 the key file cannot be used, H211 no agent answers, H104 aborted
 */
export async function planAuth(user: string, auth: AuthMethod, sources: AuthSources = {}): Promise<AuthPlan> {
  const methods: Method[] = [];
  const notes: string[] = [];
  const warnings: string[] = [];
  switch (auth.kind) {
    case "agent": {
      const path = (sources.agentSocket ?? agentSocketPath)();
      if (!path) throw ConsoleError.of("H211", { path: "SSH_AUTH_SOCK, which is not set" });
      const keys = await listAgentKeys(path, sources.signal);
      const usable = keys.filter((k) => k.usable);
      for (const key of keys.filter((k) => !k.usable)) notes.push(`${key.type} ${key.fingerprint} in the agent cannot be used by the console`);
      if (usable.length === 0) notes.push(`the SSH agent at ${path} offers ${keys.length === 0 ? "no key" : "no usable key"}`);
      else {
        const shown = usable.slice(0, 6).map((k) => `${k.type} ${k.fingerprint}`).join(", ");
        methods.push({ type: "agent", label: `SSH agent with ${usable.length} key${usable.length > 1 ? "s" : ""} (${shown}${usable.length > 6 ? ", …" : ""})`, make: (username) => ({ type: "agent", username, agent: path }) });
      }
      break;
    }
    case "key": {
      const { key, label, warning } = await readKeyFile(auth.keyPath, auth.passphrase);
      if (warning) warnings.push(warning);
      methods.push({ type: "publickey", label, make: (username) => ({ type: "publickey", username, key }) });
      break;
    }
    case "password": {
      const { password } = auth;
      methods.push({ type: "password", label: "password", make: (username) => ({ type: "password", username, password }) });
      methods.push({
        type: "keyboard-interactive", label: "password as keyboard-interactive",
        make: (username) => ({
          type: "keyboard-interactive", username,
          // The password answers only a single hidden question; anything else is a second factor that we do not have.
          prompt: (_name, _instructions, _lang, prompts, finish) => finish(prompts.length === 1 && prompts[0]?.echo !== true ? [password] : []),
        }),
      });
      break;
    }
  }
  return new AuthPlan(user, methods, notes, warnings);
}

/** Whether an OpenSSH private key is the handle of a FIDO key; its type stands in the base64 body. */
function isSecurityKey(bytes: Buffer): boolean {
  const body = Buffer.from(bytes.toString("latin1").replace(/-----[^-]+-----/g, ""), "base64").toString("latin1");
  return body.includes("sk-ssh-ed25519@openssh.com") || body.includes("sk-ecdsa-sha2-nistp256@openssh.com");
}

const MAX_KEY_BYTES = 64 * 1024;

/** `~/` as shells expand it. */
export function expandHome(path: string): string {
  return path === "~" || path.startsWith("~/") || path.startsWith("~\\") ? join(homedir(), path.slice(1)) : path;
}

/**
 * Reads a private key in OpenSSH, PEM or PuTTY form.
 * @throws ConsoleError H205, with `wantsPassphrase` where another passphrase is what it lacks
 */
export async function readKeyFile(keyPath: string, passphrase: string | undefined): Promise<{ key: ParsedKey; label: string; warning: string | null }> {
  const path = expandHome(keyPath);
  const unusable = (detail: string, cause?: unknown): ConsoleError => ConsoleError.of("H205", { path, detail }, cause);
  const locked = (detail: string): ConsoleError => ConsoleError.of("H205", { path, detail, wantsPassphrase: true });
  let bytes: Buffer;
  let mode: number;
  try {
    const info = await stat(path);
    if (!info.isFile()) throw unusable("it is no file");
    if (info.size > MAX_KEY_BYTES) throw unusable("it is too large to be a key");
    mode = info.mode;
    bytes = await readFile(path);
  } catch (error) {
    if (error instanceof ConsoleError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    throw unusable(code === "ENOENT" ? "it does not exist" : code === "EACCES" ? "it is not readable" : String(code ?? error), error);
  }
  const parsed = ssh2.utils.parseKey(bytes, passphrase);
  const key = Array.isArray(parsed) ? parsed[0] : parsed;
  if (key instanceof Error || !key) {
    const reason = key?.message ?? "no key in it";
    if (/no passphrase given|encrypted.*passphrase/i.test(reason)) throw locked("it is encrypted and no passphrase was given");
    if (passphrase !== undefined && /decrypt|passphrase|integrity|bad/i.test(reason)) throw locked("the passphrase is wrong");
    if (isSecurityKey(bytes)) throw unusable("FIDO keys are not supported; use them through ssh");
    throw unusable(`it is no private key that the console can read (${plainLine(reason, 120)})`);
  }
  if (!key.isPrivateKey()) throw unusable("it is a public key; choose the file without .pub");
  const open = process.platform !== "win32" && (mode & 0o077) !== 0;
  return {
    key, label: `key ${path} (${key.type} ${fingerprintOf(key.getPublicSSH())})`,
    warning: open ? `The key file ${path} can be read by other users (mode ${(mode & 0o777).toString(8)}); run chmod 600 on it.` : null,
  };
}
