import { createHmac, timingSafeEqual } from "node:crypto";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { ConsoleError } from "../contract/index.js";
import { keyTypeOf, type KeyBlob } from "./public_key.js";

/** One line of a known_hosts file (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). */
export interface KnownHost {
  readonly file: string;
  readonly line: number;
  readonly marker: "revoked" | "cert-authority" | null;
  readonly hosts: string;
  readonly type: string;
  readonly key: KeyBlob;
}

/** The files that OpenSSH reads when its configuration names no others. */
export function defaultKnownHostsFiles(): string[] {
  const own = join(homedir(), ".ssh");
  return [join(own, "known_hosts"), join(own, "known_hosts2"), "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"];
}

/** Lines that are no entries (comments, SSH-1 keys, damage) are left out: they vouch for nothing. */
export function parseKnownHosts(text: string, file: string): KnownHost[] {
  const entries: KnownHost[] = [];
  for (const [index, raw] of text.split(/\r?\n|\r/).entries()) {
    const fields = raw.replace(/^\uFEFF/, "").trim().split(/[ \t]+/);
    if (!fields[0] || fields[0].startsWith("#")) continue;
    let marker: KnownHost["marker"] = null;
    if (fields[0].startsWith("@")) {
      const word = fields.shift();
      if (word !== "@revoked" && word !== "@cert-authority") continue;
      marker = word === "@revoked" ? "revoked" : "cert-authority";
    }
    const [hosts, type, encoded] = fields;
    if (!hosts || !type || !encoded || !/^[A-Za-z0-9+/]+={0,2}$/.test(encoded)) continue;
    const key = Buffer.from(encoded, "base64");
    if (keyTypeOf(key) !== type) continue;
    entries.push({ file, line: index + 1, marker, hosts, type, key });
  }
  return entries;
}

/**
 * Reads every file. One that does not exist vouches for nothing; one that cannot be read refuses everything, since a key
 * that it revokes or contradicts would go unseen.
 * @throws ConsoleError H212
 */
export async function readKnownHosts(files: readonly string[]): Promise<KnownHost[]> {
  const all: KnownHost[] = [];
  for (const file of files) {
    let text: string;
    try {
      text = await readFile(file, "utf8");
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === "ENOENT" || code === "ENOTDIR") continue;
      throw ConsoleError.of("H212", { path: file, detail: code ?? String(error) }, error);
    }
    all.push(...parseKnownHosts(text, file));
  }
  return all;
}

/** Whether `entry` speaks of `name` (see hostKeyName). A negated pattern that matches takes the whole line away. */
export function entryMatches(entry: KnownHost, name: string): boolean {
  if (entry.hosts.startsWith("|")) return hashedMatches(entry.hosts, name);
  let matched = false;
  for (const item of entry.hosts.toLowerCase().split(",")) {
    const negated = item.startsWith("!");
    const pattern = negated ? item.slice(1) : item;
    if (pattern === "" || !globMatches(pattern, name)) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}

/** `|1|base64(salt)|base64(HMAC-SHA1(salt, name))`, as HashKnownHosts writes it. */
function hashedMatches(hosts: string, name: string): boolean {
  const [, version, salt, digest, ...rest] = hosts.split("|");
  if (version !== "1" || !salt || !digest || rest.length > 0) return false;
  const expected = Buffer.from(digest, "base64");
  const actual = createHmac("sha1", Buffer.from(salt, "base64")).update(name).digest();
  return expected.length === actual.length && timingSafeEqual(expected, actual);
}

/** `*` and `?`, in time linear in pattern times name: a hostile pattern cannot make it hang. */
export function globMatches(pattern: string, name: string): boolean {
  let p = 0, n = 0, star = -1, resume = 0;
  while (n < name.length) {
    if (p < pattern.length && (pattern[p] === "?" || (pattern[p] === name[n] && pattern[p] !== "*"))) {
      p++;
      n++;
    } else if (pattern[p] === "*") {
      star = p++;
      resume = n;
    } else if (star >= 0) {
      p = star + 1;
      n = ++resume;
    } else return false;
  }
  while (pattern[p] === "*") p++;
  return p === pattern.length;
}
