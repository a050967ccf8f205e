import { ConsoleError } from "../contract/index.js";
import { plainLine, shellCommand } from "../ssh/index.js";
import type { ExecOptions, NodeSession } from "../ssh/types.js";

/** What every script starts with. `sh -s` reads it all before it runs, and no command of it can eat the rest. */
const HEAD = `set -u
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022
nl='
'
say() {
  case $2 in *"$nl"*) printf '%s=%s\\n' "$1" "$(printf '%s' "$2" | tr '\\n' ' ')" ;; *) printf '%s=%s\\n' "$1" "$2" ;; esac
}
die() { say failed "$1"; [ -z "\${2:-}" ] || say detail "$2"; exit 0; }
`;

/** The `name=value` lines that a script printed. A name may come several times; hostile, so bounded and made plain. */
export class Fields {
  readonly #values = new Map<string, string[]>();
  constructor(text: string) {
    for (const line of text.split("\n").slice(0, 4_000)) {
      const match = /^([a-z_]{1,40})=(.*)$/.exec(line);
      if (!match?.[1]) continue;
      const values = this.#values.get(match[1]) ?? [];
      if (values.length < 1_000) values.push(plainLine(match[2] ?? "", 1_000));
      this.#values.set(match[1], values);
    }
  }
  all(name: string): string[] {
    return this.#values.get(name) ?? [];
  }
  one(name: string): string | null {
    return this.#values.get(name)?.[0] ?? null;
  }
  /** A number of the decimal kind; null for anything else. */
  number(name: string): number | null {
    const text = this.one(name);
    return text !== null && /^-?\d{1,15}$/.test(text) ? Number(text) : null;
  }
  has(name: string): boolean {
    return this.#values.has(name);
  }
}

export interface ScriptOptions {
  readonly root?: boolean;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/**
 * Runs a POSIX sh text on a node with arguments `$1`…, and gives what it printed. The text goes in by standard input, so the
 * login shell never reads it. A script says an expected failure by `die WHAT DETAIL`; any other end with a status is H310.
 * @throws ConsoleError H104, H207, H209, H303, H310
 */
export async function runScript(session: NodeSession, host: string, name: string, script: string, args: readonly string[], options: ScriptOptions = {}): Promise<Fields> {
  const command = shellCommand(["/bin/sh", "-s", "--", ...args]);
  const exec: ExecOptions = { stdin: `# StepCCL: ${name}\n${HEAD}{\n${script}\n} </dev/null\nexit 0\n`, root: options.root ?? false, timeoutMs: options.timeoutMs ?? 30_000, maxBytes: 256 * 1024 };
  if (options.signal) exec.signal = options.signal;
  const result = await session.exec(command, exec);
  const fields = new Fields(result.stdout);
  if (result.status === 0) return fields;
  const detail = plainLine(result.stderr.trim() || result.stdout.trim() || "no output");
  throw ConsoleError.of("H310", { command: name, host, status: result.status ?? `signal ${result.signal ?? "unknown"}`, detail });
}
