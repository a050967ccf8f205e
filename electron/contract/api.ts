import { z } from "zod";
import { ALERT_METHODS, AlertView } from "./alerts.js";
import { DiagnosisView, SOURCE_METHODS } from "./diagnosis.js";
import { GUIDES_METHODS, GuideRunView } from "./guides.js";
import { HANGS_METHODS } from "./hangs.js";
import { MEMORY_METHODS, NodeMemoryView } from "./memory.js";
import { MENDS_METHODS, MendRunView } from "./mends.js";
import { AuthMethod, HostKeyView, LockHolder, NodeId, NodeInput, NodeView, OperationId, OperationView } from "./nodes.js";
import { PAIRS_METHODS, PairTestView } from "./pair-tests.js";
import { Collective, RunId, RunSpec, RunView } from "./runs.js";
import { FILES_METHODS, SUPPORT_METHODS } from "./support.js";
import { NodeSettingsView, SettingChanges, SettingChangeView } from "./settings.js";
import { LinkView, TelemetryTick, TopologyView } from "./topology.js";

const Nothing = z.strictObject({});
const Done = z.object({});
const NodeIds = z.array(NodeId).min(1).max(10_000);

/**
 * Every request of the page (and of the CLI), with the schema of its parameters and of its result.
 * Parameters are always checked on the host's side; a request that fails gets H101 and does nothing.
 */
export const METHODS = {
  hello: {
    params: Nothing,
    result: z.object({
      version: z.string(), shell: z.enum(["desktop", "browser", "cli"]), startedAtMs: z.number(),
      /** What this shell can do; the page asks these, never which shell it is in. */
      capabilities: z.object({ nativeFileDialog: z.boolean(), keepsSecrets: z.boolean() }),
      /** Where the bundle is that a bring-up would send; null when none is built. */
      bundle: z.object({ version: z.string(), kernels: z.array(z.string()) }).nullable(),
    }),
  },
  "nodes.list": { params: Nothing, result: z.array(NodeView) },
  "nodes.add": { params: NodeInput, result: NodeView },
  /** Hosts of ~/.ssh/config (`ssh -G` for each), to choose from; nothing is added. */
  "nodes.importable": {
    params: Nothing,
    result: z.array(z.object({ alias: z.string(), input: NodeInput, notApplied: z.array(z.string()) })),
  },
  "nodes.setAuth": { params: z.strictObject({ nodeId: NodeId, auth: AuthMethod }), result: NodeView },
  /** Dials once, without credentials, and says which key the node offers. */
  "nodes.checkHostKey": { params: z.strictObject({ nodeId: NodeId }), result: HostKeyView },
  /** Confirms exactly this fingerprint; refused when the node now offers another. */
  "nodes.trustHostKey": { params: z.strictObject({ nodeId: NodeId, fingerprint: z.string().regex(/^SHA256:[A-Za-z0-9+/]{43}$/) }), result: NodeView },
  "nodes.connect": { params: z.strictObject({ nodeId: NodeId }), result: NodeView },
  /** Reads a member's addresses and GID table anew and tells the cluster where they differ. H401, H502 when it is no member. */
  "nodes.rejoin": { params: z.strictObject({ nodeId: NodeId }), result: z.object({ detail: z.string() }) },
  "nodes.forget": { params: z.strictObject({ nodeIds: NodeIds }), result: Done },
  "nodes.bringUp": { params: z.strictObject({ nodeIds: NodeIds }), result: z.object({ operationId: OperationId }) },
  /** Takes runtime, daemon and driver off the nodes again. */
  "nodes.takeDown": { params: z.strictObject({ nodeIds: NodeIds }), result: z.object({ operationId: OperationId }) },
  /** Which console holds a node for a change; null for none. */
  "nodes.lockHolder": { params: z.strictObject({ nodeId: NodeId }), result: LockHolder.nullable() },
  /** Breaks exactly the hold with this token; `broken` is false when it is not there any more. Its holder stops before its next act. */
  "nodes.breakLock": { params: z.strictObject({ nodeId: NodeId, token: z.string().regex(/^[A-Za-z0-9:-]{0,80}$/) }), result: z.object({ broken: z.boolean() }) },
  "operations.list": { params: Nothing, result: z.array(OperationView) },
  "operations.cancel": { params: z.strictObject({ operationId: OperationId }), result: Done },
  "topology.get": { params: Nothing, result: TopologyView },
  "topology.probe": { params: Nothing, result: TopologyView },
  "runs.list": { params: Nothing, result: z.array(RunView) },
  "runs.get": { params: z.strictObject({ runId: RunId }), result: RunView },
  /** The schedules that this version has for each collective among so many ranks; "auto" is one of them. */
  "runs.algorithms": { params: z.strictObject({ worldSize: z.number().int().min(2).max(65_536) }), result: z.record(Collective, z.array(z.string())) },
  "runs.start": { params: RunSpec, result: RunView },
  "runs.stop": { params: z.strictObject({ runId: RunId }), result: Done },
  "runs.export": { params: z.strictObject({ runId: RunId, format: z.enum(["csv", "json"]) }), result: z.object({ fileName: z.string(), mediaType: z.string(), text: z.string() }) },
  /** The live settings of every node that is up, with what is recommended for it. */
  "settings.get": { params: Nothing, result: z.array(NodeSettingsView) },
  /** Each node takes all changes or none; a node that did not has its error in the answer. */
  "settings.set": { params: z.strictObject({ nodeIds: NodeIds, changes: SettingChanges }), result: z.array(NodeSettingsView) },
  /** Who changed what, newest first. */
  "settings.history": { params: z.strictObject({ limit: z.number().int().min(1).max(1000).default(200) }), result: z.array(SettingChangeView) },
  "diagnose.start": { params: z.strictObject({ nodeIds: NodeIds }), result: z.object({ operationId: OperationId }) },
  "diagnose.list": { params: Nothing, result: z.array(DiagnosisView) },
  ...SOURCE_METHODS,
  ...ALERT_METHODS,
  ...FILES_METHODS,
  ...MEMORY_METHODS,
  ...MENDS_METHODS,
  ...HANGS_METHODS,
  ...GUIDES_METHODS,
  ...PAIRS_METHODS,
  ...SUPPORT_METHODS,
} as const;
export type Method = keyof typeof METHODS;
export type Params<M extends Method> = z.input<(typeof METHODS)[M]["params"]>;
export type CheckedParams<M extends Method> = z.output<(typeof METHODS)[M]["params"]>;
export type Result<M extends Method> = z.output<(typeof METHODS)[M]["result"]>;

/** A list that is kept by id: a snapshot first, then what changed. */
const keyed = <T extends z.ZodType>(item: T) =>
  z.discriminatedUnion("kind", [
    z.object({ kind: z.literal("snapshot"), items: z.array(item) }),
    z.object({ kind: z.literal("patch"), upsert: z.array(item), remove: z.array(z.string()) }),
  ]);

/**
 * Every stream. The first event after a subscription is a snapshot; a client that was cut off subscribes again.
 * The host coalesces to at most 10 events a second for each subscription.
 */
export const STREAMS = {
  nodes: { event: keyed(NodeView) },
  operations: { event: keyed(OperationView) },
  /** Keyed by run id; a patch carries whole runs. */
  runs: { event: keyed(RunView) },
  diagnoses: { event: keyed(DiagnosisView) },
  mends: { event: keyed(MendRunView) },
  guides: { event: keyed(GuideRunView) },
  pairs: { event: keyed(PairTestView) },
  /** The nodes that are up, by node id. While somebody listens the nodes are asked in turn, a few at a time: each says how old it is. */
  memory: { event: keyed(NodeMemoryView) },
  topology: { event: z.object({ epoch: z.number(), links: z.array(LinkView) }) },
  /** Those that last and those that ended, newest first. */
  alerts: { event: keyed(AlertView) },
  telemetry: { event: TelemetryTick },
} as const;
export type Stream = keyof typeof STREAMS;
export type StreamEvent<S extends Stream> = z.output<(typeof STREAMS)[S]["event"]>;
