import { describe, expect, it, vi } from "vitest";
import { ConsoleError, type DiagnosisView, type FindingView, type NodeView, type SourceView } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import type { Collected } from "../collect.js";
import type { LiveNode } from "../live/index.js";
import { RULES } from "../rules/index.js";
import type { SourceId } from "../sources.js";
import { blanksOf, fillCommand, KINDS } from "./blanks.js";
import { mendsFor } from "./offer.js";
import { MEND_RULES } from "./rules.js";
import { Mends, type MendsOptions } from "./service.js";

const source = (id: string, text: string, state: SourceView["state"] = "ok"): SourceView => ({ id, command: id, state, collectedAtMs: 1, durationMs: 1, text, truncatedBytes: 0, error: null });
const finding = (cls: string, more: Partial<FindingView> = {}): FindingView => ({
  id: cls, class: cls, code: "S000", severity: "high", title: { en: cls, zh: cls }, explanation: { en: "", zh: "" }, host: null, devices: [], first: null, last: null, count: 1,
  evidence: [{ source: "ip_link", line: "3: eth1 down", lineNumber: null, meaning: null }], against: [], checked: [], causes: [], consequenceOf: null, candidates: [], mend: [], retest: ["ip_link"], params: {}, ...more,
});
const node = (texts: Partial<Record<SourceId, string>> = {}): LiveNode => ({
  nodeId: "n1", name: "node1", dataAddress: "10.77.0.11", gidIndex: 1, netdev: "eth1", rdmaDevice: "rxe0",
  collected: new Map(Object.entries({
    kernel: "6.1.0-57-amd64\n", ip_addr: "3: eth1    inet 10.77.0.11/24 scope global eth1\n", ip_link: "3: eth1: <BROADCAST,UP,LOWER_UP> mtu 9000 qdisc x state UP\n", service: "LoadState=loaded\n", ...texts,
  }).map(([id, text]) => [id as SourceId, { spec: null, view: source(id, text), text, beganAtMs: 0, endedAtMs: 0, uptimeMs: 0 } satisfies Collected])),
});
const commands = (cls: string, more: Partial<FindingView> = {}, texts: Partial<Record<SourceId, string>> = {}): string[] => mendsFor(finding(cls, more), node(texts)).map((m) => m.command);

describe("mends as data", () => {
  it("every rule names classes that there are, kinds that there are, and an id of its own in each class", () => {
    const known = new Set(RULES.map((r) => r.id));
    const ids = MEND_RULES.flatMap((rule) => rule.classes.map((cls) => { expect(known.has(cls), cls).toBe(true); return `${cls}/${rule.id}`; }));
    expect(new Set(ids).size).toBe(ids.length);
    for (const rule of MEND_RULES) { expect(() => blanksOf(rule.command)).not.toThrow(); expect(rule.words[1]).toMatch(/[\u4e00-\u9fff]/); expect(rule.id).toMatch(/^[a-z-]+$/); }
  });
  it("are whole commands for what was found", () => {
    expect(commands("driver.not_installed")).toEqual(["install -D -m 0644 /opt/stepccl/current/driver/6.1.0-57-amd64/dma_engine.ko /lib/modules/6.1.0-57-amd64/updates/stepccl/dma_engine.ko && depmod 6.1.0-57-amd64 && modprobe dma_engine && udevadm settle --timeout=10"]);
    expect(commands("host.netdev_down", { params: { netdev: "eth1" } })).toEqual(["ip link set dev eth1 up"]);
    expect(commands("rdma.device_missing", { params: { netdev: "eth1" } })).toEqual(["modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth1"]);
    expect(commands("link.mtu_mismatch", { params: { netdev: "eth1", mtu: 9000 } })).toEqual(["ip link set dev eth1 mtu 9000"]);
    expect(commands("iommu.dmar_fault", { devices: ["0000:00:05.0"] })).toEqual(["setpci -s 0000:00:05.0 COMMAND=0:4"]);
    expect(commands("host.process_stopped", { params: { pids: "812 813" } }).map((c) => /CONT (\d+)/.exec(c)?.[1])).toEqual(["812", "813"]);
    expect(commands("host.clock_skew", { params: { skewSeconds: 600.4 } })[0]).toContain("- 600))");
    expect(commands("host.firewall", { params: { network: "10.77.0.0/24" } }, { firewall: 'table inet lab {\nchain input { # handle 1\ntype filter hook input priority 0; policy drop;\niifname "eth1" ip saddr 10.77.0.12 drop # handle 3\n}\n}\n' })).toEqual(["nft delete rule inet lab input handle 3", "nft insert rule inet lab input ip saddr 10.77.0.0/24 accept"]);
  });
  it("a file of the system, of StepCCL or of a database is never offered for deletion", () => {
    const files = (path: string): string[] => commands("host.disk_full", {}, { large_files: `900000000 ${path}\n` }).filter((c) => c.startsWith("rm"));
    expect(files("/var/lib/stepccl-lab/fill")).toEqual(["rm -- /var/lib/stepccl-lab/fill"]);
    for (const path of ["/usr/lib/x.so", "/boot/vmlinuz", "/var/lib/stepccl/cluster.json", "/var/lib/dpkg/status", "/var/lib/mysql/ibdata1", "/var/lib/docker/x", "/home/a/model.bin", "/opt/stepccl/current/x", "/var/tmp/../../etc/passwd", "/var/tmp/a b", "/var/tmp/$(reboot)", "/var/tmp/a;reboot"]) expect(files(path), path).toEqual([]);
  });
  it("hostile words never reach a command, whatever blank they aim at", () => {
    const evil = ["", " ", "a b", "$(reboot)", "`reboot`", "x;reboot", "x\nreboot", "x|y", "x&&y", "'", "\"", "\\", "-rf", "../..", "\u0000", "é", "x>y", "x*", "~", "#", "=x;", "eth0\u2028", "a".repeat(300), "{file}", "--help"];
    for (const [kind, fits] of Object.entries(KINDS)) for (const value of evil) expect(fits(value), `${kind}: ${JSON.stringify(value)}`).toBe(false);
    for (const rule of MEND_RULES) for (const blank of blanksOf(rule.command)) for (const value of evil) {
      const values = Object.fromEntries(blanksOf(rule.command).map((b) => [b.name, b.name === blank.name ? value : "1"]));
      expect(fillCommand(rule.command, values), `${rule.id} ${blank.name}`).toBeNull();
    }
  });
});

interface World { options: MendsOptions; mends: Mends; ran: string[]; view: DiagnosisView; after: Partial<DiagnosisView>; stored: unknown[]; status: number; hold: Promise<void> | null; newest: string }
function world(found: FindingView[]): World {
  const view = { nodeId: "n1", startedAtMs: Date.now(), endedAtMs: Date.now(), state: "done", verdict: "cause_found", sources: [source("ip_link", "3: eth1 down\n")], findings: found, cannotTell: [], error: null } as DiagnosisView;
  const w: World = { ran: [], view, after: { findings: [], sources: [source("ip_link", "3: eth1 up\n")] }, stored: [], status: 0, hold: null, newest: "815.100000" } as unknown as World;
  const session = { exec: vi.fn(async () => ({ stdout: `11111111-2222-3333-4444-555555555555\n1764520000.123456789\n[  ${w.newest}] DMAR: newest line\n` })), execLines: vi.fn(async (command: string, onLine: (s: string, l: string) => void, options: { signal?: AbortSignal }) => {
    w.ran.push(command);
    onLine("stdout", "doing\u001b[31m it");
    await Promise.race([w.hold ?? Promise.resolve(), new Promise((_r, reject) => options.signal?.addEventListener("abort", () => reject(ConsoleError.of("H104"))))]);
    return { status: w.status, signal: null, stdout: "", stderr: "", droppedBytes: 0, durationMs: 1 };
  }) };
  const nodes = { get: (id: string) => (id === "n1" ? ({ id, name: "node1" } as NodeView) : undefined), session: async () => session } as unknown as NodeDirectory;
  w.options = {
    nodes, actions: { rejoin: async () => "joined" }, settleMs: 0,
    diagnosis: { view: (id) => (id === "n1" ? w.view : undefined), retest: async () => (w.view = { ...w.view, endedAtMs: Date.now(), ...w.after }),
      settle: (_id, findingId, until) => { w.stored.push(findingId, until); w.view = { ...w.view, findings: w.view.findings.map((f) => (f.id === findingId ? { ...f, severity: "info" } : f)) }; } },
    documents: { list: () => [], put: (id) => { w.stored.push(id); } },
  };
  w.mends = new Mends(w.options);
  return w;
}
const down = finding("host.netdev_down", { mend: [{ id: "link-up", command: "ip link set dev eth1 up", explanation: { en: "", zh: "" }, risk: "none" }, { id: null, command: "ip link", explanation: { en: "", zh: "" }, risk: "none" }] });
const over = async (w: World, id: string) => { await vi.waitFor(() => expect(w.mends.list().find((r) => r.id === id)!.endedAtMs).not.toBeNull()); return w.mends.list().find((r) => r.id === id)!; };
const code = (work: () => unknown): string => { try { work(); } catch (error) { return (error as ConsoleError).view.code; } return "none"; };

describe("applying", () => {
  it("runs what was offered, shows its output, reads again and compares", async () => {
    const w = world([down]);
    const offer = w.mends.offer("n1", down.id, ["link-up"]);
    expect(offer).toMatchObject({ secondConsent: null, risk: "none", commands: [{ command: "ip link set dev eth1 up" }] });
    const run = await over(w, w.mends.apply(offer.offerId, ["ip link set dev eth1 up"], undefined).id);
    expect(run).toMatchObject({ state: "mended", steps: [{ state: "done", status: 0, output: "doing it\n" }], before: { finding: { class: "host.netdev_down" }, readings: [{ text: "3: eth1 down\n" }] }, after: { finding: null, readings: [{ text: "3: eth1 up\n" }] } });
    expect(w.ran).toHaveLength(1);
    expect(w.ran[0]).toMatch(/^\/bin\/sh -c '.*ip link set dev eth1 up'$/);
    expect(code(() => w.mends.apply(offer.offerId, ["ip link set dev eth1 up"], undefined))).toBe("H603");
  });
  it("nothing runs without exactly the consent: other commands, other offers, no mend of the console's, a stale diagnosis", () => {
    const w = world([down]);
    const offer = w.mends.offer("n1", down.id, ["link-up"]);
    expect(code(() => w.mends.apply(offer.offerId, ["ip link set dev eth1 up; reboot"], undefined))).toBe("H604");
    expect(code(() => w.mends.apply(offer.offerId, [], undefined))).toBe("H604");
    expect(code(() => w.mends.apply("nobody", ["x"], undefined))).toBe("H603");
    expect(code(() => w.mends.offer("n1", down.id, ["rm-everything"]))).toBe("H602");
    expect(code(() => w.mends.offer("n1", "other.finding", ["link-up"]))).toBe("H601");
    expect(code(() => w.mends.offer("n2", down.id, ["link-up"]))).toBe("H301");
    w.view = { ...w.view, endedAtMs: Date.now() - 3_600_000 };
    expect(code(() => w.mends.offer("n1", down.id, ["link-up"]))).toBe("H601");
    expect(w.ran).toEqual([]);
  });
  it("a destructive one takes the node's name as second consent", async () => {
    const full = finding("host.disk_full", { mend: [{ id: "large-file", command: "rm -- /var/tmp/core", explanation: { en: "", zh: "" }, risk: "destructive" }] });
    const w = world([full]);
    const offer = w.mends.offer("n1", full.id, ["large-file"]);
    expect(offer.secondConsent).toBe("node1");
    expect(code(() => w.mends.apply(offer.offerId, ["rm -- /var/tmp/core"], undefined))).toBe("H605");
    expect(code(() => w.mends.apply(offer.offerId, ["rm -- /var/tmp/core"], "yes"))).toBe("H605");
    expect(w.ran).toEqual([]);
    expect((await over(w, w.mends.apply(offer.offerId, ["rm -- /var/tmp/core"], "node1").id)).state).toBe("mended");
  });
  it("a command that fails, a fault that stays and a source that cannot be read again are told apart", async () => {
    const go = async (w: World) => over(w, w.mends.apply(w.mends.offer("n1", down.id, ["link-up"]).offerId, ["ip link set dev eth1 up"], undefined).id);
    const failing = world([down]);
    failing.status = 2;
    failing.after = { findings: [down] };
    expect(await go(failing)).toMatchObject({ state: "failed", error: { code: "H310" }, steps: [{ state: "failed", status: 2 }] });
    const staying = world([down]);
    staying.after = { findings: [down] };
    expect((await go(staying)).state).toBe("not_mended");
    const unread = world([down]);
    unread.after = { findings: [], sources: [source("ip_link", "", "timeout")] };
    expect((await go(unread)).state).toBe("unknown");
  });
  it("what a log said up to the end of the mend is history, and stays so after a new start; what it says later is not", async () => {
    const logged = finding("iommu.dmar_fault", { last: { time: 815, clock: "uptime", atMs: null }, evidence: [{ source: "kernel_log", line: "DMAR", lineNumber: 1, meaning: null }], mend: [{ id: "bus-master-off", command: "setpci -s 0000:01:00.0 COMMAND=0:4", explanation: { en: "", zh: "" }, risk: "interrupts_jobs" }] });
    const until = { time: 819.5, clock: "uptime", bootId: "11111111-2222-3333-4444-555555555555" };
    const go = async (time: number) => {
      const w = world([logged]);
      w.newest = "819.500000";
      w.after = { findings: [{ ...logged, last: { time, clock: "uptime", atMs: null } }] };
      const run = await over(w, w.mends.apply(w.mends.offer("n1", logged.id, ["bus-master-off"]).offerId, ["setpci -s 0000:01:00.0 COMMAND=0:4"], undefined).id);
      expect(run.historyUntil).toEqual(until);
      expect(run.after!.finding === null).toBe(run.state === "mended");
      return { run, w };
    };
    const mended = await go(819);
    expect(mended.run.state).toBe("mended");
    expect(mended.w.stored).toEqual([logged.id, until, mended.run.id]);
    const again = world([logged]);
    new Mends({ ...again.options, documents: { list: () => [mended.run], put: () => {} } });
    expect(again.stored).toEqual([logged.id, until]);
    const stays = await go(822);
    expect([stays.run.state, stays.w.stored]).toEqual(["not_mended", [stays.run.id]]);
  });
  it("cancelled: the command is ended, the node is read again; one mend at a time for a node", async () => {
    const w = world([down]);
    w.hold = new Promise(() => {});
    const { id } = w.mends.apply(w.mends.offer("n1", down.id, ["link-up"]).offerId, ["ip link set dev eth1 up"], undefined);
    await vi.waitFor(() => expect(w.ran).toHaveLength(1));
    const second = w.mends.offer("n1", down.id, ["link-up"]);
    expect(code(() => w.mends.apply(second.offerId, ["ip link set dev eth1 up"], undefined))).toBe("H610");
    w.mends.cancel(id);
    expect(await over(w, id)).toMatchObject({ state: "cancelled", after: { finding: null } });
    expect(code(() => w.mends.cancel("nobody"))).toBe("H609");
  });
});
