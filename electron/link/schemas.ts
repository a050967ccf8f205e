import { z } from "zod";

/**
 * What the daemon answers (agent/PROTOCOL.md), as seen from here. Answers come from a node and are hostile: every text and
 * list is bounded. Members that are not known are dropped, so a newer daemon can say more. A fact that the node could not
 * read is null, never a refusal of all the others.
 */
const short = z.string().max(256);
const text = z.string().max(4096);
/** Facts: a text of the node is cut, since one that is too long must not hide all the others. */
const fact = z.string().transform((v) => v.slice(0, 256));
const count = z.number().int().nonnegative();
const bytes = z.number().nonnegative();
const list = <T extends z.ZodType>(item: T, max: number) => z.array(item).max(max);
const counters = z.record(z.string().max(128), z.number()).refine((r) => Object.keys(r).length <= 512, "more than 512 counters");

const nothing = z.strictObject({});
export const RUN_ID = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/);
export const ENV_NAME = z.string().regex(/^(STEPCCL|NCCL)_[A-Z0-9_]{1,64}$/);

export const PROTOCOL_VERSION = 1;

export const Hello = z.object({
  protocol: z.number(), version: short, git: short, hostname: short, machine_id: short, boot_id: short, pid: count, uid: count,
  started_at_ms: z.number(), uptime_s: z.number(), rss_kib: count, features: list(short, 64),
});

const AgentFactsNic = z.object({
  name: fact, mac: fact.nullable(), mtu: z.number().nullable(), state: z.enum(["up", "down", "unknown"]).catch("unknown"), speed_mbps: z.number().nullable(), driver: fact.nullable(),
  pci: fact.nullable(), numa_node: z.number().nullable(),
  addresses: list(z.object({ family: z.number(), address: short, prefix: z.number() }), 256), rdma_device: short.nullable(),
});
const AgentFactsRdma = z.object({
  name: fact, node_guid: fact.nullable(), fw_version: fact.nullable(), netdev: short.nullable(), driver: short.nullable(), pci: short.nullable(), numa_node: z.number().nullable(),
  ports: list(z.object({
    port: z.number(), state: z.enum(["down", "init", "armed", "active", "unknown"]).catch("unknown"), phys_state: fact,
    link_layer: z.enum(["ethernet", "infiniband", "unknown"]).catch("unknown"), rate_gbps: z.number().nullable(), active_mtu_bytes: z.number().nullable(),
    lid: z.number().nullable(), gids: list(z.object({ index: z.number(), gid: short, type: fact, netdev: fact.nullable() }), 4096), counters,
  }), 256),
});
const AgentFactsGpu = z.object({
  index: z.number(), uuid: fact, name: fact, pci: fact, numa_node: z.number().nullable(), memory_total_bytes: bytes, memory_used_bytes: bytes,
  driver_version: fact.nullable(), cuda_version: fact.nullable(),
  nvlinks: list(z.object({ link: z.number(), active: z.boolean(), peer_pci: short.nullable(), rx_bytes: bytes.nullable(), tx_bytes: bytes.nullable() }), 64),
});

export const AgentFacts = z.object({
  collected_at_ms: z.number(),
  os: z.object({ id: fact.nullable(), version_id: fact.nullable(), pretty_name: fact.nullable() }),
  kernel: z.object({ release: fact.nullable(), version: fact.nullable(), cmdline: text.nullable(), tainted: z.number().nullable() }),
  cpu: z.object({
    model: fact.nullable(), sockets: count.nullable(), cores: count.nullable(), threads: count.nullable(),
    numa_nodes: list(z.object({ id: z.number(), cpus: text, mem_total_bytes: bytes.nullable() }), 2048),
  }),
  memory: z.object({ total_bytes: bytes.nullable(), available_bytes: bytes.nullable(), hugepages_total: count.nullable(), hugepage_bytes: bytes.nullable() }),
  limits: z.object({ memlock_bytes: bytes.nullable(), nofile: z.number().nullable() }),
  nics: list(AgentFactsNic, 1024),
  rdma: list(AgentFactsRdma, 256),
  gpus: list(AgentFactsGpu, 64),
  driver: z.object({
    present: z.boolean(), version: fact.nullable(), abi: fact.nullable(), refcount: z.number().nullable(),
    device: z.object({ path: short, exists: z.boolean(), mode: short.nullable(), uid: z.number().nullish(), gid: z.number().nullish(), accessible: z.boolean() }),
    last_error: text.nullable(), counters,
  }),
  unreadable: list(z.object({ what: short, errno: z.number(), message: text }), 1024),
});
export type AgentFacts = z.output<typeof AgentFacts>;

const NodeNumber = z.number().int().min(0).max(0xfffe);
const MemberAddress = z.object({ address: short, netdev: short.nullable(), rdma_device: short.nullable(), gid_index: z.number().int().min(0).max(65535).nullable() });
const clusterShape = {
  cluster_id: z.string().min(1).max(64), epoch: count, self: NodeNumber,
  members: list(z.object({ node: NodeNumber, name: z.string().max(255), addresses: list(MemberAddress, 64) }), 10_000),
};
export const Cluster = z.object(clusterShape);
export type Cluster = z.output<typeof Cluster>;

export const RoutePath = z.object({
  transport: z.enum(["shm", "tcp", "rdma", "dma", "gpu_peer"]), local_address: short.nullable(), peer_address: short.nullable(), netdev: short.nullable(),
  rdma_device: short.nullable(), gid_index: z.number().nullable(), state: z.enum(["up", "down", "unknown"]), rtt_us: z.number().nullable(),
  measured_at_ms: z.number().nullable(), reason: text.nullable(),
});
export type RoutePath = z.output<typeof RoutePath>;
export const Routes = z.object({
  epoch: count,
  routes: list(z.object({ from: NodeNumber, to: NodeNumber, paths: list(RoutePath, 64) }), 1_000_000),
  /** The whole table is too large for one message: these are this node's own routes. */
  truncated: z.boolean().optional(),
});
export type Routes = z.output<typeof Routes>;

const settingsShape = {
  pipeline_depth: count.nullable(), dma_concurrency: count.nullable(), hbm_defrag: z.boolean().nullable(), hbm_defrag_interval_ms: count.nullable(),
  async_gd: z.boolean().nullable(), paging: z.boolean().nullable(), page_bytes: bytes.nullable(), prefetch_depth: count.nullable(),
  compression: z.boolean().nullable(), buffer_bytes: bytes.nullable(), hbm_cache_ratio_permille: count.nullable(), sm_budget: count.nullable(),
  encryption: z.boolean().nullable(),
};
const Settings = z.object(settingsShape).partial();

const RunStart = z.strictObject({
  run_id: RUN_ID, collective: short, transport: z.enum(["auto", "shm", "tcp", "rdma", "dma"]), world_size: z.number().int().min(2).max(65_536),
  ranks: list(count, 1024).min(1), unique_id: z.string().regex(/^[0-9a-fA-F]+$/).max(8192).nullable(), rendezvous: z.strictObject({ address: short }),
  datatype: short, redop: short, root: count.optional(), algorithm: short, min_bytes: bytes, max_bytes: bytes, step_factor: count, iterations: count, warmup: count, check: z.boolean(),
  timeout_ms: count, env: z.record(ENV_NAME, z.string().max(1024)),
});

export const DaemonRunState = z.enum(["running", "succeeded", "failed", "stopped"]);

/** One line of a rank (see perf.ts), or the daemon's own word about it. */
export const RunEvent = z.object({
  run_id: RUN_ID, seq: count, at_ms: z.number(), rank: z.number().int().nullish().transform((v) => v ?? null),
  event: z.record(z.string().max(128), z.unknown()),
});
export type RunEvent = z.output<typeof RunEvent>;

/** Every method of the daemon: what may be sent, and what a right answer looks like. */
export const AGENT_METHODS = {
  hello: { params: z.strictObject({ protocol: count, client: short }), result: Hello },
  "facts.get": { params: nothing, result: AgentFacts },
  "cluster.set": { params: z.strictObject(clusterShape), result: z.object({ epoch: count }) },
  "cluster.get": { params: nothing, result: Cluster },
  "routes.get": { params: z.strictObject({ from: NodeNumber.optional() }), result: Routes },
  "routes.probe": { params: nothing, result: Routes },
  "settings.get": { params: nothing, result: Settings },
  "settings.set": { params: z.strictObject(settingsShape).partial(), result: Settings },
  "run.start": {
    params: RunStart,
    result: z.object({ run_id: RUN_ID, unique_id: z.string().regex(/^[0-9a-fA-F]+$/).max(8192).nullable(), workers: list(z.object({ rank: count, pid: count }), 1024) }),
  },
  "run.stop": { params: z.strictObject({ run_id: RUN_ID }), result: z.object({ stopped: count }) },
  /** Recordings are checked one by one by who merges them: one that is damaged must not hide the others. */
  "recorder.get": {
    params: z.strictObject({ communicator: z.string().regex(/^[0-9a-f]{16}$/).optional(), rank: count.optional(), operations: z.number().int().min(1).max(1024).optional() }),
    result: z.object({ recorders: list(z.unknown(), 4096) }),
  },
  /** Likewise checked one by one, against GpuProcess (gpu-schemas.ts). */
  "gpu.processes": {
    params: z.strictObject({ communicator: z.string().regex(/^[0-9a-f]{16}$/).optional(), rank: count.optional(), ranges: z.boolean().optional() }),
    result: z.object({ processes: list(z.unknown(), 1024), omitted: count.catch(0) }),
  },
  "run.list": {
    params: nothing,
    result: z.object({
      runs: list(z.object({
        run_id: RUN_ID, state: DaemonRunState, ranks: list(count, 1024), started_at_ms: z.number(), ended_at_ms: z.number().nullable(), next_seq: count,
      }), 1024),
    }),
  },
  "run.events": { params: z.strictObject({ run_id: RUN_ID, from_seq: count }), result: z.object({ events: list(z.unknown(), 4096), next_seq: count, first_seq: count.optional() }) },
  "run.subscribe": { params: z.strictObject({ run_id: RUN_ID, from_seq: count }), result: z.object({ next_seq: count }) },
  "telemetry.subscribe": { params: z.strictObject({ interval_ms: z.number().int().min(100).max(60_000) }), result: z.object({ subscription: z.union([count, short]) }) },
  "telemetry.unsubscribe": { params: z.strictObject({ subscription: z.union([count, short]) }), result: z.object({}) },
  "log.tail": { params: z.strictObject({ lines: z.number().int().min(1).max(1000) }), result: z.object({ lines: list(z.string().max(65_536), 1000) }) },
} as const;
export type AgentMethod = keyof typeof AGENT_METHODS;
export type AgentParams<M extends AgentMethod> = z.input<(typeof AGENT_METHODS)[M]["params"]>;
export type AgentResult<M extends AgentMethod> = z.output<(typeof AGENT_METHODS)[M]["result"]>;
export type Hello = z.output<typeof Hello>;
export type RpcError = z.output<typeof RpcError>;

/** The error member of an answer. `data` is this daemon's own; a plain JSON-RPC error has none. */
export const RpcError = z.object({
  code: z.number(), message: z.string().max(65_536),
  data: z.object({ code: z.string().max(16), next: z.string().max(65_536).optional(), detail: z.record(z.string().max(128), z.unknown()).optional() }).optional(),
});
