import { execFile } from "node:child_process";
import { homedir, userInfo } from "node:os";
import { join } from "node:path";
import SSHConfig from "ssh-config";
import { ConsoleError, NodeInput, type AuthMethod } from "../contract/index.js";
import { expandHome, readKeyFile } from "./auth.js";
import { readConfigFiles, type ConfigText } from "./config_files.js";
import { parseJump } from "./endpoint.js";
import { Limit } from "./limit.js";

export interface ImportedHost {
  readonly alias: string;
  readonly input: NodeInput;
  /** What the configuration says and the console does not do, one sentence each. */
  readonly notApplied: string[];
}

export interface ImportOptions {
  /** Default ~/.ssh/config. */
  readonly path?: string;
  /** The OpenSSH client; null = do without. Default "ssh". */
  readonly ssh?: string | null;
  readonly signal?: AbortSignal;
}

type Values = Map<string, string[]>;
const MAX_HOSTS = 2_000;
const MAX_HOPS = 8;

/**
 * Hosts that ~/.ssh/config names one by one. What each means is asked from `ssh -G`; where OpenSSH is missing, or where asking
 * would run a `Match exec` command, the configuration is read here.
 */
export async function importSshConfig(options: ImportOptions = {}): Promise<ImportedHost[]> {
  const path = options.path ?? join(homedir(), ".ssh", "config");
  const files = await readConfigFiles(path);
  const resolver = new Resolver(files, options);
  const limit = new Limit(4);
  const hosts = await Promise.all(files.aliases.slice(0, MAX_HOSTS).map((alias) => limit.run(() => resolver.importOne(alias), options.signal)));
  return hosts.filter((host) => host !== null);
}

class Resolver {
  readonly #own: SSHConfig | null;
  readonly #ssh: string | null;
  readonly #note: string | null;

  constructor(private readonly files: ConfigText, private readonly options: ImportOptions) {
    this.#own = parseOrNull(files.text);
    this.#ssh = files.matchExec || options.ssh === null ? null : (options.ssh ?? "ssh");
    this.#note = files.matchExec ? "Match exec: its commands are not run, so what they decide is not applied" : null;
  }

  async importOne(alias: string): Promise<ImportedHost | null> {
    const values = await this.#valuesOf(alias);
    const notApplied = [...this.files.problems, ...(this.#note ? [this.#note] : [])];
    const one = (name: string): string | undefined => values.get(name)?.[0];
    const user = one("user") ?? userInfo().username;
    const jump = await this.#jumpsOf(values, user, notApplied, 0);
    const auth = await this.#authOf(alias, values, notApplied);
    for (const [name, idle, why] of NOT_APPLIED) {
      const value = values.get(name)?.join(" ");
      if (value && !idle.test(value)) notApplied.push(`${why[0]} ${value.slice(0, 120)}: ${why[1]}`);
    }
    const parsed = NodeInput.safeParse({ name: alias.slice(0, 64), host: one("hostname") ?? alias, port: Number(one("port") ?? 22), user, auth, jump });
    return parsed.success ? { alias, input: parsed.data, notApplied } : null;
  }

  /** Option names in lower case, values as `ssh -G` prints them. */
  async #valuesOf(alias: string): Promise<Values> {
    if (this.#ssh) {
      const output = await sshG(this.#ssh, this.options.path ?? null, alias, this.options.signal);
      if (output !== null) return output;
    }
    const values: Values = new Map();
    const computed = this.#own?.compute(alias, { ignoreCase: true, matchExec: false }) ?? {};
    for (const [name, value] of Object.entries(computed)) values.set(name.toLowerCase(), Array.isArray(value) ? value : [value]);
    const hostname = values.get("hostname")?.[0];
    if (hostname) values.set("hostname", [hostname.replaceAll("%h", alias).replaceAll("%%", "%")]);
    return values;
  }

  /** Each hop with its own address, user and port, and the hops before the first one. */
  async #jumpsOf(values: Values, user: string, notApplied: string[], depth: number): Promise<string[]> {
    const text = values.get("proxyjump")?.[0];
    if (!text || text.toLowerCase() === "none") return [];
    if (depth > MAX_HOPS) {
      notApplied.push("ProxyJump: the chain of hops does not end");
      return [];
    }
    const hops: string[] = [];
    for (const [index, word] of text.split(",").entries()) {
      let hop: ReturnType<typeof parseJump>;
      try {
        hop = parseJump(word, "");
      } catch (error) {
        notApplied.push(`ProxyJump ${word.slice(0, 100)}: ${error instanceof ConsoleError ? error.view.message : "not understood"}`);
        continue;
      }
      const own = await this.#valuesOf(hop.host);
      if (index === 0) hops.push(...(await this.#jumpsOf(own, user, notApplied, depth + 1)));
      const host = own.get("hostname")?.[0] ?? hop.host;
      const port = hop.port === 22 ? Number(own.get("port")?.[0] ?? 22) : hop.port;
      hops.push(`${hop.user || own.get("user")?.[0] || userInfo().username}@${host.includes(":") ? `[${host}]` : host}:${port}`);
    }
    return hops.slice(0, MAX_HOPS);
  }

  /** A key file that the configuration names and that can be used as it is; the agent in every other case. */
  async #authOf(alias: string, values: Values, notApplied: string[]): Promise<AuthMethod> {
    const named = this.#own?.compute(alias, { ignoreCase: true, matchExec: false })["identityfile"];
    const explicit = named === undefined ? [] : (values.get("identityfile") ?? (Array.isArray(named) ? named : [named]));
    for (const file of explicit.filter((f) => f.toLowerCase() !== "none")) {
      const keyPath = expandHome(file.replace(/^"(.*)"$/, "$1").replaceAll("%d", homedir()));
      try {
        await readKeyFile(keyPath, undefined);
        return { kind: "key", keyPath };
      } catch (error) {
        notApplied.push(`IdentityFile ${keyPath}: ${error instanceof ConsoleError ? String(error.view.params?.["detail"]) : "unusable"}; the SSH agent is used instead`);
      }
    }
    return { kind: "agent" };
  }
}

/** Option, values that change nothing, and what to say about the others. */
const NOT_APPLIED: readonly [name: string, idle: RegExp, why: readonly [string, string]][] = [
  ["proxycommand", /^none$/i, ["ProxyCommand", "the console dials by itself and by ProxyJump only"]],
  ["hostkeyalias", /^$/, ["HostKeyAlias", "the key is looked up under the address"]],
  ["identityagent", /^(SSH_AUTH_SOCK|\$SSH_AUTH_SOCK)$/, ["IdentityAgent", "the agent of SSH_AUTH_SOCK is used"]],
  ["forwardagent", /^no$/i, ["ForwardAgent", "the agent is never forwarded"]],
  ["stricthostkeychecking", /^(ask|yes|true|accept-new)$/i, ["StrictHostKeyChecking", "every key is verified"]],
  ["certificatefile", /^$/, ["CertificateFile", "certificates are not supported"]],
  ["pkcs11provider", /^none$/i, ["PKCS11Provider", "load the key into the SSH agent"]],
  ["localforward", /^$/, ["LocalForward", "no port is forwarded"]],
  ["remoteforward", /^$/, ["RemoteForward", "no port is forwarded"]],
  ["dynamicforward", /^$/, ["DynamicForward", "no port is forwarded"]],
  ["remotecommand", /^none$/i, ["RemoteCommand", "the console runs its own commands"]],
  ["bindaddress", /^$/, ["BindAddress", "the system chooses the source address"]],
];

function parseOrNull(text: string): SSHConfig | null {
  try {
    return SSHConfig.parse(text);
  } catch {
    // Named already among the problems of the files; `ssh -G` may still understand it.
    return null;
  }
}

/** Null when OpenSSH is not there or refuses the configuration. */
function sshG(ssh: string, config: string | null, alias: string, signal?: AbortSignal): Promise<Values | null> {
  return new Promise((resolve, reject) => {
    execFile(ssh, [...(config === null ? [] : ["-F", config]), "-G", "--", alias], { timeout: 10_000, maxBuffer: 1 << 20, ...(signal ? { signal } : {}) }, (error, stdout) => {
      if (signal?.aborted) return reject(ConsoleError.of("H104"));
      if (error) return resolve(null);
      const values: Values = new Map();
      for (const line of stdout.split("\n")) {
        const space = line.indexOf(" ");
        if (space < 1) continue;
        const name = line.slice(0, space).toLowerCase();
        values.set(name, [...(values.get(name) ?? []), line.slice(space + 1).trim()]);
      }
      resolve(values);
    }).stdin?.end();
  });
}
