import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { Alerts } from "./alerts/service.js";
import { AlertStore } from "./alerts/store.js";
import { AlphaBetaModeller } from "./collectives/model.js";
import { Collectives } from "./collectives/service.js";
import { RunStore } from "./collectives/store.js";
import { diagnoseFilesView } from "./diagnosis/files.js";
import { Guides } from "./diagnosis/guides/service.js";
import { checkHangs, hangsOfFiles } from "./diagnosis/hangs/service.js";
import { Mends } from "./diagnosis/mends/service.js";
import { Pairs } from "./diagnosis/pairs/service.js";
import { Diagnosis } from "./diagnosis/service.js";
import { Support, supportFolder } from "./diagnosis/support/service.js";
import { Uploads } from "./diagnosis/uploads.js";
import { Fleet, MemorySecretKeeper, openStore, type FleetOptions, type SecretKeeper } from "./fleet/index.js";
import { hostOf, type Handlers, type Host, type Topics } from "./gate.js";
import { openLog } from "./log.js";
import { NodeMemory } from "./memory/service.js";
import { productRoot } from "./paths.js";
import { SettingsLog } from "./settings/log.js";
import { NodeSettings } from "./settings/service.js";
import { openHistory } from "./telemetry/history_db.js";
import { Telemetry } from "./telemetry/service.js";
import { Topology } from "./telemetry/topology.js";

export type { Dispatcher, Host } from "./gate.js";

export interface HostOptions {
  /** Where the console keeps its nodes, runs and log; made where it is missing, for this user alone. */
  dataDir: string;
  /** What a bring-up sends: the output of `npm run bundle`. */
  bundleDir: string;
  shell: "desktop" | "browser" | "cli";
  /** Kept for the session where absent. */
  secrets?: SecretKeeper;
  capabilities?: { nativeFileDialog: boolean; keepsSecrets: boolean };
  fleet?: Partial<FleetOptions>;
}

/** Puts the rooms together. @throws Error when the data folder cannot be used */
export async function createHost(options: HostOptions): Promise<Host> {
  const startedAtMs = Date.now();
  const log = openLog(options.dataDir);
  const onError = (error: unknown): void => log.error({ err: error }, "internal error");
  const store = openStore(options.dataDir);
  const fleet = new Fleet({ store, secrets: options.secrets ?? new MemorySecretKeeper(), bundleDir: options.bundleDir, onError, dialQuietly: options.shell !== "cli", ...options.fleet });
  const history = openHistory(options.dataDir);
  const alerts = new Alerts({ nodes: fleet, store: new AlertStore(history), onError });
  const telemetry = new Telemetry({ nodes: fleet, onSample: (nodeId, sample, ops) => alerts.observe(nodeId, sample, ops), onGone: (nodeId) => alerts.forget(nodeId), onError });
  const topology = new Topology({ nodes: fleet, onError });
  const collectives = new Collectives({ nodes: fleet, store: new RunStore(options.dataDir), modeller: new AlphaBetaModeller(onError), onError });
  const diagnosis = new Diagnosis({ nodes: fleet, operations: fleet.operations, documents: store.diagnoses, members: () => fleet.membership.state.members });
  const mends = new Mends({
    nodes: fleet, diagnosis, actions: { rejoin: (nodeId, signal) => fleet.rejoin(nodeId, signal) }, documents: store.mends, onError,
    busy: (nodeId) => fleet.listOperations().some((op) => op.kind !== "diagnose" && op.state === "running" && op.nodes.some((n) => n.nodeId === nodeId && (n.state === "running" || n.state === "pending"))),
  });
  const pairs = new Pairs({ nodes: fleet, probe: (spec, signal) => collectives.probe(spec, signal) });
  const guides = new Guides({
    nodes: fleet, diagnosis, cancelOperation: (id) => fleet.cancelOperation(id), topology: (signal) => topology.get(signal), onError,
    hangs: (nodeIds, signal) => checkHangs(fleet, nodeIds, signal), verbsPing: (from, to, signal) => pairs.ping(from, to, signal),
  });
  const uploads = new Uploads(join(options.dataDir, "uploads"));
  const memory = new NodeMemory({ nodes: fleet, sampleOf: (nodeId) => telemetry.sample(nodeId), onError });
  const settings = new NodeSettings({ nodes: fleet, topology: () => topology.current, log: new SettingsLog(history), onChanged: (nodeIds) => memory.soon(nodeIds) });
  const support = new Support({
    folder: supportFolder(options.dataDir), version: productVersion(), uploads, nodes: fleet, diagnosis, operations: () => fleet.listOperations(), mends: () => mends.list(),
  });
  const hello: Handlers["hello"] = async () => ({
    version: productVersion(), shell: options.shell, startedAtMs,
    capabilities: options.capabilities ?? { nativeFileDialog: false, keepsSecrets: false }, bundle: await fleet.bundle(),
  });
  const handlers: Handlers = {
    hello,
    "nodes.list": () => fleet.list(),
    "nodes.add": (params) => fleet.add(params),
    "nodes.importable": (_params, signal) => fleet.importable(signal),
    "nodes.setAuth": ({ nodeId, auth }) => fleet.setAuth(nodeId, auth),
    "nodes.checkHostKey": ({ nodeId }, signal) => fleet.checkHostKey(nodeId, signal),
    "nodes.trustHostKey": ({ nodeId, fingerprint }, signal) => fleet.trustHostKey(nodeId, fingerprint, signal),
    "nodes.connect": ({ nodeId }, signal) => fleet.connect(nodeId, signal),
    "nodes.rejoin": async ({ nodeId }, signal) => ({ detail: await fleet.rejoin(nodeId, signal) }),
    "nodes.forget": async ({ nodeIds }) => {
      await fleet.forget(nodeIds);
      return {};
    },
    "nodes.bringUp": ({ nodeIds }) => fleet.bringUp(nodeIds),
    "nodes.takeDown": ({ nodeIds }) => fleet.takeDown(nodeIds),
    "nodes.lockHolder": ({ nodeId }, signal) => fleet.lockHolder(nodeId, signal),
    "nodes.breakLock": async ({ nodeId, token }, signal) => ({ broken: await fleet.breakLock(nodeId, token, signal) }),
    "operations.list": () => fleet.listOperations(),
    "operations.cancel": ({ operationId }) => {
      fleet.cancelOperation(operationId);
      return {};
    },
    "topology.get": (_params, signal) => topology.get(signal),
    "topology.probe": (_params, signal) => topology.probe(signal),
    "runs.list": () => collectives.list(),
    "runs.get": ({ runId }) => collectives.get(runId),
    "runs.algorithms": ({ worldSize }) => collectives.algorithms(worldSize),
    "runs.start": (spec, signal) => collectives.start(spec, signal),
    "runs.stop": async ({ runId }) => {
      await collectives.stop(runId);
      return {};
    },
    "runs.export": ({ runId, format }) => collectives.export(runId, format),
    "alerts.list": () => alerts.list(),
    "alerts.acknowledge": ({ alertIds }) => {
      alerts.acknowledge(alertIds);
      return {};
    },
    "alerts.thresholds": () => alerts.thresholds(),
    "alerts.setThreshold": (change) => alerts.setThreshold(change),
    "history.get": (params) => alerts.history(params),
    "memory.get": ({ nodeIds }, signal) => memory.get(nodeIds, signal),
    "memory.map": ({ nodeId, process }, signal) => memory.map(nodeId, process, signal),
    "settings.get": (_params, signal) => settings.get(signal),
    "settings.set": ({ nodeIds, changes }, signal) => settings.set(nodeIds, changes, signal),
    "settings.history": ({ limit }) => settings.history(limit),
    "diagnose.start": ({ nodeIds }) => diagnosis.start(nodeIds),
    "diagnose.list": () => diagnosis.list(),
    "diagnose.source": ({ nodeId, sourceId, fromChar }) => diagnosis.source(nodeId, sourceId, fromChar),
    "diagnose.files": ({ files }, signal) => diagnoseFilesView(uploads.open(files), signal),
    "mends.offer": ({ nodeId, findingId, mendIds }) => mends.offer(nodeId, findingId, mendIds),
    "mends.apply": ({ offerId, commands, secondConsent }) => mends.apply(offerId, commands, secondConsent),
    "mends.cancel": ({ mendRunId }) => {
      mends.cancel(mendRunId);
      return {};
    },
    "mends.list": () => mends.list(),
    "hangs.check": ({ nodeIds }, signal) => checkHangs(fleet, nodeIds ?? [], signal),
    "hangs.files": ({ files }, signal) => hangsOfFiles(uploads.open(files), signal),
    "guides.list": () => guides.list(),
    "guides.for": (params) => guides.for(params.class),
    "guides.start": ({ guideId, nodeIds }) => guides.start(guideId, nodeIds),
    "guides.cancel": ({ guideRunId }) => {
      guides.cancel(guideRunId);
      return {};
    },
    "guides.runs": () => guides.runs(),
    "pairs.start": (params) => pairs.start(params),
    "pairs.cancel": ({ pairTestId }) => {
      pairs.cancel(pairTestId);
      return {};
    },
    "pairs.list": () => pairs.list(),
    "support.prepare": ({ nodeIds }) => support.prepare(nodeIds ?? []),
    "support.preview": ({ bundleId, name }) => support.preview(bundleId, name),
    "support.read": ({ bundleId, offset }) => support.read(bundleId, offset),
    "support.open": ({ uploadId }, signal) => support.open(uploadId, signal),
    "support.openFile": ({ uploadId, name }) => support.openFile(uploadId, name),
    "uploads.begin": ({ name, sizeBytes }) => uploads.begin(name, sizeBytes),
    "uploads.append": ({ uploadId, offset, base64 }) => uploads.append(uploadId, offset, base64),
    "uploads.discard": async ({ uploadId }) => {
      await uploads.discard(uploadId);
      return {};
    },
  };
  const topics: Topics = {
    nodes: fleet.topic, operations: fleet.operations.topic, runs: collectives.topic, diagnoses: diagnosis.topic, mends: mends.topic, guides: guides.topic, pairs: pairs.topic, memory: memory.topic, topology: topology.topic, alerts: alerts.topic, telemetry: telemetry.topic,
  };
  const host = hostOf(handlers, topics, async () => {
    memory.close();
    telemetry.close();
    topology.close();
    guides.close();
    await pairs.close();
    await mends.close();
    diagnosis.close();
    await support.close();
    await uploads.close();
    await collectives.close();
    await fleet.close();
    alerts.close();
    history.close();
    store.close();
  }, onError);
  await fleet.start();
  return host;
}

function productVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(join(productRoot(), "package.json"), "utf8"));
  return z.object({ version: z.string() }).parse(manifest).version;
}
