import { isIP } from "node:net";
import type { z } from "zod";
import type { RedactionKind } from "../../contract/index.js";

type Kind = z.infer<typeof RedactionKind>;

/** Names that say nothing of anybody. */
const COMMON = new Set(["localhost", "root", "stepccl", "nobody", "node", "host", "linux", "debian", "ubuntu", "amd64", "user", "admin", "daemon", "none"]);
const MAX_NAMES = 200_000;

const hex = (n: number, width: number): string => n.toString(16).padStart(width, "0");
/** What has the look of a secret by its key: the value goes, the key stays. */
const SECRET_KEY = /\b((?:pass(?:word|phrase|wd)?|secret|token|unique_id|api[_-]?key|access[_-]?key|auth(?:orization)?|bearer|private[_-]?key|cookie|credential)s?["']?\s{0,2}[:=]\s{0,2}["']?(?:Bearer )?)([^\s"',;]{4,4096})/gi;
const PEM = /-----BEGIN ([A-Z ]{3,40})-----[\s\S]{1,20000}?-----END \1-----/g;
const SSH_KEY = /\b((?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d{3}) )[A-Za-z0-9+/=]{40,2000}/g;
const FINGERPRINT = /\bSHA256:[A-Za-z0-9+/]{43}=?/g;
const CLOUD_KEY = /\bA(?:KIA|SIA)[A-Z0-9]{16}\b/g;
const UUID = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi;
const MACHINE_ID = /\b[0-9a-f]{32}\b/g;
const SERIAL_KEY = /\b((?:Serial ?(?:Number|No\.?)?|Board (?:Serial|ID)|Chassis (?:Serial|Tag)|Asset Tag|S\/N|SN|serial_number|Part Number|system-uuid|product_serial)["']?\s{0,20}[:=]\s{0,20}["']?)([A-Za-z0-9][\w./-]{3,63})/gi;
const DASHED_SERIAL = /\b(?:[0-9a-f]{2}-){7}[0-9a-f]{2}\b/gi;
const GUID_HEX = /\b0x[0-9a-f]{16}\b/gi;
const MAC = /(?<![0-9a-f:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![0-9a-f:])/gi;
const LONG_MAC = /(?<![0-9a-f:])(?:[0-9a-f]{2}:){7,19}[0-9a-f]{2}(?![0-9a-f:])/gi;
const DECIMAL_GID = /(?<![\d:])\d{1,3}(?::\d{1,3}){15}(?![\d:])/g;
const COLONS = /(?<![0-9A-Za-z:.])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,8}(?:(?:\d{1,3}\.){3}\d{1,3})?(?![0-9A-Za-z:]|\.\d)/g;
const IPV4 = /(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\d)/g;
const HOME = /(\/(?:home|Users)\/)([A-Za-z0-9_][\w.-]{0,63})/g;

/**
 * Replaces what tells who, where and which machine by stand-ins, the same for the same thing everywhere: addresses of one network stay
 * in one network, a GID stays the GID of its address. What faults are told by (PCI addresses, device names, codes, sizes) stays.
 */
export class Redactor {
  readonly #names = new Map<string, string>();
  readonly #counts = new Map<Kind, { names: number; places: number }>();
  readonly #networks = new Map<string, { number: number; hosts: Map<string, number> }>();
  /** Stand-ins of addresses: a later pass leaves them alone. */
  readonly #made = new Set<string>();
  #known: RegExp | null = null;
  readonly #knownKinds = new Map<string, Kind>();

  /** `hosts` and `users`: names that the console knows; the longest are looked for first. */
  constructor(hosts: Iterable<string>, users: Iterable<string>) {
    const add = (name: string, kind: Kind): void => {
      const plain = name.trim().toLowerCase();
      if (plain.length >= 2 && plain.length <= 255 && !COMMON.has(plain) && isIP(plain) === 0 && !/^\d+$/.test(plain)) this.#knownKinds.set(plain, kind);
    };
    for (const user of users) add(user, "user");
    for (const host of hosts) add(host, "host");
    const words = [...this.#knownKinds.keys()].sort((a, b) => b.length - a.length).map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    if (words.length > 0) this.#known = new RegExp(`(?<![A-Za-z0-9_])(?:${words.join("|")})(?![A-Za-z0-9_])`, "gi");
  }

  /** How many names of each kind were replaced, in how many places. */
  counts(): { kind: Kind; names: number; places: number }[] {
    return [...this.#counts].map(([kind, c]) => ({ kind, ...c }));
  }
  get places(): number {
    let sum = 0;
    for (const c of this.#counts.values()) sum += c.places;
    return sum;
  }

  text(text: string): string {
    const secret = (value: string): string => `<${this.#name("secret", value, (n) => `secret-${n}`)}>`;
    let out = text.replace(PEM, (whole) => secret(whole)).replace(SSH_KEY, (whole, type: string) => `${type}${secret(whole)}`).replace(FINGERPRINT, secret).replace(CLOUD_KEY, secret)
      .replace(SECRET_KEY, (_whole, key: string, value: string) => `${key}${secret(value)}`);
    out = out.replace(UUID, (v) => this.#name("uuid", v.toLowerCase(), (n) => `00000000-0000-4000-8000-${hex(n, 12)}`)).replace(MACHINE_ID, (v) => this.#name("uuid", v, (n) => hex(n, 32)));
    out = out.replace(SERIAL_KEY, (whole, key: string, value: string) => (/^(?:N\/A|none|unknown|0+)$/i.test(value) || value.startsWith("00000000-0000-4000") ? whole : key + this.#name("serial", value, (n) => `serial-${n}`)))
      .replace(DASHED_SERIAL, (v) => this.#name("serial", v.toLowerCase(), (n) => `00-00-00-ff-ff-00-${hex(n >> 8, 2)}-${hex(n & 255, 2)}`));
    out = out.replace(GUID_HEX, (v) => (/^0x0+$/.test(v) ? v : `0x${this.#guid(v.slice(2).toLowerCase())}`)).replace(LONG_MAC, (v) => this.#name("mac", v.toLowerCase(), (n) => `02:${"00:".repeat((v.length - 1) / 3 - 3)}${hex((n >> 16) & 255, 2)}:${hex((n >> 8) & 255, 2)}:${hex(n & 255, 2)}`)).replace(MAC, (v) => (/^(?:00:?)+$|^(?:ff:?)+$/i.test(v) ? v : this.#mac(v)));
    out = out.replace(DECIMAL_GID, (v) => this.#decimalGid(v)).replace(COLONS, (v) => this.#colons(v)).replace(IPV4, (v) => this.#ipv4(v));
    out = out.replace(HOME, (_whole, start: string, user: string) => start + (COMMON.has(user) ? user : this.#name("user", user.toLowerCase(), (n) => `user-${n}`)));
    if (this.#known) out = out.replace(this.#known, (v) => { const kind = this.#knownKinds.get(v.toLowerCase())!; return this.#name(kind, v.toLowerCase(), (n) => `${kind}-${n}`); });
    return out;
  }

  /** The same for every text in a value of JSON; keys stay. */
  value<T>(value: T): T {
    if (typeof value === "string") return this.text(value) as T;
    if (Array.isArray(value)) return value.map((v: unknown) => this.value(v)) as T;
    if (value !== null && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, this.value(v as unknown)])) as T;
    return value;
  }

  #name(kind: Kind, original: string, make: (n: number) => string): string {
    const key = `${kind}\u0000${original}`;
    const count = this.#counts.get(kind) ?? { names: 0, places: 0 };
    this.#counts.set(kind, count);
    count.places++;
    let name = this.#names.get(key);
    if (name === undefined) {
      if (this.#names.size < MAX_NAMES) count.names++;
      name = make(count.names);
      if (this.#names.size < MAX_NAMES) this.#names.set(key, name);
    }
    return name;
  }
  #mac(v: string): string {
    return this.#name("mac", v.toLowerCase(), (n) => `02:00:00:${hex((n >> 16) & 255, 2)}:${hex((n >> 8) & 255, 2)}:${hex(n & 255, 2)}`);
  }
  #guid(digits: string): string {
    return this.#name("guid", digits, (n) => `0200${hex(n, 12)}`);
  }

  /** 198.18.0.0/15 is for tests (RFC 2544): a /24 of the original becomes one of it. */
  #ipv4(v: string): string {
    if (this.#made.has(v) || isIP(v) !== 4 || /^(?:127\.|0\.|255\.)/.test(v)) return v;
    const at = v.lastIndexOf(".");
    const net = v.slice(0, at);
    const host = v.slice(at + 1);
    let network = this.#networks.get(net);
    if (!network) this.#networks.set(net, (network = { number: this.#networks.size, hosts: new Map() }));
    const { number, hosts } = network;
    if (host !== "0" && host !== "255" && !hosts.has(host)) hosts.set(host, hosts.size + 1);
    const last = host === "0" || host === "255" ? host : String(hosts.get(host));
    const name = this.#name("ipv4", v, () => `198.${18 + ((number >> 8) & 1)}.${number & 255}.${last}`);
    this.#made.add(name);
    return name;
  }

  #colons(v: string): string {
    const groups = v.split(":");
    if (groups.length === 4 && groups.every((g) => g.length === 4)) return groups.every((g) => g === "0000") ? v : this.#guid(groups.join("").toLowerCase()).replace(/(.{4})(?=.)/g, "$1:");
    if (isIP(v) !== 6 || /^[0:]+1?$/.test(v)) return v;
    const dotted = /^(.*:)((?:\d{1,3}\.){3}\d{1,3})$/.exec(v);
    if (dotted) return `${dotted[1]}${this.#ipv4(dotted[2]!)}`;
    const mapped = /^((?:(?:0{1,4}:){5}|::)ffff:)([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(v);
    if (mapped) {
      const [a, b] = [parseInt(mapped[2]!, 16), parseInt(mapped[3]!, 16)];
      const bytes = this.#ipv4(`${a >> 8}.${a & 255}.${b >> 8}.${b & 255}`).split(".").map(Number);
      return `${mapped[1]}${hex(bytes[0]! * 256 + bytes[1]!, 4)}:${hex(bytes[2]! * 256 + bytes[3]!, 4)}`;
    }
    const full = groups.length === 8 && groups.every((g) => g.length === 4);
    const local = /^fe80:/i.test(v);
    const prefix = full ? (local ? "fe80:0000:0000:0000" : "2001:0db8:0000:0000") : local ? "fe80:" : "2001:db8:";
    // One address has several spellings; the stand-in has that of the place.
    const number = Number(this.#name("ipv6", canonical(v), (n) => String(n)));
    return full ? `${prefix}:0000:0000:${hex(number >> 16, 4)}:${hex(number & 0xffff, 4)}` : `${prefix}:${hex(number, 1)}`;
  }

  #decimalGid(v: string): string {
    const bytes = v.split(":").map(Number);
    if (bytes.some((b) => b > 255) || bytes.every((b) => b === 0)) return v;
    if (bytes[10] === 255 && bytes[11] === 255) return [...bytes.slice(0, 12), ...this.#ipv4(bytes.slice(12).join(".")).split(".").map(Number)].map((b) => String(b).padStart(2, "0")).join(":");
    const spelled = Array.from({ length: 8 }, (_, i) => hex(bytes[2 * i]! * 256 + bytes[2 * i + 1]!, 4)).join(":");
    const number = Number(this.#name("ipv6", canonical(spelled), (n) => String(n)));
    return [...(bytes[0] === 254 ? [254, 128] : [32, 1]), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (number >> 24) & 255, (number >> 16) & 255, (number >> 8) & 255, number & 255].map((b) => String(b).padStart(2, "0")).join(":");
  }
}

/** One spelling for an IPv6 address: eight groups of four digits. */
function canonical(v: string): string {
  const [head, tail] = v.toLowerCase().split("::");
  const left = head === "" ? [] : head!.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const fill = tail === undefined ? [] : Array<string>(Math.max(0, 8 - left.length - right.length)).fill("0");
  return [...left, ...fill, ...right].map((g) => g.padStart(4, "0")).join(":");
}
