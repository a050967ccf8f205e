import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fingerprintOf } from "../public_key.js";

/** A key pair made by ssh-keygen. */
export interface KeyPair {
  readonly path: string;
  /** "type base64", as it stands in known_hosts and authorized_keys. */
  readonly line: string;
  readonly blob: Buffer;
  readonly fingerprint: string;
}

export function makeKey(dir: string, name: string, type: "ed25519" | "rsa" | "ecdsa" = "ed25519", passphrase = ""): KeyPair {
  const path = join(dir, name);
  execFileSync("ssh-keygen", ["-q", "-t", type, ...(type === "rsa" ? ["-b", "2048"] : []), "-N", passphrase, "-C", name, "-f", path]);
  const [kind, encoded] = readFileSync(`${path}.pub`, "utf8").split(" ");
  const blob = Buffer.from(encoded ?? "", "base64");
  return { path, line: `${kind} ${encoded}`, blob, fingerprint: fingerprintOf(blob) };
}

export function tempDir(): string {
  const dir = mkdtempSync(join(tmpdir(), "stepccl-ssh-"));
  chmodSync(dir, 0o700);
  return dir;
}

export async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address ? address.port : 0));
    });
  });
}

export interface SshdOptions {
  readonly hostKeys: readonly KeyPair[];
  readonly authorized: readonly KeyPair[];
  /** Lines of sshd_config before the defaults of the tests; the first value of an option wins. */
  readonly config?: readonly string[];
  readonly port?: number;
}

export interface Sshd {
  readonly port: number;
  readonly user: string;
  readonly log: () => string;
  readonly stop: () => Promise<void>;
}

/** OpenSSH's own server on 127.0.0.1, with its own keys and configuration; only this user can log in. */
export async function startSshd(dir: string, options: SshdOptions): Promise<Sshd> {
  const port = options.port ?? (await freePort());
  const home = mkdtempSync(join(dir, "sshd-"));
  const authorized = join(home, "authorized_keys");
  writeFileSync(authorized, options.authorized.map((k) => `${k.line}\n`).join(""));
  const config = join(home, "sshd_config");
  writeFileSync(config, [
    ...(options.config ?? []), `Port ${port}`, "ListenAddress 127.0.0.1", ...options.hostKeys.map((k) => `HostKey ${k.path}`),
    `AuthorizedKeysFile ${authorized}`, "PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password",
    "StrictModes no", "UsePAM no", `PidFile ${join(home, "pid")}`, ...((options.config ?? []).some((line) => line.startsWith("Subsystem")) ? [] : ["Subsystem sftp internal-sftp"]), "MaxStartups 100:30:200", "",
  ].join("\n"));
  if (process.getuid?.() === 0 && !existsSync("/run/sshd")) mkdirSync("/run/sshd", { mode: 0o755 });
  const child: ChildProcess = spawn("/usr/sbin/sshd", ["-D", "-e", "-f", config], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    log += chunk.toString();
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  for (let i = 0; ; i++) {
    if (child.exitCode !== null || i > 200) throw new Error(`sshd did not start: ${log}`);
    if (await answers(port)) break;
    await sleep(25);
  }
  return {
    port, user: userInfo().username, log: () => log,
    stop: async () => {
      child.kill("SIGTERM");
      await ended;
      rmSync(home, { recursive: true, force: true });
    },
  };
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
