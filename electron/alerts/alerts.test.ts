import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ALERT_RULES, AlertRule, AlertView, ThresholdChange, type Thresholds } from "../contract/index.js";
import { directoryOf, FakeNode } from "../collectives/testing.js";
import { openHistory } from "../telemetry/history_db.js";
import type { EndedOp } from "../telemetry/frame.js";
import type { NodeRates } from "../telemetry/rates.js";
import { AlertRules, LEAST_OPS, QUIET_MS, USE_MS, WINDOW_MS, type Observation } from "./rules.js";
import { Recorder, type Bucket } from "./recorder.js";
import { Alerts } from "./service.js";
import { AlertStore } from "./store.js";

const standard = (): Thresholds => Object.fromEntries(AlertRule.options.map((rule) => [rule, { enabled: true, value: ALERT_RULES[rule].standard }])) as Thresholds;
const op = (durationMs: number, error = 0): EndedOp => ({ durationMs, failed: error !== 0, error });
const ops = (count: number, one = op(1)): EndedOp[] => Array.from({ length: count }, () => one);

describe("the rules", () => {
  let thresholds: Thresholds;
  let alerts: Map<string, AlertView>;
  let rules: AlertRules;
  beforeEach(() => {
    thresholds = standard();
    alerts = new Map();
    rules = new AlertRules(() => thresholds, (alert) => alerts.set(alert.id, AlertView.parse(alert)));
  });
  const see = (atMs: number, more: Partial<Observation> = {}): void => rules.observe({ nodeId: "n1", nodeName: "gpu-01", atMs, ops: [], nics: [], busy: false, ...more });
  const list = (): AlertView[] => [...alerts.values()];

  it("an operation above 100 ms: one alert with its worst, until a minute passes without another", () => {
    see(0, { ops: [op(100)] });
    expect(list()).toEqual([]);
    see(1000, { ops: [op(101), op(5)] });
    see(2000, { ops: [op(400), op(120)] });
    see(3000, { ops: [op(110)] });
    expect(list()).toMatchObject([{ rule: "latency", nodeName: "gpu-01", startedAtMs: 1000, lastAtMs: 3000, endedAtMs: null, worst: 400, threshold: 100, count: 4 }]);
    rules.settle(3000 + QUIET_MS);
    expect(list()[0]?.endedAtMs).toBeNull();
    rules.settle(3001 + QUIET_MS);
    expect(list()[0]).toMatchObject({ endedAtMs: 3000, worst: 400 });
    see(200_000, { ops: [op(150)] });
    expect(list()).toHaveLength(2);
  });
  it.each([203, 207])("any timeout (R%i)", (error) => {
    see(0, { ops: ops(5) });
    see(500, { ops: [op(1, error), op(1, error)] });
    expect(list()).toMatchObject([{ rule: "timeout", worst: 2, threshold: null, count: 2 }]);
  });
  it("rates of timeouts and failures, over the last five minutes, from a hundred operations on", () => {
    see(0, { ops: [op(1, 201)] });
    see(10, { ops: ops(LEAST_OPS - 2) });
    expect(list()).toEqual([]);
    see(20, { ops: ops(1) });
    expect(list()).toMatchObject([{ rule: "failure_rate", worst: 1, threshold: 0.1, endedAtMs: null }]);
    see(30, { ops: [op(1, 203), op(1, 203)] });
    expect(list().map((alert) => alert.rule).sort()).toEqual(["failure_rate", "timeout", "timeout_rate"]);
    see(31 + WINDOW_MS, { ops: ops(LEAST_OPS) });
    expect(list().filter((alert) => alert.rule !== "timeout").every((alert) => alert.endedAtMs !== null)).toBe(true);
  });
  it("a link that is under-used while operations wait, for ten seconds without a pause", () => {
    const nics = (mbps: number, speedMbps = 10_000) => [{ name: "eth1", speedMbps, txBytesPerSecond: (mbps * 1e6) / 8, rxBytesPerSecond: 0 }];
    const from = (start: number, more: Partial<Observation>): void => { for (let at = start; at <= start + USE_MS; at += 500) see(at, more); };
    from(0, { nics: nics(4000), busy: false });
    from(20_000, { nics: nics(6000), busy: true });
    from(40_000, { nics: nics(4000, 0), busy: true });
    from(60_000, { nics: nics(20), busy: true });
    expect(list()).toEqual([]);
    from(80_000, { nics: nics(4000), busy: true });
    expect(list()).toMatchObject([{ rule: "utilization", subject: "eth1", threshold: 50, endedAtMs: null }]);
    expect(list()[0]?.worst).toBeCloseTo(40);
    see(95_000, { nics: nics(9000), busy: true });
    expect(list()[0]?.endedAtMs).toBe(95_000);
  });
  it("take a threshold that was changed at once, and nothing where it is off", () => {
    thresholds.latency = { enabled: false, value: 100 };
    see(0, { ops: [op(500)] });
    thresholds.latency = { enabled: true, value: 10 };
    see(1, { ops: [op(11)] });
    expect(list()).toMatchObject([{ startedAtMs: 1, threshold: 10 }]);
    rules.forget("n1");
    expect(list()[0]?.endedAtMs).toBe(1);
  });
  it.each([[{ rule: "latency", enabled: true, value: 0 }, false], [{ rule: "latency", enabled: true, value: null }, false], [{ rule: "timeout", enabled: false, value: 3 }, false], [{ rule: "utilization", enabled: true, value: 101 }, false], [{ rule: "timeout", enabled: false, value: null }, true], [{ rule: "failure_rate", enabled: true, value: 0.5 }, true]])("%j passes: %s", (change, passes) => {
    expect(ThresholdChange.safeParse(change).success).toBe(passes);
  });
});

describe("the recorder", () => {
  it("gives lowest, highest and mean of each minute, and the open ones at the end", () => {
    const out: Bucket[] = [];
    const recorder = new Recorder((buckets) => out.push(...buckets));
    for (const [at, value] of [[0, 4], [30_000, 2], [59_999, 6], [60_000, 9], [61_000, Number.NaN]] as const) recorder.add("n 1", at, { cpu_percent: value });
    expect(out).toEqual([{ metric: "cpu_percent", nodeId: "n 1", atMs: 0, lowest: 2, highest: 6, mean: 4 }]);
    recorder.add("n 1", 10_000, { cpu_percent: 1 });
    recorder.flush(119_000);
    expect(out).toHaveLength(1);
    recorder.flush();
    expect(out[1]).toMatchObject({ atMs: 60_000, lowest: 1, highest: 9, mean: 5 });
  });
});

describe("alerts and history", () => {
  let dir: string;
  let history: ReturnType<typeof openHistory>;
  let now: number;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), "stepccl-alerts-"));
    history = openHistory(dir);
    now = 60_000_000;
  });
  afterEach(() => {
    history.close();
    rmSync(dir, { recursive: true });
  });
  const open = (): Alerts => new Alerts({ nodes: directoryOf([new FakeNode(0)]), store: new AlertStore(history), now: () => now, onError: (error) => { throw error; } });
  const sample = (tx: number): NodeRates => ({
    member: 0, monotonicMs: 1, realtimeMs: 1, intervalMs: 500, lostOps: 0, ranks: 1, daemonRssKib: 2000, cpuPermille: 250, memoryAvailableBytes: 1e9, sampledAtMs: now, flows: [],
    nics: [{ name: "eth1", kind: "netdev", port: 0, state: "active", speedMbps: 0, txBytes: 1, rxBytes: 1, errors: 0, drops: 0, txBytesPerSecond: tx, rxBytesPerSecond: 0 }, { name: "rxe0", kind: "rdma", port: 1, state: "active", speedMbps: 0, txBytes: 0, rxBytes: 0, errors: 0, drops: 0, txBytesPerSecond: 0, rxBytesPerSecond: 0 }],
  });
  const again = (): void => {
    history.close();
    history = openHistory(dir);
  };

  it("survive a restart: alerts with who saw them, thresholds and curves", () => {
    const first = open();
    const events: unknown[] = [];
    const leave = first.topic.subscribe((event) => events.push(event));
    first.observe("n0", sample(100), [op(250)]);
    now += 1000;
    first.observe("n0", sample(300), [op(120)]);
    expect(first.list()).toMatchObject([{ rule: "latency", nodeId: "n0", worst: 250, count: 2, endedAtMs: null }]);
    first.acknowledge([first.list()[0]!.id, "gone"]);
    expect(first.setThreshold({ rule: "latency", enabled: true, value: 500 }).latency).toEqual({ enabled: true, value: 500 });
    now += 1000;
    first.observe("n0", sample(300), [op(300)]);
    expect(first.list()).toHaveLength(1);
    leave();
    first.close();
    again();
    const later = open();
    expect(later.list()).toMatchObject([{ worst: 250, acknowledgedAtMs: 60_001_000, endedAtMs: 60_001_000 }]);
    expect(later.thresholds()).toMatchObject({ latency: { enabled: true, value: 500 }, failure_rate: { enabled: true, value: 0.1 } });
    expect(later.history({ metric: "tx_bytes_per_second", fromMs: 0, toMs: now + 60_000, points: 2 })).toEqual([{ nodeId: "n0", points: [{ atMs: expect.any(Number) as number, lowest: 100, highest: 300, mean: (100 + 300 + 300) / 3 }] }]);
    expect(later.history({ metric: "op_latency_ms", fromMs: 0, toMs: now + 60_000, points: 2 })[0]?.points[0]).toMatchObject({ highest: 300 });
    expect(later.history({ metric: "cpu_percent", fromMs: 0, toMs: 60_000, points: 2 })).toEqual([]);
    later.close();
  });
  it("cut long spans into few points that keep the extremes, and drop the oldest above what is kept", () => {
    const store = new AlertStore(history);
    store.record(Array.from({ length: 600 }, (_, i) => ({ metric: "cpu_percent" as const, nodeId: "n0", atMs: i * 60_000, lowest: i, highest: i === 77 ? 99_999 : i + 1, mean: i + 0.5 })));
    const [series] = store.curves("cpu_percent", 0, 600 * 60_000, 10);
    expect(series?.points).toHaveLength(10);
    expect(series?.points[0]).toMatchObject({ atMs: 0, lowest: 0, highest: 60, mean: 30 });
    expect(series?.points[1]?.highest).toBe(99_999);
    store.prune(100);
    expect(store.curves("cpu_percent", 0, 600 * 60_000, 600)[0]?.points).toHaveLength(100);
  });
  it("a damaged row hides no other", () => {
    history.prepare("INSERT INTO alerts VALUES ('x', 1, '{}')").run();
    history.prepare("INSERT INTO thresholds VALUES ('latency', '{\"enabled\":1}')").run();
    const alerts = open();
    expect([alerts.list(), alerts.thresholds().latency]).toEqual([[], { enabled: true, value: 100 }]);
    alerts.close();
  });
});
