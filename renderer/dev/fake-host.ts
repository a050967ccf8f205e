import {
  ALERT_RULES, AlertRule, BRING_UP_STEPS, Collective, ConsoleError, NodeInput, SettingName, toErrorView,
  type AlertView, type Carrier, type ClientMessage, type DiagnosisView, type HostMessage, type LinkView, type NodeView, type NodeSettingsView, type OperationView, type RunView, type SettingChangeView, type SettingValue, type StepView, type Threshold, type Thresholds,
} from "../../electron/contract/index.js";
import { fakeDiagnosis } from "./fake-diagnosis.js";
import { FAKE_GUIDES, FakeGuides } from "./fake-guides.js";
import { FakeMemory } from "./fake-memory.js";
import { FakeMends } from "./fake-mends.js";
import { fakeHang, FakePairs } from "./fake-pairs.js";
import { fakeBundle, fakeFileDiagnosis, fakeOpened, fakePreview } from "./fake-support.js";
import { FAKE_MARK, fakeBigFleet, fakeFacts, fakeFingerprint, fakeFleet, fakeLinks, fakeNode } from "./fake-data.js";
import { FakeTelemetry } from "./fake-telemetry.js";
import { endedRun, fakeRow, fakeRun, sizesOf } from "./fake-run.js";

export interface FakeOptions {
  /** Nodes; 0 = the empty state, absent = the default scene. */
  fleet?: number;
  /** Ms of a step of scripted work. */
  stepMs?: number;
  now?: () => number;
  /** Runs and diagnoses that exist from the start. */
  history?: boolean;
}
type Params = Record<string, unknown>;
type Answer = unknown;

/** A host that exists only in the page: scripted data behind the true envelope. For tests and `vite --mode fake`, never shipped. */
export class FakeHost implements Carrier {
  readonly nodes = new Map<string, NodeView>();
  readonly operations = new Map<string, OperationView>();
  readonly runs = new Map<string, RunView>();
  readonly diagnoses = new Map<string, DiagnosisView>();
  readonly links: LinkView[] = [];
  readonly alerts = new Map<string, AlertView>();
  thresholds = Object.fromEntries(AlertRule.options.map((rule) => [rule, { enabled: true, value: ALERT_RULES[rule].standard }])) as Thresholds;
  readonly settings = new Map<string, Partial<Record<SettingName, SettingValue>>>();
  readonly settingLog: SettingChangeView[] = [];
  readonly memory: FakeMemory;
  readonly mends: FakeMends;
  readonly guides: FakeGuides;
  readonly pairs: FakePairs;
  /** Every message that came, for tests. */
  readonly received: ClientMessage[] = [];
  readonly #messages = new Set<(message: HostMessage) => void>();
  readonly #states = new Set<(state: "connecting" | "open" | "closed") => void>();
  readonly #subscriptions = new Map<number, { stream: string; seq: number }>();
  readonly #timers = new Set<ReturnType<typeof setInterval>>();
  readonly #stepMs: number;
  readonly #now: () => number;
  #state: "connecting" | "open" | "closed" = "open";
  #serial = 0;
  readonly #telemetry = new FakeTelemetry();

  constructor(options: FakeOptions = {}) {
    this.#stepMs = options.stepMs ?? 600;
    this.#now = options.now ?? Date.now;
    const now = this.#now();
    const context = {
      now: this.#now, nodeName: (id: string) => this.nodes.get(id)?.name ?? id, patch: (stream: string, upsert: unknown[]) => this.#patch(stream, upsert, []),
      every: (work: (stop: () => void) => void) => { const timer = this.#every(this.#stepMs, () => work(() => this.#stop(timer))); },
    };
    this.mends = new FakeMends(context, this.diagnoses, (diagnosis) => this.#putDiagnosis(diagnosis));
    this.memory = new FakeMemory(this.#now, () => [...this.nodes.values()], (nodeId) => this.settings.get(nodeId) ?? {});
    this.guides = new FakeGuides(context);
    this.pairs = new FakePairs(context);
    for (const node of options.fleet === undefined ? fakeFleet(now) : fakeBigFleet(options.fleet, now)) this.nodes.set(node.id, node);
    this.links.push(...fakeLinks([...this.nodes.values()], now));
    if (options.history ?? true) this.#past(now);
    this.#every(500, () => this.#tick());
    this.#every(1000, () => this.#patch("memory", this.memory.views().slice(0, 40), []));
  }

  send(message: ClientMessage): void {
    this.received.push(message);
    if (this.#state !== "open") return;
    if (message.type === "subscribe") {
      this.#subscriptions.set(message.id, { stream: message.stream, seq: 0 });
      queueMicrotask(() => this.#emit(message.id, this.#snapshot(message.stream)));
      return;
    }
    if (message.type === "cancel") {
      this.#subscriptions.delete(message.id);
      return;
    }
    const { id, method } = message;
    void Promise.resolve().then(() => this.answer(method, message.params as Params)).then(
      (result) => this.#deliver({ type: "result", id, result }),
      (thrown: unknown) => this.#deliver({ type: "error", id, error: toErrorView(thrown) }),
    );
  }
  #settings(nodeId: string): NodeSettingsView {
    const of = <T>(value: (name: SettingName) => T) => Object.fromEntries(SettingName.options.map((name) => [name, value(name)])) as Record<SettingName, T>;
    return {
      nodeId, error: null, values: of((name) => this.settings.get(nodeId)?.[name] ?? null),
      advice: of((name) => ({ value: name === "pipeline_depth" ? 8 : null, reason: name === "pipeline_depth" ? "depth_long" as const : "no_gpu" as const, text: "English.", params: { us: 31 } })),
    };
  }
  onMessage(listener: (message: HostMessage) => void): () => void {
    this.#messages.add(listener);
    return () => this.#messages.delete(listener);
  }
  onState(listener: (state: "connecting" | "open" | "closed") => void): () => void {
    this.#states.add(listener);
    listener(this.#state);
    return () => this.#states.delete(listener);
  }
  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
    this.setState("closed");
  }
  /** Cuts or restores the connection, for tests and pictures. */
  setState(state: "connecting" | "open" | "closed"): void {
    this.#state = state;
    if (state !== "open") this.#subscriptions.clear();
    for (const listener of [...this.#states]) listener(state);
  }
  reconnectNow(): void {
    this.setState("open");
  }
  /** Sends an event with a sequence number of the caller's, to play a lost one. */
  emitWithGap(stream: string): void {
    for (const [id, subscription] of [...this.#subscriptions]) {
      if (subscription.stream === stream) {
        subscription.seq += 2;
        this.#deliver({ type: "event", id, seq: subscription.seq, data: this.#snapshot(stream) });
      }
    }
  }

  answer(method: string, params: Params): Answer {
    const ids = (params.nodeIds as string[] | undefined) ?? [];
    switch (method) {
      case "hello":
        return { version: "0.1.0", shell: "browser", startedAtMs: this.#now(), capabilities: { nativeFileDialog: false, keepsSecrets: false }, bundle: { version: FAKE_MARK, kernels: ["6.1.0-57-amd64"] } };
      case "nodes.list": return [...this.nodes.values()];
      case "nodes.add": return this.#add(NodeInput.parse(params));
      case "nodes.importable":
        return [
          { alias: "gpu-12", input: { host: "10.0.2.12", port: 22, user: "ops", auth: { kind: "agent" }, jump: [] }, notApplied: [] },
          { alias: "gpu-13", input: { host: "10.0.2.13", port: 2222, user: "ops", auth: { kind: "key", keyPath: "/home/ops/.ssh/id_ed25519" }, jump: ["ops@bastion.example.net"] }, notApplied: ["GSSAPIAuthentication yes", "RemoteForward 9000 localhost:9000"] },
        ];
      case "nodes.setAuth": return this.#node(params);
      case "nodes.checkHostKey": {
        const node = this.#node(params);
        if (node.hostKey.offered !== null) return node.hostKey;
        if (node.id === "n11") throw ConsoleError.of("H201", { host: node.host, port: node.port, detail: "connection timed out" });
        return this.#put({ ...node, phase: "needs_host_key", hostKey: { ...node.hostKey, status: "unconfirmed", algorithm: "ssh-ed25519", offered: fakeFingerprint(Number(node.id.slice(1))) } }).hostKey;
      }
      case "nodes.trustHostKey": {
        const node = this.#node(params);
        if (params.fingerprint !== node.hostKey.offered) throw ConsoleError.of("H203", { host: node.host, expected: String(params.fingerprint), fingerprint: node.hostKey.offered ?? "" });
        return this.#put({ ...node, phase: "reachable", hostKey: { ...node.hostKey, status: "trusted", trusted: node.hostKey.offered, source: "operator" } });
      }
      case "nodes.connect": {
        const node = this.#node(params);
        return this.#put({ ...node, facts: fakeFacts(Number(node.id.slice(1)), this.#now(), 8), lastSeenMs: this.#now(), connection: { state: "connected", sinceMs: this.#now() } });
      }
      case "nodes.forget":
        for (const id of ids) this.nodes.delete(id);
        this.#patch("nodes", [], ids);
        return {};
      case "nodes.bringUp": return this.#operate("bring_up", ids, [...BRING_UP_STEPS]);
      case "nodes.takeDown": return this.#operate("remove", ids, ["stop", "unload", "remove"]);
      case "operations.cancel": {
        const operation = this.operations.get(String(params.operationId))!;
        this.#putOperation({ ...operation, state: "cancelled", endedAtMs: this.#now(), nodes: operation.nodes.map((part) => (part.state === "running" || part.state === "pending" ? { ...part, state: "cancelled" } : part)) });
        return {};
      }
      case "topology.get": case "topology.probe": return { epoch: 4, links: this.links };
      case "alerts.list": return [...this.alerts.values()];
      case "alerts.acknowledge": {
        const seen = (params.alertIds as string[]).flatMap((id) => { const alert = this.alerts.get(id); return alert ? [{ ...alert, acknowledgedAtMs: this.#now() }] : []; });
        for (const alert of seen) this.alerts.set(alert.id, alert);
        this.#patch("alerts", seen, []);
        return {};
      }
      case "alerts.thresholds": return this.thresholds;
      case "alerts.setThreshold": {
        const { rule, ...threshold } = params as { rule: AlertRule } & Threshold;
        this.thresholds = { ...this.thresholds, [rule]: threshold };
        return this.thresholds;
      }
      case "history.get": {
        const { fromMs, toMs } = params as { fromMs: number; toMs: number };
        return [...this.nodes.values()].filter((node) => node.phase === "up").slice(0, 7).map((node, index) => ({
          nodeId: node.id, points: Array.from({ length: 60 }, (_, i) => ({ atMs: fromMs + ((toMs - fromMs) * i) / 60, lowest: 0, highest: 1e9 * (index + 2), mean: 1e9 * (index + 1) * (1 + Math.sin(i / 6)) })),
        }));
      }
      case "memory.get": return this.memory.views().filter((view) => params.nodeIds === undefined || ids.includes(view.nodeId));
      case "memory.map": return this.memory.map(String(params.nodeId), String(params.process));
      case "settings.get": return [...this.nodes.values()].filter((node) => node.phase === "up").map((node) => this.#settings(node.id));
      case "settings.set":
        for (const id of ids) {
          const before = this.settings.get(id) ?? {};
          for (const [setting, to] of Object.entries(params.changes as Record<string, SettingValue>)) {
            this.settingLog.unshift({ atMs: this.#now(), nodeId: id, nodeName: this.nodes.get(id)?.name ?? id, setting: setting as SettingName, from: before[setting as SettingName] ?? null, to, by: "ops@console" });
          }
          this.settings.set(id, { ...before, ...(params.changes as object) });
        }
        return ids.map((id) => this.#settings(id));
      case "settings.history": return this.settingLog;
      case "runs.algorithms": return Object.fromEntries(Collective.options.map((collective) => [collective, collective === "broadcast" ? ["auto", "binomial"] : ["auto", "ring"]]));
      case "runs.start": return this.#run(params);
      case "runs.stop": {
        const run = this.runs.get(String(params.runId));
        if (!run) throw ConsoleError.of("H505", { runId: String(params.runId) });
        this.#putRun({ ...run, state: "stopped", endedAtMs: this.#now(), ranks: run.ranks.map((rank) => ({ ...rank, state: "ended" })) });
        return {};
      }
      case "runs.export": return { fileName: `${String(params.runId)}.${String(params.format)}`, mediaType: "text/plain", text: FAKE_MARK };
      case "diagnose.start": {
        const started = this.#operate("diagnose", ids, ["collect", "analyse"]);
        for (const id of ids) this.#diagnose(id);
        return started;
      }
      case "mends.offer": return this.mends.offer(params as Parameters<FakeMends["offer"]>[0]);
      case "mends.apply": return this.mends.apply(params as Parameters<FakeMends["apply"]>[0]);
      case "guides.list": return FAKE_GUIDES;
      case "guides.for": return String(params.class).startsWith("perm.") ? ["dma_init_fails"] : ["slow"];
      case "guides.start": return this.guides.start(params as Parameters<FakeGuides["start"]>[0]);
      case "guides.cancel": this.guides.cancel(String(params.guideRunId)); return {};
      case "pairs.start": return this.pairs.start(params as Parameters<FakePairs["start"]>[0]);
      case "pairs.cancel": this.pairs.cancel(String(params.pairTestId)); return {};
      case "hangs.check": case "hangs.files": return fakeHang(this.#now());
      case "uploads.begin": return { uploadId: `upload-${++this.#serial}` };
      case "uploads.append": return { receivedBytes: Number(params.offset) };
      case "uploads.discard": return {};
      case "support.prepare": return fakeBundle(this.#now());
      case "support.preview": return fakePreview();
      case "support.read": return { base64: btoa(FAKE_MARK), nextOffset: FAKE_MARK.length, sizeBytes: FAKE_MARK.length };
      case "support.open": return fakeOpened(this.#now());
      case "diagnose.source": {
        const text = this.diagnoses.get(String(params.nodeId))?.sources.find((each) => each.id === params.sourceId)?.text ?? "";
        const whole = `[    0.000000] the first line of all\n${text}`;
        return { text: whole.slice(Number(params.fromChar), Number(params.fromChar) + 64), fromChar: params.fromChar, totalChars: whole.length };
      }
      case "diagnose.files": return fakeFileDiagnosis((params.files as Array<{ text?: string }>).map((file) => file.text ?? "dma_device").join("\n"));
      default: throw ConsoleError.of("H102", { method });
    }
  }

  #node(params: Params): NodeView {
    const node = this.nodes.get(String(params.nodeId));
    if (!node) throw ConsoleError.of("H301", { nodeId: String(params.nodeId) });
    return node;
  }
  #add(input: NodeInput): NodeView {
    for (const node of this.nodes.values()) {
      if (node.host === input.host && node.port === input.port && node.user === input.user) throw ConsoleError.of("H302", { host: input.host, port: input.port, user: input.user });
    }
    const index = 100 + ++this.#serial;
    return this.#put(fakeNode(index, input.name ?? input.host, {
      host: input.host, port: input.port, user: input.user, phase: "new", facts: null, member: null, lastSeenMs: null, agent: { state: "unknown", version: null, rssKib: null },
      hostKey: { status: "unknown", algorithm: null, offered: null, trusted: null, source: null }, connection: { state: "disconnected", sinceMs: 0 },
    }, this.#now()));
  }

  #operate(kind: OperationView["kind"], nodeIds: string[], stepIds: string[]): { operationId: string } {
    const id = `op-${++this.#serial}`;
    const step = (stepId: string): StepView => ({ id: stepId, state: "pending", startedAtMs: null, endedAtMs: null, progress: null, detail: null, error: null });
    this.#putOperation({ id, kind, state: "running", startedAtMs: this.#now(), endedAtMs: null, nodes: nodeIds.map((nodeId) => ({ nodeId, state: "running", steps: stepIds.map(step), error: null })) });
    for (const [index, nodeId] of nodeIds.entries()) {
      if (kind === "bring_up") this.#put({ ...this.nodes.get(nodeId)!, phase: "bringing_up" });
      this.#work(id, nodeId, kind === "bring_up" && this.nodes.get(nodeId)?.name === "gpu-10" ? "preflight" : null, this.#stepMs * (1 + index * 0.25));
    }
    return { operationId: id };
  }
  /** Walks one node through its steps; a step with bytes takes six beats. */
  #work(operationId: string, nodeId: string, failAt: string | null, beatMs: number): void {
    let beats = 0;
    const timer = this.#every(beatMs, () => {
      const operation = this.operations.get(operationId)!;
      const part = operation.nodes.find((each) => each.nodeId === nodeId)!;
      const at = part.steps.findIndex((each) => each.state === "pending" || each.state === "running");
      if (operation.state !== "running" || part.state !== "running" || at < 0) return this.#stop(timer);
      const now = this.#now();
      const step = part.steps[at]!;
      const total = 34_812_416;
      let next: StepView = { ...step, state: "running", startedAtMs: step.startedAtMs ?? now };
      let error = part.error;
      if (step.id === failAt) {
        error = ConsoleError.of("H305", { host: nodeId, available: 1_048_576, path: "/opt", needed: total }).view;
        next = { ...next, state: "failed", endedAtMs: now, error };
      } else if (step.id === "upload" && beats < 6) {
        beats++;
        next = { ...next, progress: { done: Math.round((total * beats) / 6), total, unit: "bytes" } };
      } else if (step.state === "running" || step.id !== "upload") {
        next = { ...next, state: "done", endedAtMs: now, detail: step.id === "driver" ? "dma_engine 1.0.0, abi 1.0" : step.id === "preflight" ? "Debian 12, kernel 6.1.0-57-amd64, 212 GiB free" : null };
      }
      const steps = part.steps.map((each, index) => (index === at ? next : each));
      const state = error ? "failed" : steps.every((each) => each.state === "done") ? "succeeded" : "running";
      const nodes = operation.nodes.map((each) => (each.nodeId === nodeId ? { ...each, steps, state, error } as const : each));
      const over = nodes.every((each) => each.state !== "running");
      this.#putOperation({ ...operation, nodes, state: !over ? "running" : nodes.some((each) => each.state === "failed") ? "failed" : "succeeded", endedAtMs: over ? now : null });
      if (state !== "running" && operation.kind === "bring_up") {
        const node = this.nodes.get(nodeId)!;
        this.#put(error ? { ...node, phase: "failed", error } : { ...node, phase: "up", error: null, agent: { state: "running", version: "0.1.0", rssKib: 3720 }, facts: fakeFacts(1, now, 8), member: 9 });
      }
    });
  }

  #run(params: Params): RunView {
    const run = fakeRun(`r-${String(100 + ++this.#serial)}`, params, this.#now());
    this.#putRun(run);
    const sizes = sizesOf(run.spec);
    const timer = this.#every(Math.max(40, this.#stepMs / 3), () => {
      const now = this.runs.get(run.id)!;
      if (now.state !== "starting" && now.state !== "running") return this.#stop(timer);
      const rows = [...now.rows, fakeRow(now.spec, sizes[now.rows.length]!, 0)];
      const over = rows.length === sizes.length;
      this.#putRun({
        ...now, rows, state: over ? "succeeded" : "running", endedAtMs: over ? this.#now() : null, ranks: now.ranks.map((rank) => ({ ...rank, state: over ? "ended" : "running" })),
        wrongTotal: now.spec.check ? 0 : null, avgBusbwGBps: rows.reduce((sum, row) => sum + row.outOfPlace.busbwGBps, 0) / rows.length,
        model: over ? { alphaUs: 11, betaUsPerByte: 1 / 2850, source: "fit of this run" } : null,
      });
    });
    return run;
  }
  #diagnose(nodeId: string): void {
    this.#putDiagnosis({ ...fakeDiagnosis(nodeId, this.#now()), state: "running", endedAtMs: null, verdict: null, sources: [], findings: [], cannotTell: [] });
    const timer = this.#every(this.#stepMs * 2, () => {
      this.#stop(timer);
      this.#putDiagnosis(fakeDiagnosis(nodeId, this.#now()));
    });
  }

  #past(now: number): void {
    const nodeIds = ["n1", "n2", "n3", "n4"].filter((id) => this.nodes.has(id));
    if (nodeIds.length < 4) return;
    const base = { collective: "all_reduce", nodeIds };
    for (const run of [
      endedRun("r-001", { ...base, transport: "tcp" }, now - 900_000), endedRun("r-002", { ...base, transport: "rdma" }, now - 700_000),
      endedRun("r-003", { ...base, transport: "rdma" }, now - 500_000, { failAt: 14 }), endedRun("r-004", { ...base, transport: "rdma", datatype: "bfloat16" }, now - 300_000, { wrong: 17 }),
      endedRun("r-005", { ...base, transport: "rdma" }, now - 60_000),
    ]) this.runs.set(run.id, run);
    const alert: AlertView = { id: "latency n2 1", rule: "latency", nodeId: "n2", nodeName: "gpu-02", subject: null, startedAtMs: now - 90_000, endedAtMs: null, lastAtMs: now - 2000, worst: 412.7, threshold: 100, count: 37, acknowledgedAtMs: null };
    for (const each of [alert, { ...alert, id: "utilization n1 eth1 2", rule: "utilization" as const, nodeId: "n1", nodeName: "gpu-01", subject: "eth1", startedAtMs: now - 900_000, endedAtMs: now - 800_000, worst: 31.2, threshold: 50, count: 8, acknowledgedAtMs: now - 700_000 }]) this.alerts.set(each.id, each);
    for (const id of this.nodes.size > 11 ? this.nodes.keys() : ["n1", "n2"]) this.diagnoses.set(id, fakeDiagnosis(id, now - 20_000));
  }

  #tick(): void {
    const tick = this.#telemetry.tick([...this.nodes.values()], this.links, this.#now());
    for (const [id, subscription] of [...this.#subscriptions]) if (subscription.stream === "telemetry") this.#emit(id, tick);
  }

  #put(node: NodeView): NodeView {
    this.nodes.set(node.id, node);
    this.#patch("nodes", [node], []);
    return node;
  }
  #putOperation(operation: OperationView): void {
    this.operations.set(operation.id, operation);
    this.#patch("operations", [operation], []);
  }
  #putRun(run: RunView): void {
    this.runs.set(run.id, run);
    this.#patch("runs", [run], []);
  }
  #putDiagnosis(diagnosis: DiagnosisView): void {
    this.diagnoses.set(diagnosis.nodeId, diagnosis);
    this.#patch("diagnoses", [diagnosis], []);
  }
  #patch(stream: string, upsert: unknown[], remove: string[]): void {
    for (const [id, subscription] of [...this.#subscriptions]) if (subscription.stream === stream) this.#emit(id, { kind: "patch", upsert, remove });
  }
  #snapshot(stream: string): unknown {
    switch (stream) {
      case "nodes": return { kind: "snapshot", items: [...this.nodes.values()] };
      case "operations": return { kind: "snapshot", items: [...this.operations.values()] };
      case "runs": return { kind: "snapshot", items: [...this.runs.values()] };
      case "alerts": return { kind: "snapshot", items: [...this.alerts.values()] };
      case "diagnoses": return { kind: "snapshot", items: [...this.diagnoses.values()] };
      case "mends": return { kind: "snapshot", items: [...this.mends.runs.values()] };
      case "guides": return { kind: "snapshot", items: [...this.guides.runs.values()] };
      case "pairs": return { kind: "snapshot", items: [...this.pairs.tests.values()] };
      case "memory": return { kind: "snapshot", items: this.memory.views() };
      case "topology": return { epoch: 4, links: this.links };
      default: return { atMs: this.#now(), nodes: [], flows: [] };
    }
  }
  #emit(id: number, data: unknown): void {
    const subscription = this.#subscriptions.get(id);
    if (subscription) this.#deliver({ type: "event", id, seq: ++subscription.seq, data });
  }
  #deliver(message: HostMessage): void {
    if (this.#state === "open") for (const listener of [...this.#messages]) listener(message);
  }
  #every(ms: number, work: () => void): ReturnType<typeof setInterval> {
    const timer = setInterval(work, ms);
    this.#timers.add(timer);
    return timer;
  }
  #stop(timer: ReturnType<typeof setInterval>): void {
    clearInterval(timer);
    this.#timers.delete(timer);
  }
}

/** `?fleet=1000` for scale, `?fleet=0` for the empty states. */
export function fakeCarrier(search: string): FakeHost {
  const fleet = new URLSearchParams(search).get("fleet");
  const host = new FakeHost(fleet === null ? {} : { fleet: Number(fleet) });
  // For the picture script, which cuts the connection.
  Object.assign(window, { fakeHost: host });
  return host;
}
