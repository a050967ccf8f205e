import { describe, expect, it } from "vitest";
import { quoteLine } from "./clean.js";
import { findBdf, findRdmaDevice, mayBeSame, normaliseDevice, slotOf } from "./device.js";
import { LiteralFinder } from "./aho-corasick.js";
import { MAX_LINE_CHARS } from "./line-splitter.js";
import { Normaliser, type LogRecord } from "./normalise.js";

function records(input: string | Uint8Array, chunk = Infinity): LogRecord[] {
  const out: LogRecord[] = [];
  const n = new Normaliser((r) => out.push(r));
  const bytes = typeof input === "string" ? Buffer.from(input) : input;
  for (let i = 0; i < bytes.length; i += Math.min(chunk, bytes.length)) n.push(bytes.subarray(i, i + Math.min(chunk, bytes.length)));
  n.end();
  return out;
}
const one = (line: string): LogRecord => { const r = records(line); expect(r).toHaveLength(1); return r[0]!; };

describe("prefixes", () => {
  it.each([
    ["[   12.345678] NVRM: x", "uptime", 12.345678, null, null], ["[12345678.9]mlx5: x", "uptime", 12345678.9, null, null], ["    [10672.868940] DMAR: x", "uptime", 10672.86894, null, null],
    ["[Fri Mar  3 04:44:24 2023] NVRM: x", "wall", Date.UTC(2023, 2, 3, 4, 44, 24) / 1000, null, null], ["[Sun Dec  1 14:54:40 2024] node01 kernel: mlx5: x", "wall", Date.UTC(2024, 11, 1, 14, 54, 40) / 1000, "node01", "kernel"],
    ["[  +0.000844] nvidia 0000: x", "relative", 0.000844, null, null], ["Apr 22 18:10:16 host kernel: x", "wall", Date.UTC(1970, 3, 22, 18, 10, 16) / 1000, "host", "kernel"],
    ["Apr 22 18:10:16 host kernel: [ 99.5] x", "uptime", 99.5, "host", "kernel"], ["kernel: x", null, null, null, "kernel"],
    ["kern  :err   : [   12.5] x", "uptime", 12.5, null, null], ["kern  :err   : 2025-01-25T10:34:54,859532+00:00 DMAR: x", "wall", Date.UTC(2025, 0, 25, 10, 34, 54) / 1000 + 0.859532, null, null],
    ["6,3973,227996636,-;NVRM: x", "uptime", 227.996636, null, null], ["<6>[    1.5] x", "uptime", 1.5, null, null], ["jan. 29 20:50:17 node01 kernel: x", "wall", Date.UTC(1970, 0, 29, 20, 50, 17) / 1000, "node01", "kernel"],
    ["11月 15 10:00:01 节点一 kernel: x", "wall", Date.UTC(1970, 10, 15, 10, 0, 1) / 1000, null, null], ["node01: [   1.5] x", "uptime", 1.5, "node01", null], ["[1,305]<stderr>:x", null, null, null, null],
    ["I1025 02:19:08.002792       1 health.go:151] x", "wall", Date.UTC(1970, 9, 25, 2, 19, 8) / 1000, null, null], ["2025-02-11T08:00:12+0000 n7 kernel: mlx5_core 0000:41:00.0: x", "wall", Date.UTC(2025, 1, 11, 8, 0, 12) / 1000, "n7", "kernel"],
    ["[2021-09-22T14:11:30.278] x", "wall", Date.UTC(2021, 8, 22, 14, 11, 30) / 1000 + 0.278, null, null], ["2020/08/10 19:09:42 x", "wall", Date.UTC(2020, 7, 10, 19, 9, 42) / 1000, null, null], ["[  815.1] [T1234] x", "uptime", 815.1, null, null],
  ])("%s", (line, clock, time, host, tag) => {
    const r = one(line);
    expect(r.text.endsWith("x")).toBe(true);
    expect(r.text.length).toBeLessThan(26);
    expect(r.clock).toBe(clock);
    if (time !== null) expect(r.time).toBeCloseTo(time, 5);
    if (host !== null) expect(r.host).toBe(host);
    if (tag !== null) expect(r.tag).toBe(tag);
  });
  it.each(["NVRM: Xid (PCI:0000:09:00): 79", "nvidia_peermem: Unknown symbol", "[3] NCCL INFO x", "    [ 5] SDES", "infiniband mlx5_0: create_mkey_warn", "1: lo: <UP>", "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1"])("leaves %s as it is", (line) => {
    expect(one(line).text).toBe(line.trim());
  });
});

describe("joins and strips", () => {
  it("colours, with and without their ESC, CRLF, trailing blanks", () => {
    expect(one("\u001b[0m\u001b[1;31mred\u001b[0m  \r\n").text).toBe("red");
    expect(one("[0m ip-1 [mem 0x10]").text).toBe("ip-1 [mem 0x10]");
  });
  it("words that a terminal cut, and tables that it did not", () => {
    expect(one(`[    3.1] load for qed/qed_z${" ".repeat(150)}ipped.bin failed`).text).toBe("load for qed/qed_zipped.bin failed");
    expect(one(`State${" ".repeat(42)}: In Progress`).text).toContain("In Progress");
    expect(one(`sg${" ".repeat(23)}36864  0`).text).toContain(" 36864");
  });
  it("records over two lines", () => {
    expect(records("virtio-pci 0000:00:02.0: swiotlb buffer is full (sz: 1 bytes),\ntotal 5 (slots), used 5 (slots)")).toHaveLength(1);
    expect(records("[ 1.0] AMD-Vi: Event logged [\n[ 1.1] IO_PAGE_FAULT device=01:00.0]").map((r) => r.text)).toEqual(["AMD-Vi: Event logged [IO_PAGE_FAULT device=01:00.0]"]);
    expect(records("[ 1.0] NVRM: first part\nNVRM: second part")[0]!.text).toBe("NVRM: first part second part");
    expect(records("NVRM: GPU at PCI:0000:08:00\nNVRM: Xid (PCI:0000:08:00): 31, a")).toHaveLength(2);
    expect(records("[ 1.0] DMAR: [Firmware Bug]: Your BIOS is broken\n      BIOS vendor: X")).toHaveLength(1);
  });
  it("rsyslog's escapes and repeats", () => {
    expect(records("Jun 30 11:07:05 gpu-0 kernel: NVRM: API mismatch: version 1, but#012NVRM: this module has the version 2.")[0]!.text).toContain("has the version 2");
    expect(one("Jun 30 11:07:05 n kernel: message repeated 7 times: [ NVRM: Xid (PCI:0000:09:00): 31, x]")).toMatchObject({ repeat: 7, text: "NVRM: Xid (PCI:0000:09:00): 31, x" });
  });
  it("relative stamps add up", () => {
    expect(records("[  +1.000000] a\n[  +0.500000] b").map((r) => r.time)).toEqual([1, 1.5]);
  });
});

describe("bytes of any kind", () => {
  const text = "kernel: NVRM: Xid (PCI:0000:09:00): 79, é 掉线\nsecond\n";
  it.each([
    ["utf-8", Buffer.from(text)], ["utf-8 with mark", Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(text)])], ["utf-16le with mark", Buffer.from(`\ufeff${text}`, "utf16le")], ["utf-16le without mark", Buffer.from(text.repeat(20), "utf16le")],
    ["utf-16be", Buffer.from(Buffer.from(`\ufeff${text}`, "utf16le")).swap16()], ["latin1", Buffer.from(text, "latin1")], ["gb18030", Buffer.concat([Buffer.from("kernel: NVRM: Xid (PCI:0000:09:00): 79, "), Buffer.from([0xb5, 0xf4, 0xcf, 0xdf]), Buffer.from("\nsecond\n")])],
  ])("%s, in one piece and in pieces of 7 bytes", (_name, bytes) => {
    for (const size of [Infinity, 7]) {
      const r = records(bytes, size);
      expect(r[0]!.text).toContain("NVRM: Xid (PCI:0000:09:00): 79");
      expect(r.some((x) => x.text === "second")).toBe(true);
    }
  });
  it("a line without end keeps its beginning, counts the rest, and ends", () => {
    let dropped = 0;
    const out: LogRecord[] = [];
    const n = new Normaliser((r) => out.push(r));
    const chunk = Buffer.alloc(1 << 20, "x");
    n.push(Buffer.from("[ 1.0] NVRM: Xid (PCI:0000:09:00): 79, "));
    for (let i = 0; i < 200; i++) n.push(chunk);
    n.push(Buffer.from("\nafter\n"));
    n.end();
    dropped = n.droppedChars;
    expect(out.map((r) => r.text.length <= MAX_LINE_CHARS)).toEqual([true, true]);
    expect(out[1]!.text).toBe("after");
    expect(dropped).toBeGreaterThan(199 << 20);
  });
  it("NUL, escapes and overrides never reach a quote", () => {
    expect(quoteLine("a\u0000b\u001b]0;owned\u0007c\u001b[2Jd\u202ee\u200bf\u0085g")).toBe("abcdefg");
    expect(quoteLine("\u001b]8;;http://x\u001b\\click\u001b]8;;\u001b\\")).toBe("click");
    expect(quoteLine("x".repeat(5000)).length).toBe(601);
  });
});

describe("devices and literals", () => {
  it("one name for one card", () => {
    expect(normaliseDevice("PCI:0000:09:00")).toBe("0000:09:00");
    expect(normaliseDevice("09:00.0")).toBe("0000:09:00.0");
    expect(normaliseDevice("00000000:4E:00.0")).toBe("0000:4e:00.0");
    expect(normaliseDevice("000a:01:00.0")).toBe("000a:01:00.0");
    expect(slotOf("0000:09:00.3")).toBe("0000:09:00");
    expect(mayBeSame("0000:09:00", "0000:09:00.1")).toBe(true);
    expect(mayBeSame("0000:09:00.0", "0004:09:00.0")).toBe(false);
    expect(findBdf("mlx5_core 0004:01:00.0: x")).toBe("0004:01:00.0");
    expect(findRdmaDevice("infiniband rocep33s0f0: mlx5_poll_one")).toBe("rocep33s0f0");
  });
  it("literals in any case, over any blanks, overlapping", () => {
    const finder = new LiteralFinder(["he", "she", "his", "hers", "a b"]);
    expect([...finder.find("usHERs  A\t  b")].sort()).toEqual([0, 1, 3, 4]);
    expect(finder.find("nothing")).toHaveLength(0);
    expect(() => new LiteralFinder(["Upper"])).toThrow();
  });
});

describe("wrapped messages", () => {
  it("journalctl -o json: message, host, tag and time", () => {
    const r = one(JSON.stringify({ _HOSTNAME: "gn1", SYSLOG_IDENTIFIER: "kernel", __REALTIME_TIMESTAMP: "1728300000500000", MESSAGE: "NVRM: Xid (PCI:0000:4e:00): 79, x" }));
    expect(r).toMatchObject({ text: "NVRM: Xid (PCI:0000:4e:00): 79, x", host: "gn1", tag: "kernel", stamped: true, clock: "wall", time: 1728300000.5 });
  });
  it("bytes, several lines, escapes inside the JSON", () => {
    expect(one(JSON.stringify({ MESSAGE: [...Buffer.from("a\u001b[31mb")] })).text).toBe("ab");
    expect(records(JSON.stringify({ log: "one\ntwo\n", stream: "stderr", time: "2025-10-07T10:11:12.5Z" })).map((r) => [r.text, r.stamped])).toEqual([["one", false], ["two", false]]);
  });
  it("leaves what is no such object as it is", () => {
    for (const line of ["{\"MESSAGE\":", "{ MESSAGE }", "{\"a\": 1}", "{\"MESSAGE\": 7}"]) expect(one(line).text).toBe(line);
  });
  it("a mail's quote marks, however deep", () => {
    expect(one("> > [   12.5] NVRM: x").text).toBe("NVRM: x");
    expect(records(">> \tState: Down")[0]?.text).toBe("State: Down");
  });
  it("dmesg's own ISO stamp says that the kernel speaks; a program's does not", () => {
    expect(one("2025-01-25T10:34:54,859532+00:00 ACPI Error: x").tag).toBe("kernel");
    expect(one("2025-01-25 10:34:54,859 ERROR: x").tag).toBeNull();
  });
});
