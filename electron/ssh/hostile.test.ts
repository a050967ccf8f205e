import { describe, expect, it } from "vitest";
import { parseIdentities } from "./agent_list.js";
import { parseJump } from "./endpoint.js";
import { LineCutter, MAX_LINE_CHARS } from "./exec.js";
import { entryMatches, parseKnownHosts } from "./known_hosts.js";
import { keyTypeOf } from "./public_key.js";
import { plainLine } from "./quote.js";

/** A small generator with a seed, so that a failure can be seen again (Park and Miller's). */
function random(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}
const bytes = (next: () => number, length: number): Buffer => Buffer.from(Array.from({ length }, () => Math.floor(next() * 256)));
/** Bytes of the kinds that parsers branch on, mutated. */
const SEEDS = [
  "@revoked *,!a|1|x|y ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==", "|1|AAAA|AAAA ssh-rsa AAAAB3NzaC1yc2E=", "[h]:22,h ssh-rsa AAAA # c\r\n", "user@[::1]:22", "ssh://a@b:1/",
  "\u001b]0;t\u0007\u202e", "\x0c\x00\x00\x00\x02\x00\x00\x00\x04",
];

describe("parsers of foreign bytes", () => {
  it("end without an exception of their own and within their bounds, whatever they get", () => {
    for (let seed = 1; seed <= 3_000; seed++) {
      const next = random(seed);
      const base = Buffer.from(SEEDS[seed % SEEDS.length] ?? "", "latin1");
      const input = Buffer.concat([base, bytes(next, Math.floor(next() * 40))]);
      for (let i = 0; i < 4; i++) input[Math.floor(next() * input.length)] = Math.floor(next() * 256);
      const text = input.toString(seed % 2 === 0 ? "utf8" : "latin1");

      for (const entry of parseKnownHosts(text, "f")) entryMatches(entry, "host");
      const keys = parseIdentities(input);
      expect(keys === null || keys.length <= input.length).toBe(true);
      const type = keyTypeOf(input);
      expect(type === null || type.length <= 64).toBe(true);
      expect(plainLine(text, 50)).not.toMatch(/[\u0000-\u001f\u007f\u202a-\u202e]/);
      expect(plainLine(text, 50).length).toBeLessThanOrEqual(50);
      try {
        expect(parseJump(text, "me").port).toBeGreaterThan(0);
      } catch (error) {
        expect(error).toMatchObject({ view: { code: "H101" } });
      }
      const lines: string[] = [];
      const cutter = new LineCutter((line) => lines.push(line));
      for (let at = 0; at < input.length; at += 7) cutter.push(input.subarray(at, at + 7));
      cutter.end();
      expect(lines.join("\n").replaceAll("\r", "")).toBe(input.toString("utf8").replace(/\n$/, "").replaceAll("\r", ""));
      expect(lines.every((line) => line.length <= MAX_LINE_CHARS)).toBe(true);
    }
  });
});
