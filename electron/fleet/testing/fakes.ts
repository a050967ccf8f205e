import { EventEmitter } from "node:events";
import { PassThrough, type Duplex } from "node:stream";
import { ConsoleError } from "../../contract/index.js";
import type { ConnectedAgent } from "../../link/index.js";
import type { AgentFacts, Cluster } from "../../link/schemas.js";
import type { ConnectionState, SshTarget } from "../../ssh/index.js";
import type { ExecOptions, ExecResult } from "../../ssh/types.js";
import type { NodeTransport } from "../transport.js";

/** What a script of the fleet gets back; the name of a script is its first telling line. */
export type Answer = (command: string, options: ExecOptions) => Partial<ExecResult> | Promise<Partial<ExecResult>>;

/** A node whose commands are answered by the test, and whose daemon is a FakeAgent. For the fleet's own logic only. */
export class FakeNode extends EventEmitter implements NodeTransport {
  state: ConnectionState = "disconnected";
  sinceMs = 0;
  target: SshTarget | null = null;
  /** Why a dial fails; null = it succeeds. */
  unreachable: ConsoleError | null = null;
  dials = 0;
  agent: FakeAgent | null = null;
  connectDelayMs = 0;
  lastStream: Duplex | null = null;
  constructor(readonly nodeId: string, public answer: Answer = () => ({ stdout: "" })) {
    super();
  }
  async connect(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) throw ConsoleError.of("H104");
    if (this.state === "connected") return;
    this.dials++;
    if (this.connectDelayMs > 0) await new Promise((resolve) => setTimeout(resolve, this.connectDelayMs));
    if (this.unreachable) throw this.unreachable;
    this.#set("connected");
    this.emit("seen");
  }
  close(): void {
    this.#set("disconnected");
  }
  /** The link breaks. */
  lose(): void {
    this.#set("disconnected");
    this.emit("lost", ConsoleError.of("H207", { host: this.nodeId, detail: "cut" }));
    this.agent?.die("the connection to it was closed");
  }
  retarget(target: SshTarget): void {
    this.target = target;
    this.close();
  }
  async canForwardTo(): Promise<boolean> {
    return true;
  }
  async exec(command: string, options: ExecOptions = {}): Promise<ExecResult> {
    await this.connect(options.signal);
    return { status: 0, signal: null, stdout: "", stderr: "", droppedBytes: 0, durationMs: 1, ...(await this.answer(command, options)) };
  }
  async execLines(command: string, onLine: (stream: "stdout" | "stderr", line: string) => void, options: ExecOptions = {}): Promise<ExecResult> {
    const result = await this.exec(command, options);
    for (const line of result.stdout.split("\n")) onLine("stdout", line);
    return result;
  }
  async upload(source: { sizeBytes: number }, _path: string, _mode: number, onProgress?: (doneBytes: number) => void): Promise<void> {
    onProgress?.(source.sizeBytes);
  }
  async openAgentStream(): Promise<Duplex> {
    await this.connect();
    if (!this.agent || this.agent.closed) throw ConsoleError.of("H401", { host: this.nodeId, detail: "/opt/stepccl/current/bin/stepccld is not installed" });
    this.lastStream = new PassThrough();
    return this.lastStream;
  }
  #set(state: ConnectionState): void {
    if (this.state === state) return;
    this.state = state;
    this.sinceMs = Date.now();
    this.emit("state", state);
  }
}

export function factsOf(address: string, rdma: string | null = "rxe0"): AgentFacts {
  const nic = (name: string, ip: string, rdmaDevice: string | null): AgentFacts["nics"][number] =>
    ({ name, mac: "00:00:00:00:00:00", mtu: 1500, state: "up", speed_mbps: 1000, driver: null, pci: null, numa_node: null, addresses: [{ family: 4, address: ip, prefix: 24 }], rdma_device: rdmaDevice });
  return {
    collected_at_ms: 1, os: { id: "debian", version_id: "12", pretty_name: "Debian 12" }, kernel: { release: "6.1.0", version: "", cmdline: "", tainted: 0 },
    cpu: { model: "cpu", sockets: 1, cores: 1, threads: 1, numa_nodes: [] }, memory: { total_bytes: 1, available_bytes: 1, hugepages_total: 0, hugepage_bytes: 0 },
    limits: { memlock_bytes: null, nofile: 1024 }, nics: [nic("eth0", "10.0.2.15", null), nic("eth1", address, rdma)],
    rdma: rdma === null ? [] : [{ name: rdma, node_guid: "", fw_version: null, netdev: "eth1", driver: null, pci: null, numa_node: null, ports: [{
      port: 1, state: "active", phys_state: "LinkUp", link_layer: "ethernet", rate_gbps: 1, active_mtu_bytes: 1024, lid: null, counters: {},
      gids: [{ index: 0, gid: "fe80:0000:0000:0000:5054:00ff:fe77:0001", type: "roce_v2", netdev: "eth1" }, { index: 1, gid: "0000:0000:0000:0000:0000:ffff:0a4d:0001", type: "roce_v2", netdev: "eth1" }],
    }] }],
    gpus: [], driver: { present: true, version: "1.0.0", abi: "1.0", refcount: 0, device: { path: "/dev/dma_device", exists: true, mode: "0660", accessible: true }, last_error: null, counters: {} },
    unreadable: [],
  };
}

/** A daemon's conversation: facts, greeting, membership. */
export class FakeAgent implements ConnectedAgent {
  closed = false;
  cluster: Cluster | null = null;
  facts: AgentFacts;
  readonly calls: string[] = [];
  /** Set to have calls fail. */
  failure: ConsoleError | null = null;
  readonly #listeners = new Set<(reason: ConsoleError) => void>();
  readonly hello = { protocol: 1, version: "0.1.0", git: "x", hostname: "node", machine_id: "m", boot_id: "b", pid: 7, uid: 1, started_at_ms: 1, uptime_s: 1, rss_kib: 1500, features: [] };
  constructor(address = "10.77.0.1") {
    this.facts = factsOf(address);
  }
  call: ConnectedAgent["call"] = async (method, params) => {
    this.calls.push(method);
    if (this.closed) throw ConsoleError.of("H401", { host: "node", detail: "closed" });
    if (this.failure) throw this.failure;
    const answers: Record<string, () => unknown> = {
      hello: () => this.hello,
      "facts.get": () => this.facts,
      "cluster.get": () => this.cluster ?? fail("A301"),
      "cluster.set": () => {
        const next = params as unknown as Cluster;
        if (this.cluster && (next.epoch < this.cluster.epoch)) fail("A302");
        this.cluster = next;
        return { epoch: next.epoch };
      },
    };
    return (answers[method]?.() ?? {}) as never;
  };
  onRunEvent(): () => void {
    return () => {};
  }
  onFrame(): () => void {
    return () => {};
  }
  onClose(listener: (reason: ConsoleError) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
  close(): void {
    this.#end(ConsoleError.of("H104"));
  }
  die(detail: string): void {
    this.#end(ConsoleError.of("H401", { host: "node", detail }));
  }
  /** The same daemon after a restart. */
  again(): FakeAgent {
    const next = new FakeAgent();
    next.facts = this.facts;
    next.cluster = this.cluster;
    return next;
  }
  #end(reason: ConsoleError): void {
    if (this.closed) return;
    this.closed = true;
    for (const listener of [...this.#listeners]) listener(reason);
  }
}

function fail(code: "A301" | "A302"): never {
  throw new ConsoleError({ code, message: code, next: "" });
}
