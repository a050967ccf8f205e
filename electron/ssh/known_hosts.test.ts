import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { MemoryTrustStore, HostKeyJudge } from "./host_key.js";
import { entryMatches, globMatches, parseKnownHosts, readKnownHosts } from "./known_hosts.js";
import { makeKey, tempDir } from "./testing/sshd.js";

const dir = tempDir();
const a = makeKey(dir, "a");
const b = makeKey(dir, "b");
const rsa = makeKey(dir, "r", "rsa");
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const judge = (text: string, host: string, port = 22, trust = new MemoryTrustStore()): HostKeyJudge =>
  new HostKeyJudge({ host, port }, parseKnownHosts(text, "kh"), trust);

describe("known_hosts", () => {
  it("reads plain, listed, negated and wildcard names, ports, comments and CRLF", () => {
    const text = `# comment\r\n\r\nnode1,node2 ${a.line} a comment\r\n*.lab,!bad.lab ${a.line}\r\n[gate]:2222 ${b.line}\r\nnode1 1024 35 12345\r\nbroken\r\n`;
    const entries = parseKnownHosts(text, "kh");
    expect(entries.map((e) => [e.line, e.hosts])).toEqual([[3, "node1,node2"], [4, "*.lab,!bad.lab"], [5, "[gate]:2222"]]);
    expect(judge(text, "NODE2").judge(a.blob).status).toBe("trusted");
    expect(judge(text, "x.lab").judge(a.blob).status).toBe("trusted");
    expect(judge(text, "bad.lab").judge(a.blob).status).toBe("unconfirmed");
    expect(judge(text, "gate", 2222).judge(b.blob).status).toBe("trusted");
    expect(judge(text, "gate").judge(b.blob).status).toBe("unconfirmed");
  });

  it("agrees with ssh-keygen about hashed names, with and without a port", () => {
    const file = join(dir, "hashed");
    writeFileSync(file, `node1 ${a.line}\n[node1]:2201 ${b.line}\n`);
    execFileSync("ssh-keygen", ["-q", "-H", "-f", file], { stdio: "ignore" });
    const text = readFileSync(file, "utf8");
    expect(text.startsWith("|1|")).toBe(true);
    expect(judge(text, "node1").judge(a.blob)).toEqual({ status: "trusted", source: "kh:1" });
    expect(judge(text, "node1", 2201).judge(b.blob)).toEqual({ status: "trusted", source: "kh:2" });
    expect(judge(text, "node2").judge(a.blob).status).toBe("unconfirmed");
  });

  it("tells a changed key, a revoked key and a certificate authority apart", () => {
    expect(judge(`h ${a.line}`, "h").judge(b.blob)).toEqual({ status: "changed", expected: a.fingerprint, source: "kh:1" });
    expect(judge(`h ${a.line}\n@revoked * ${a.line}`, "h").judge(a.blob)).toEqual({ status: "revoked", source: "kh:2" });
    expect(judge(`@revoked h ${a.line}`, "h", 2201).judge(a.blob).status).toBe("revoked");
    const authority = judge(`@cert-authority h ${a.line}`, "h").judge(a.blob);
    expect(authority.status).toBe("unconfirmed");
    expect(authority).toHaveProperty("source", expect.stringContaining("certificate authority"));
  });

  it("takes a key of another type at a known server for changed, and asks for the known type first", () => {
    const known = judge(`h ${rsa.line}`, "h");
    expect(known.algorithms().slice(0, 3)).toEqual(["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"]);
    expect(known.judge(a.blob).status).toBe("changed");
    expect(judge("", "h").algorithms()[0]).toBe("ssh-ed25519");
  });

  it("knows a server on another port by its bare name only to say yes", () => {
    expect(judge(`h ${a.line}`, "h", 2201).judge(a.blob).status).toBe("trusted");
    expect(judge(`h ${a.line}`, "h", 2201).judge(b.blob).status).toBe("unconfirmed");
  });

  it("lets the operator's own confirmation stand against known_hosts, but not against a revocation", () => {
    const trust = new MemoryTrustStore();
    trust.trust({ name: "h", type: "ssh-ed25519", key: b.blob, addedAtMs: 0, source: "operator" });
    expect(judge(`h ${a.line}`, "h", 22, trust).judge(b.blob).status).toBe("trusted");
    expect(judge(`@revoked h ${b.line}`, "h", 22, trust).judge(b.blob).status).toBe("revoked");
    expect(judge("", "h", 22, trust).judge(a.blob)).toMatchObject({ status: "changed", expected: b.fingerprint });
  });

  it("reads several files, takes a missing one for empty and refuses one that cannot be read", async () => {
    const one = join(dir, "one");
    writeFileSync(one, `h ${a.line}\n`);
    const folder = join(dir, "folder");
    mkdirSync(folder);
    expect(await readKnownHosts([one, join(dir, "missing")])).toHaveLength(1);
    await expect(readKnownHosts([one, folder])).rejects.toMatchObject({ view: { code: "H212", params: { path: folder } } });
  });

  it("matches hostile patterns in linear time", () => {
    const started = performance.now();
    expect(globMatches(`${"*a".repeat(5_000)}b`, "a".repeat(20_000))).toBe(false);
    expect(performance.now() - started).toBeLessThan(5_000);
    expect(globMatches("n?de*", "node12")).toBe(true);
    expect(globMatches("n?de", "node12")).toBe(false);
  });

  it("never matches a damaged hash", () => {
    const [entry] = parseKnownHosts(`|1|AAAA|AAAA ${a.line}`, "kh");
    expect(entry && entryMatches(entry, "node1")).toBe(false);
    const [other] = parseKnownHosts(`|2|AAAA|AAAA ${a.line}`, "kh");
    expect(other && entryMatches(other, "node1")).toBe(false);
  });
});
