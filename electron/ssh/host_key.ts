import type { HostVerifier } from "ssh2";
import { ConsoleError, type HostKeyView } from "../contract/index.js";
import { hostKeyName } from "./endpoint.js";
import { entryMatches, readKnownHosts, type KnownHost } from "./known_hosts.js";
import { fingerprintOf, keyTypeOf, type KeyBlob } from "./public_key.js";

/** A key that the operator confirmed, in the console's own store. */
export interface TrustedKey {
  /** See hostKeyName. */
  readonly name: string;
  readonly type: string;
  readonly key: KeyBlob;
  readonly addedAtMs: number;
  /** Who vouched: "operator", or "rotation" for a key that the server proved over a trusted connection. */
  readonly source: string;
}

/** Where the console keeps what the operator confirmed. known_hosts is read and never written. */
export interface TrustStore {
  keysOf(name: string): TrustedKey[];
  /** Puts `key` in the place of every key of this name. */
  trust(key: TrustedKey): void;
  /** Puts `keys` in the place of every key of this name. */
  replace(name: string, keys: readonly TrustedKey[]): void;
  forget(name: string): void;
}

export class MemoryTrustStore implements TrustStore {
  readonly #keys = new Map<string, TrustedKey[]>();
  keysOf(name: string): TrustedKey[] {
    return this.#keys.get(name) ?? [];
  }
  trust(key: TrustedKey): void {
    this.#keys.set(key.name, [key]);
  }
  replace(name: string, keys: readonly TrustedKey[]): void {
    this.#keys.set(name, [...keys]);
  }
  forget(name: string): void {
    this.#keys.delete(name);
  }
}

/** Keys of one server that are kept; sshd itself has a handful. */
const MAX_KEYS = 16;

export type Verdict =
  | { status: "trusted"; source: string }
  | { status: "unconfirmed"; source: string | null }
  | { status: "changed"; expected: string; source: string }
  | { status: "revoked"; source: string };

/**
 * Judges the keys of one server. Everything is read before the dial, so that the verdict is there at once: a person is never
 * raced by a handshake's timeout.
 */
export class HostKeyJudge {
  readonly name: string;
  readonly #own: TrustedKey[];
  readonly #listed: KnownHost[];
  readonly #revoked: KnownHost[];
  readonly #withoutPort: KnownHost[];
  readonly #authority: KnownHost | undefined;

  constructor(endpoint: { host: string; port: number }, known: readonly KnownHost[], trust: TrustStore) {
    this.name = hostKeyName(endpoint);
    const bare = endpoint.host.toLowerCase();
    const here = known.filter((e) => entryMatches(e, this.name));
    const plain = this.name === bare ? [] : known.filter((e) => entryMatches(e, bare));
    this.#own = trust.keysOf(this.name);
    this.#listed = here.filter((e) => e.marker === null);
    this.#revoked = [...here, ...plain].filter((e) => e.marker === "revoked");
    this.#withoutPort = plain.filter((e) => e.marker === null);
    this.#authority = here.find((e) => e.marker === "cert-authority");
  }

  /** @throws ConsoleError H212 when a known_hosts file cannot be read */
  static async read(endpoint: { host: string; port: number }, files: readonly string[], trust: TrustStore): Promise<HostKeyJudge> {
    return new HostKeyJudge(endpoint, await readKnownHosts(files), trust);
  }

  judge(key: KeyBlob): Verdict {
    const revoked = this.#revoked.find((e) => e.key.equals(key));
    if (revoked) return { status: "revoked", source: place(revoked) };
    const own = this.#own.find((k) => k.key.equals(key));
    if (own) return { status: "trusted", source: `${own.source}, ${new Date(own.addedAtMs).toISOString()}` };
    // As in ssh(1): a server on another port is also known by the bare name, but only to say yes.
    const listed = [...this.#listed, ...this.#withoutPort].find((e) => e.key.equals(key));
    if (listed) return { status: "trusted", source: place(listed) };
    const expected = this.#own[0] ?? this.#sameTypeFirst(key);
    if (expected) {
      const source = "file" in expected ? place(expected) : `${expected.source}, ${new Date(expected.addedAtMs).toISOString()}`;
      return { status: "changed", expected: fingerprintOf(expected.key), source };
    }
    return { status: "unconfirmed", source: this.#authority ? `${place(this.#authority)} names a certificate authority, which the console cannot check` : null };
  }

  /**
   * A known server that shows only a key of another type counts as changed: types that are known are offered first, so an
   * honest server that still has its key would have shown it.
   */
  #sameTypeFirst(key: KeyBlob): KnownHost | undefined {
    const type = keyTypeOf(key);
    return this.#listed.find((e) => e.type === type) ?? this.#listed[0];
  }

  /**
   * What to trust after the server proved `proved` over a connection with `current` (OpenSSH's hostkeys-00 and its
   * UpdateHostKeys): keys that are new are added, keys in whose place it shows others of their type are dropped. Only for a
   * server that the operator confirmed here: what known_hosts vouches for is ssh's to keep. null = nothing changes.
   */
  rotated(current: KeyBlob, proved: readonly KeyBlob[], nowMs: number): TrustedKey[] | null {
    const shows = (key: KeyBlob): boolean => proved.some((p) => p.equals(key));
    if (!this.#own.some((k) => k.key.equals(current)) || !shows(current)) return null;
    const types = new Set(proved.map((key) => keyTypeOf(key)));
    const kept = this.#own.filter((k) => shows(k.key) || !types.has(k.type));
    const added = proved.filter((key) => !this.#own.some((k) => k.key.equals(key)) && !this.#revoked.some((r) => r.key.equals(key)))
      .map((key): TrustedKey => ({ name: this.name, type: keyTypeOf(key) ?? "unknown", key: Buffer.from(key), addedAtMs: nowMs, source: "rotation" }));
    if (added.length === 0 && kept.length === this.#own.length) return null;
    return [...kept, ...added].slice(0, MAX_KEYS);
  }

  /** What is known without a dial. */
  get trustedKey(): { fingerprint: string; source: string; type: string } | null {
    const own = this.#own[0];
    if (own) return { fingerprint: fingerprintOf(own.key), source: `${own.source}, ${new Date(own.addedAtMs).toISOString()}`, type: own.type };
    const listed = this.#listed.find((e) => !this.#revoked.some((r) => r.key.equals(e.key)));
    return listed ? { fingerprint: fingerprintOf(listed.key), source: place(listed), type: listed.type } : null;
  }

  /** ssh2's host key algorithms, those of the known types first, as OpenSSH orders them. */
  algorithms(): string[] {
    const known = new Set([...this.#own.map((k) => k.type), ...this.#listed.map((e) => e.type)]);
    const isKnown = (algorithm: string): boolean => known.has(algorithm) || (algorithm.startsWith("rsa-sha2-") && known.has("ssh-rsa"));
    return [...ALGORITHMS.filter(isKnown), ...ALGORITHMS.filter((a) => !isKnown(a))];
  }

  /** What the page shows of a verdict. */
  view(key: KeyBlob): HostKeyView {
    const verdict = this.judge(key);
    return {
      status: verdict.status, algorithm: keyTypeOf(key), offered: fingerprintOf(key),
      trusted: verdict.status === "changed" ? verdict.expected : verdict.status === "trusted" ? fingerprintOf(key) : null,
      source: verdict.source,
    };
  }
}

/** In the order of preference of ssh2 1.17. */
const ALGORITHMS = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"] as const;

const place = (entry: KnownHost): string => `${entry.file}:${entry.line}`;

/** The error of a key that is not trusted, with what a person needs to decide. */
export function hostKeyError(host: string, key: KeyBlob, verdict: Exclude<Verdict, { status: "trusted" }>): ConsoleError {
  const fingerprint = fingerprintOf(key);
  const algorithm = keyTypeOf(key) ?? "unknown";
  if (verdict.status === "changed") return ConsoleError.of("H203", { host, expected: verdict.expected, fingerprint, algorithm, source: verdict.source });
  if (verdict.status === "revoked") return ConsoleError.of("H213", { host, fingerprint, algorithm, source: verdict.source });
  return ConsoleError.of("H202", { host, fingerprint, algorithm, ...(verdict.source ? { source: verdict.source } : {}) });
}

/**
 * The only hostVerifier that this console hands to ssh2. ssh2 takes every answer but a strict `false` for yes (a promise, null,
 * 0, undefined), so nothing but the literal `true` of `accept` becomes yes here, and a throw becomes no.
 */
export function strictVerifier(accept: (key: KeyBlob) => boolean, onFailure: (error: unknown) => void = () => {}): HostVerifier {
  return (key: Buffer, verify: (permitted: boolean) => void): void => {
    let answer: unknown = false;
    try {
      answer = accept(key);
    } catch (error) {
      onFailure(error);
    }
    // A promise is no answer, and its rejection must not end the process.
    if (answer instanceof Promise) answer.catch(onFailure);
    verify(answer === true);
  };
}
