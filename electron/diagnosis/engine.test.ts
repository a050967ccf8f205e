import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FindingView } from "../contract/index.js";
import { analyse, analyseStreams, type Analysis } from "./engine.js";
import { evaluate, formatTable, readCases, type FaultCase } from "./fault-report.js";
import { RULES } from "./rules/index.js";

const cases = readCases(join(import.meta.dirname, "cases"), { readdirSync, readFileSync, statSync });
const of = (...texts: string[]): Analysis => analyse(texts.map((data, i) => ({ name: `pasted-${i}`, data })));
const classes = (a: Analysis): string[] => a.findings.map((f) => f.class);

describe("the cases", () => {
  const report = evaluate(cases);
  it("every class of the catalogue has one", () => {
    const have = new Set(cases.map((c) => c.expected));
    expect(RULES.filter((r) => r.code.startsWith("F") && !have.has(r.id)).map((r) => r.id)).toEqual([]);
  });
  it.each(report.cases.map((c) => [c.id, c] as const))("%s", (_id, c) => {
    expect({ right: c.first_right || c.found_first, missing: c.also_missing, alarm: c.false_alarm }).toEqual({ right: true, missing: [], alarm: false });
  });
  it("the table that is kept in the repository says so too", () => {
    expect(readFileSync(join(import.meta.dirname, "cases", "results.txt"), "utf8"), "npm run test:faults -- --write").toBe(`${formatTable(report)}\n`);
  });
  it("the summary and the table say so", () => {
    expect(report.summary).toMatchObject({ cases: cases.length, expected_first: cases.length, false_alarms: 0 });
    expect(formatTable(report)).toContain("false alarms 0");
  });
  it("the report can miss: a wrong expectation is counted as such", () => {
    const c = cases.find((x) => x.harmless && x.accepted.length === 0)!;
    const wrong = evaluate([{ ...c, expected: "gpu.xid_79" }, { ...cases.find((x) => x.expected === "gpu.xid_79" && x.accepted.length === 0)!, harmless: true }]);
    expect(wrong.summary).toMatchObject({ cases: 2, expected_first: 1, harmless_cases: 2, false_alarms: 1 });
  });
  it("every finding of every case passes the contract", { timeout: 60_000 }, () => {
    for (const c of cases) {
      for (const f of analyse(c.inputs.map((i) => ({ name: i.name, data: i.bytes }))).findings) {
        FindingView.parse(f);
        expect(f.mend.every((m) => !/\{\w+\}/.test(m.command))).toBe(true);
      }
    }
  });
});

/** Logs are dressed by whatever carried them; what is found stays the same. */
const LOG_NAME = /dmesg|journal|kmsg|nccl|ucx|app|perftest|syslog|messages/;
const isLog = (c: FaultCase): boolean => c.inputs.some((i) => LOG_NAME.test(i.name)) && !/^\s*\[ *\+|月|^\d+,\d+/m.test(c.inputs.map((i) => Buffer.from(i.bytes).toString()).join("\n"));
const bare = (line: string): boolean => !/^\s*\[\s*\d+\.\d+\]|^\w{3} [ \d]\d |^\[\w{3} |^\d{4}-|^[a-z]{3}\. |^\[\d{4}-|^kernel:|^node\d+: /.test(line);
const DRESSES: Record<string, (text: string) => string | Uint8Array> = {
  "CRLF and trailing blanks": (t) => t.replaceAll("\n", "   \r\n"),
  "UTF-16": (t) => Buffer.from(`\ufeff${t}`, "utf16le"),
  "colour codes": (t) => t.split("\n").map((l) => `\u001b[0m${l}\u001b[K`).join("\n"),
  "one file with junk before it": (t) => `\u0000\u0001\ufffd binary \u001b]0;title\u0007\n${t}`,
  "mpirun's streams": (t) => t.split("\n").map((l) => (l === "" || /^\s/.test(l) ? l : `[1,3]<stderr>:${l}`)).join("\n"),
  "mail quotes": (t) => t.split("\n").map((l) => (l === "" ? l : `> > ${l}`)).join("\n"),
  "journalctl -o json": (t) => (t.split("\n").every((l) => l === "" || /^\s*\[\s*\d+\.\d+\] (?!.*00:02\.0)/.test(l)) ? t.split("\n").map((l) => (l === "" ? l : JSON.stringify({ _HOSTNAME: "node17", SYSLOG_IDENTIFIER: "kernel", MESSAGE: l }))).join("\n") : t),
  "a host in front": (t) => t.split("\n").map((l) => (/^\s*\[\s*\d+\.\d+\]/.test(l) ? `node17: ${l.trimStart()}` : l)).join("\n"),
  "syslog": (t) => (t.split("\n").some((l) => /^NCCL|NCCL (?:WARN|INFO)|NVRM: Xid/.test(l) && bare(l)) && t.split("\n").every((l) => l === "" || (bare(l) && !/^\s/.test(l))) ? t.split("\n").map((l) => (l === "" ? l : `Jan  2 03:04:05 node17 kernel: ${l}`)).join("\n") : t),
};
describe.each(Object.entries(DRESSES))("dressed: %s", (name, dress) => {
  it("the same class first", () => {
    const wrong: string[] = [];
    for (const c of cases.filter(isLog)) {
      const found = analyse(c.inputs.map((i, k) => ({ name: `x${k}`, data: LOG_NAME.test(i.name) || name === "CRLF and trailing blanks" || name === "UTF-16" ? dress(Buffer.from(i.bytes).toString()) : i.bytes }))).findings[0]?.class;
      if (found !== c.expected) wrong.push(`${c.id}: ${found}`);
    }
    expect(wrong).toEqual([]);
  });
});

describe("blame and counting", () => {
  it("one cause, the rest folded under it", () => {
    const a = of("[ 10.0] pcieport 0000:80:03.1: DPC: containment event, status:0x1f01 source:0x0000\n[ 10.2] NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus.\n[ 10.3] NVRM: Xid (PCI:0000:82:00): 74, NVLink: fatal error detected on link 1\n[ 10.4] NVRM: Xid (PCI:0000:82:00): 45, pid=1\n");
    expect(a.findings.filter((f) => f.consequenceOf === null).map((f) => f.class)).toEqual(["pcie.dpc"]);
    expect(a.findings.slice(1).every((f) => f.consequenceOf === a.findings[0]!.id)).toBe(true);
  });
  it("a cause that was logged long after explains nothing", () => {
    const a = of("[ 10.0] mlx5_core 0000:3b:00.0: wait_func:1149:(pid 1): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource\n[9000.0] pcieport 0000:80:03.1: DPC: containment event, status:0x1f01 source:0x0000\n");
    expect(a.findings.map((f) => f.consequenceOf)).toEqual([null, null]);
  });
  it("Xid 31 is the program's alone, and the link's with AER before it", () => {
    const x = "[ 20.0] NVRM: Xid (PCI:0000:63:00): 31, pid=7, name=train, MMU Fault: ENGINE GRAPHICS\n";
    expect(classes(of(x))).toEqual(["gpu.xid_31"]);
    expect(of(`[ 19.9] pcieport 0000:00:01.2: AER: Uncorrectable (Non-Fatal) error message received from 0000:63:00.0\n${x}`).findings[0]).toMatchObject({ class: "pcie.aer_nonfatal" });
  });
  it("suppressed repeats count, and one device is one finding", () => {
    const a = of("[ 1.0] DMAR: [DMA Write] Request device [06:00.0] fault addr 0 [fault reason 05] PTE Write access is not set\n[ 6.0] dmar_fault: 2474 callbacks suppressed\n[ 6.1] DMAR: [DMA Write] Request device [06:00.0] fault addr 0 [fault reason 05] x\n");
    expect(a.findings).toHaveLength(1);
    expect(a.findings[0]).toMatchObject({ count: 2476, first: { time: 1 }, last: { time: 6.1 } });
    expect(a.findings[0]!.evidence[0]!.meaning?.en).toContain("reason 05");
  });
  it("the same fault on many devices is told once", () => {
    const a = of(Array.from({ length: 40 }, (_, i) => `[ ${i}.0] NVRM: Xid (PCI:0000:${(i + 1).toString(16).padStart(2, "0")}:00): 48, DBE`).join("\n"));
    expect(a.findings).toHaveLength(1);
    expect(a.findings[0]!.count).toBe(40);
  });
  it("nodes in one log stay apart", () => {
    const a = of("node01: [ 1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nnode02: [ 1.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=1\nnode02: [ 2.0] mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged\n");
    expect(a.findings.map((f) => [f.host, f.class, f.consequenceOf])).toEqual([["node01", "gpu.xid_79", null], ["node02", "link.module_cable", null], ["node02", "gpu.xid_45", null]]);
  });
  it("only consequences: the cause is not here, and that is said", () => {
    const a = of("n1:9:10 [0] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer n2<43120>\n");
    expect(a.verdict).toBe("only_consequences");
    expect(a.findings[0]!.checked.map((c) => c.en).join(" ")).toContain("before this excerpt");
  });
  it("a failure of no known class is not called healthy", () => {
    const a = of("Traceback (most recent call last):\nRuntimeError: something nobody knows\n");
    expect(a.verdict).toBe("not_in_this_log");
    expect(a.findings[0]).toMatchObject({ class: "none.cause_not_in_log" });
  });
  it("nothing read is not healthy either", () => {
    expect(analyse([]).verdict).toBe("nothing_read");
    expect(of("hello\n").findings.map((f) => f.class)).toEqual(["none.healthy"]);
  });
  it("names the inputs that were missing", () => {
    const missing = of("[ 1.0] usb 1-1: new device\n").cannotTell;
    expect(missing).toContainEqual({ class: "gpu.ecc_remap_pending", title: expect.anything(), missing: ["gpu"] });
    expect(missing.some((m) => m.class === "iommu.dmar_fault")).toBe(false);
  });
});

describe("near misses", () => {
  it.each([
    ["ports in use and rates of closed ones", "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 100\n\t\tBase lid: 0\n\t\tSM lid: 0\n\t\tLink layer: Ethernet\n"],
    ["ordinary kernel words", "[ 1.0] DMAR: Host address width 46\n[ 1.1] DMAR: DRHD base: 0x000000fed90000 flags: 0x0\n[ 1.2] AMD-Vi: Interrupt remapping enabled\n[ 1.3] pcieport 0000:00:1c.0: AER: enabled with IRQ 123\n[ 1.4] pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 4, DL_ActiveErr+\n"],
    ["a limit alone", "$ ulimit -l\nunlimited\n"], ["counters at rest", "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error:0\n/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err:2\n"],
    ["ACS off", "ACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"], ["a disk with room", "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/vda1 100 50 50 50% /\n/dev/loop1 100 100 0 100% /snap/core/1\n"],
    ["success", "wc.status=0 (IBV_WC_SUCCESS)\ncompletion status: 0\n"], ["nvidia-smi in health", "    Remapped Rows\n        Pending : No\n        Remapping Failure Occurred : No\n    Fabric\n        State : Completed\n        Status : Success\n"],
    ["node names open to their group", "crw-rw---- 1 root stepccl 10, 122 Nov 30 17:00 /dev/dma_device\nuid=1000(ops) gid=1000(ops) groups=1000(ops),998(stepccl)\n"],
  ])("%s", (_name, text) => {
    expect(classes(of(text)).filter((c) => c !== "none.healthy")).toEqual([]);
  });
});

describe("hostile input", () => {
  it("markup and escapes come out as harmless text", () => {
    const f = of("\u001b]0;x\u0007[ 1.0] NVRM: Xid (PCI:0000:09:00): 79, <img src=x onerror=alert(1)>\u202e \u001b[2J\n").findings[0]!;
    expect(f.class).toBe("gpu.xid_79");
    expect(JSON.stringify(f)).not.toMatch(/\\u001b|\\u202e|\u001b|\u202e/);
    expect(f.evidence[0]!.line).toContain("<img");
  });
  it("what a log says never becomes part of a command", () => {
    const f = of("xdma: exports duplicate symbol a (owned by $(reboot))\n[ 1.0] x;reboot: disagrees about version of symbol y\n`id`: version magic 'a' should be 'b'\n").findings;
    for (const m of f.flatMap((x) => x.mend)) expect(m.command).not.toMatch(/\$\(reboot\)|`id`|x;reboot/);
  });
  it("junk of every byte", () => {
    const junk = new Uint8Array(400_000);
    let s = 12345;
    for (let i = 0; i < junk.length; i++) { s = (s * 1103515245 + 12345) % 2147483648; junk[i] = s >> 16; }
    expect(() => analyse([{ name: "junk", data: junk }])).not.toThrow();
  });
  it("every trigger in one line, and keywords cut at every place", () => {
    const all = RULES.flatMap((r) => r.sig?.flatMap((x) => x.any) ?? []).join(" ");
    expect(() => of(all)).not.toThrow();
    const line = "[ 1.0] NVRM: Xid (PCI:0000:09:00): 79, GPU has fallen off the bus.";
    for (let i = 0; i < line.length; i++) of(line.slice(0, i));
  });
  it("a flood of devices is bounded", { timeout: 60_000 }, () => {
    const lines = Array.from({ length: 30_000 }, (_, i) => `[ ${i}.0] DMAR: [DMA Read] Request device [${(i >> 8 & 255).toString(16).padStart(2, "0")}:${(i & 31).toString(16).padStart(2, "0")}.${i & 7}] fault addr ${i} [fault reason 06] x`);
    const a = of(lines.join("\n"));
    expect(a.findings.length).toBeLessThan(20);
    expect(a.findings.reduce((n, f) => n + f.count, 0)).toBe(30_000);
  });
  it("a line of 200 MB, as a stream", async () => {
    async function* stream(): AsyncGenerator<Uint8Array> {
      yield Buffer.from("[ 1.0] NVRM: Xid (PCI:0000:09:00): 79, GPU has fallen off the bus. ");
      const chunk = Buffer.alloc(1 << 20, "A");
      for (let i = 0; i < 200; i++) yield chunk;
      yield Buffer.from("\n[ 2.0] NVRM: Xid (PCI:0000:0a:00): 48, DBE\n");
    }
    const before = process.memoryUsage().heapUsed;
    const a = await analyseStreams([{ name: "big", data: stream() }]);
    expect(classes(a)).toContain("gpu.xid_79");
    expect(classes(a)).toContain("gpu.xid_48");
    expect(a.droppedChars).toBeGreaterThan(199 << 20);
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(200 << 20);
  });
});
