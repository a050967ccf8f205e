import { describe, expect, it } from "vitest";
import { age, bytes, duration, gbps, linkSpeed, parseSize, rate, sizeTick, us } from "./format.js";
import { oneLine, printable } from "./printable.js";

describe("numbers", () => {
  it("writes sizes in binary and rates in decimal units", () => {
    expect([bytes(0), bytes(1023), bytes(1024), bytes(16 * 1024 ** 2), bytes(3_725_312), bytes(-1), bytes(NaN)]).toEqual(["0 B", "1023 B", "1 KiB", "16 MiB", "3.55 MiB", "–", "–"]);
    expect([rate(0), rate(999), rate(999.6), rate(1e6), rate(1.25e9), rate(2.4e10), rate(Infinity)]).toEqual(["0 B/s", "999 B/s", "1.00 KB/s", "1.00 MB/s", "1.25 GB/s", "24.0 GB/s", "–"]);
  });
  it("writes times and bandwidths as nccl-tests does", () => {
    expect([us(9.876), us(65.432), us(182.44), us(9734.6), us(NaN)]).toEqual(["9.88", "65.43", "182.4", "9735", "–"]);
    expect([gbps(0), gbps(0.0123), gbps(0.5), gbps(123.456)]).toEqual(["0.00", "0.0123", "0.50", "123.46"]);
  });
  it("writes spans and ages without a jump of width", () => {
    expect([duration(0), duration(9_940), duration(59_000), duration(185_000), duration(7_800_000)]).toEqual(["0.0 s", "9.9 s", "59 s", "3 min 05 s", "2 h 10 min"]);
    expect([-5, 3_999, 61_000, 7_200_000, 400_000_000].map((ms) => [age(ms).count, age(ms).unit])).toEqual([[0, "s"], [3, "s"], [1, "min"], [2, "h"], [4, "d"]]);
  });
  it("reads sizes as people type them and refuses the rest", () => {
    expect(["8", "64K", "16m", "16 MiB", "1g", "1.5K", " 2 kb "].map(parseSize)).toEqual([8, 65_536, 16_777_216, 16_777_216, 2 ** 30, 1536, 2048]);
    expect(["", "0", "-1", "1e9", "x", "16Q", "1.0000001", "9999999999T", "0x10"].map(parseSize)).toEqual(Array(9).fill(null));
  });
  it("names sizes and link speeds shortly", () => {
    expect([8, 1024, 16 * 1024 ** 2, 1536, 2 ** 30].map(sizeTick)).toEqual(["8", "1K", "16M", "1.5K", "1G"]);
    expect([null, 0, 400, 1000, 25_000, 400_000].map(linkSpeed)).toEqual(["–", "–", "400M", "1G", "25G", "400G"]);
  });
});

describe("hostile text", () => {
  it("shows controls, bidirectional overrides, invisible and tag characters as what they are", () => {
    expect(printable("\u001b[31mred\u0007\r")).toBe("\u241b[31mred\u2407\u240d");
    expect(printable("a\u202eb\u2066c\u200bd\ufeffe\u00adf")).toBe("a⟨U+202E⟩b⟨U+2066⟩c⟨U+200B⟩d⟨U+FEFF⟩e⟨U+00AD⟩f");
    expect(printable("x\u{e0041}y\u0085z\u007f")).toBe("x⟨U+E0041⟩y⟨U+0085⟩z\u2421");
  });
  it("leaves ordinary text, tabs, newlines and other scripts alone", () => {
    const text = "a\tb\nc — 节点 été 🚀";
    expect(printable(text)).toBe(text);
  });
  it("makes one line of many and cuts by characters, not by halves of them", () => {
    expect(oneLine("a\nb\tc")).toBe("a\u240ab c");
    expect(oneLine("🚀".repeat(300), 400)).toMatch(/^(🚀)+…?$/u);
    expect([...oneLine("x".repeat(1000), 10)]).toHaveLength(10);
  });
});
