import { z } from "zod";
import { ErrorView } from "./errors.js";

export const NodeId = z.string().regex(/^[a-z0-9-]{1,40}$/);
export type NodeId = z.infer<typeof NodeId>;

const HostName = z.string().min(1).max(255).regex(/^[A-Za-z0-9._:%-]+$/).refine((v) => !v.startsWith("-"), "must not begin with -");
const UserName = z.string().min(1).max(64).regex(/^[A-Za-z0-9_.@][A-Za-z0-9_.@-]*$/);

/** How the console proves who it is. Secrets travel page -> host once and are never sent back. */
export const AuthMethod = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("agent") }),
  z.strictObject({ kind: z.literal("key"), keyPath: z.string().min(1).max(4096), passphrase: z.string().max(1024).optional() }),
  z.strictObject({ kind: z.literal("password"), password: z.string().min(1).max(1024) }),
]);
export type AuthMethod = z.infer<typeof AuthMethod>;

export const NodeInput = z.strictObject({
  /** Shown name; the host name where absent. */
  name: z.string().min(1).max(64).optional(),
  host: HostName,
  port: z.number().int().min(1).max(65535).default(22),
  user: UserName,
  auth: AuthMethod.default({ kind: "agent" }),
  /** Jump hosts, first hop first, as in ProxyJump: [user@]host[:port]. Each hop's key is verified under its own name. */
  jump: z.array(z.string().max(400)).max(8).default([]),
  /** Address on the data network; chosen from the node's facts where absent. */
  dataAddress: z.string().max(64).optional(),
});
export type NodeInput = z.infer<typeof NodeInput>;

export const HostKeyView = z.object({
  status: z.enum(["unknown", "trusted", "unconfirmed", "changed", "revoked"]),
  algorithm: z.string().nullable(),
  /** "SHA256:…", as ssh-keygen -l prints it: the key that the node offered last. */
  offered: z.string().nullable(),
  trusted: z.string().nullable(),
  /** Who vouched for it: a known_hosts file or the operator, and when. */
  source: z.string().nullable(),
});
export type HostKeyView = z.infer<typeof HostKeyView>;

/**
 * Where a node stands. `new` → `needs_host_key` → `reachable` → `bringing_up` → `up`; `degraded` = up, but
 * something it needs fails; `unreachable` = was reached before and is not now; `failed` = the last attempt failed.
 */
export const NodePhase = z.enum(["new", "needs_host_key", "reachable", "bringing_up", "up", "degraded", "unreachable", "failed"]);
export type NodePhase = z.infer<typeof NodePhase>;

/** A fact that the node could not read is null, and `unreadable` says why. */
export const NodeFacts = z.object({
  collectedAtMs: z.number(),
  hostname: z.string(),
  os: z.string().nullable(),
  kernel: z.string().nullable(),
  cpuModel: z.string().nullable(),
  cpuThreads: z.number().nullable(),
  numaNodes: z.number(),
  memoryTotalBytes: z.number().nullable(),
  memoryAvailableBytes: z.number().nullable(),
  /** null = unlimited. */
  memlockBytes: z.number().nullable(),
  nics: z.array(z.object({
    name: z.string(), state: z.string(), speedMbps: z.number().nullable(), mtuBytes: z.number().nullable(), mac: z.string().nullable(), driver: z.string().nullable(),
    pci: z.string().nullable(), numaNode: z.number().nullable(), addresses: z.array(z.string()), rdmaDevice: z.string().nullable(),
  })),
  rdma: z.array(z.object({
    name: z.string(), netdev: z.string().nullable(), port: z.number(), state: z.string(), linkLayer: z.string(), rateGbps: z.number().nullable(),
    activeMtuBytes: z.number().nullable(), gids: z.array(z.object({ index: z.number(), gid: z.string(), type: z.string() })),
  })),
  gpus: z.array(z.object({
    index: z.number(), name: z.string(), pci: z.string(), numaNode: z.number().nullable(), memoryTotalBytes: z.number(), memoryUsedBytes: z.number(),
    nvlinksActive: z.number(),
    /** As nvidia-smi prints it; joins the GPU with the processes that use it. */
    uuid: z.string().optional(),
  })),
  driver: z.object({
    present: z.boolean(), version: z.string().nullable(), abi: z.string().nullable(), deviceMode: z.string().nullable(),
    accessible: z.boolean(), lastError: z.string().nullable(),
  }),
  /** What could not be read, said openly. */
  unreadable: z.array(z.string()),
});
export type NodeFacts = z.infer<typeof NodeFacts>;

export const NodeView = z.object({
  id: NodeId,
  name: z.string(),
  host: z.string(),
  port: z.number(),
  user: z.string(),
  authKind: z.enum(["agent", "key", "password"]),
  keyPath: z.string().nullable(),
  jump: z.array(z.string()),
  dataAddress: z.string().nullable(),
  phase: NodePhase,
  hostKey: HostKeyView,
  connection: z.object({ state: z.enum(["disconnected", "connecting", "connected"]), sinceMs: z.number() }),
  agent: z.object({ state: z.enum(["unknown", "absent", "stopped", "running"]), version: z.string().nullable(), rssKib: z.number().nullable() }),
  /** Number inside the cluster, once it is a member. */
  member: z.number().nullable(),
  facts: NodeFacts.nullable(),
  /** The last problem; null when all is well. */
  error: ErrorView.nullable(),
  /** When the node last answered anything. The page shows the age of every value by it. */
  lastSeenMs: z.number().nullable(),
  addedAtMs: z.number(),
});
export type NodeView = z.infer<typeof NodeView>;

/** Which console works on a node now. Its texts come from the node: hostile. */
export const LockHolder = z.object({
  /** Names exactly this hold; "" for a lock that no console wrote. */
  token: z.string(),
  owner: z.string(),
  sinceMs: z.number().nullable(),
  /** A console at work renews it every 30 s. */
  heartbeatAgeSeconds: z.number().nullable(),
});
export type LockHolder = z.infer<typeof LockHolder>;

export const StepState = z.enum(["pending", "running", "done", "skipped", "failed", "rolled_back"]);
export type StepState = z.infer<typeof StepState>;

/** Steps of a bring-up, in order. The page names them by `steps.<id>`. */
export const BRING_UP_STEPS = [
  "connect", "preflight", "upload", "verify", "install", "driver", "service", "link", "join",
] as const;
export const StepView = z.object({
  id: z.string(),
  state: StepState,
  startedAtMs: z.number().nullable(),
  endedAtMs: z.number().nullable(),
  progress: z.object({ done: z.number(), total: z.number(), unit: z.enum(["bytes", "items"]) }).nullable(),
  /** One line of what was found or done. Hostile text. */
  detail: z.string().nullable(),
  error: ErrorView.nullable(),
});
export type StepView = z.infer<typeof StepView>;

export const OperationId = z.string().regex(/^[a-z0-9-]{1,60}$/);
export const OperationView = z.object({
  id: OperationId,
  kind: z.enum(["bring_up", "remove", "diagnose"]),
  state: z.enum(["running", "succeeded", "failed", "cancelled"]),
  startedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  nodes: z.array(z.object({
    nodeId: NodeId,
    state: z.enum(["pending", "running", "succeeded", "failed", "cancelled"]),
    steps: z.array(StepView),
    error: ErrorView.nullable(),
  })),
});
export type OperationView = z.infer<typeof OperationView>;
