/**
 * `npm run demo`: three real nodes, brought up, measured over TCP and RDMA, and the console opened on them.
 * `--once` ends by itself, with status 0 only when every step and every check held.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createHost, type Host } from "../electron/host.js";
import { toErrorView, type NodeView, type OperationView, type RunView } from "../electron/contract/index.js";
import * as lab from "./lab/lab.js";
import { formatRunTable } from "./table.js";

const NODES = 3;
const root = join(import.meta.dirname, "..");
const dataDir = join(root, "build/out/demo");
const { values: options } = parseArgs({ options: { once: { type: "boolean", default: false }, cold: { type: "boolean", default: false } } });

const failures: string[] = [];
function check(holds: boolean, what: string): void {
  console.log(`  ${holds ? "ok  " : "FAIL"} ${what}`);
  if (!holds) failures.push(what);
}
const heading = (text: string): void => console.log(`\n== ${text}`);
const seconds = (sinceMs: number): string => `${((Date.now() - sinceMs) / 1000).toFixed(1)} s`;

/** Resolves when the operation ended; prints each step as it ends. */
function watchOperation(host: Host, operationId: string, names: ReadonlyMap<string, string>): Promise<OperationView> {
  const printed = new Set<string>();
  return new Promise((done) => {
    const stop = host.subscribe("operations", (event) => {
      const operation = (event.kind === "snapshot" ? event.items : event.upsert).find((item) => item.id === operationId);
      if (!operation) return;
      for (const node of operation.nodes) for (const step of node.steps) {
        const key = `${node.nodeId}/${step.id}/${step.state}`;
        if (step.state === "pending" || step.state === "running" || printed.has(key)) continue;
        printed.add(key);
        const took = step.startedAtMs !== null && step.endedAtMs !== null ? `${((step.endedAtMs - step.startedAtMs) / 1000).toFixed(1)} s` : "";
        console.log(`  ${names.get(node.nodeId)?.padEnd(8)} ${step.id.padEnd(10)} ${step.state.padEnd(8)} ${took.padStart(7)}  ${step.error ? `${step.error.code} ${step.error.message}` : step.detail ?? ""}`);
      }
      if (operation.state === "running") return;
      queueMicrotask(() => stop());
      done(operation);
    });
  });
}

function watchRun(host: Host, runId: string): Promise<RunView> {
  return new Promise((done) => {
    const stop = host.subscribe("runs", (event) => {
      const run = (event.kind === "snapshot" ? event.items : event.upsert).find((item) => item.id === runId);
      if (!run || run.state === "starting" || run.state === "running") return;
      queueMicrotask(() => stop());
      done(run);
    });
  });
}

async function addAndTrust(host: Host, state: lab.LabState): Promise<NodeView[]> {
  const nodes: NodeView[] = [];
  for (const node of state.nodes) {
    const added = await host.request("nodes.add", { name: node.name, host: node.sshHost, port: node.sshPort, user: node.user, auth: { kind: "key", keyPath: node.keyPath } });
    const key = await host.request("nodes.checkHostKey", { nodeId: added.id });
    // The lab wrote each node's key into its disk, so its fingerprint is known by another way than the connection.
    check(key.offered === node.hostKeySha256, `${node.name} offers the key that its disk holds, ${key.offered}`);
    nodes.push(await host.request("nodes.trustHostKey", { nodeId: added.id, fingerprint: node.hostKeySha256 }));
  }
  return nodes;
}

async function theJob(host: Host, state: lab.LabState): Promise<void> {
  heading("Nodes");
  const nodes = await addAndTrust(host, state);
  const names = new Map(nodes.map((node) => [node.id, node.name]));
  const nodeIds = nodes.map((node) => node.id);

  heading("Bring-up");
  const { operationId } = await host.request("nodes.bringUp", { nodeIds });
  const operation = await watchOperation(host, operationId, names);
  check(operation.state === "succeeded", `bring-up ${operation.state}`);
  for (const node of await host.request("nodes.list", {})) {
    check(node.phase === "up", `${node.name} is ${node.phase}: kernel ${node.facts?.kernel}, driver ${node.facts?.driver.version}, daemon ${node.agent.version}`);
    check(node.facts?.driver.deviceMode === "0660" && node.facts.driver.accessible, `${node.name} /dev/dma_device is ${node.facts?.driver.deviceMode}, open to the daemon`);
  }
  if (operation.state !== "succeeded") return;

  const topology = await host.request("topology.probe", {});
  for (const transport of ["tcp", "rdma"] as const) {
    const up = topology.links.filter((link) => link.transport === transport && link.state === "up");
    check(up.length === NODES * (NODES - 1), `${up.length} of ${NODES * (NODES - 1)} ${transport} links are up`);
  }

  for (const transport of ["tcp", "rdma"] as const) {
    heading(`AllReduce over ${transport}, ${NODES} ranks on ${NODES} nodes`);
    const started = await host.request("runs.start", {
      collective: "all_reduce", nodeIds, transport, minBytes: 8, maxBytes: 16 * 1024 ** 2, stepFactor: 8, iterations: 5, warmup: 1, timeoutMs: 60_000,
    });
    const run = await watchRun(host, started.id);
    console.log(formatRunTable(run));
    if (run.error) console.log(`  ${run.error.code} ${run.error.message} ${run.error.next}`);
    check(run.state === "succeeded" && run.wrongTotal === 0, `AllReduce over ${transport} ${run.state}, #wrong ${run.wrongTotal}`);
    check(run.rows.at(0)?.bytes === 8 && run.rows.at(-1)?.bytes === 16 * 1024 ** 2, "sizes from 8 B to 16 MiB");
  }
}

/** Opens the console on the lab and resolves when the person ends it. */
function openConsole(): Promise<void> {
  const child: ChildProcess = spawn(process.execPath, [join(root, "build/out/host/start.mjs"), "--data-dir", dataDir, "--open"], { stdio: "inherit" });
  return new Promise((done, failed) => {
    child.once("error", failed);
    child.once("exit", () => done());
    const end = (): void => { child.kill("SIGTERM"); };
    process.once("SIGINT", end);
    process.once("SIGTERM", end);
  });
}

async function main(): Promise<void> {
  const began = Date.now();
  rmSync(dataDir, { recursive: true, force: true });
  heading(`Lab: ${NODES} virtual machines`);
  const interrupted = (): void => { void lab.down().finally(() => process.exit(130)); };
  process.once("SIGINT", interrupted);
  process.once("SIGTERM", interrupted);
  const state = await lab.up({ nodes: NODES, cold: options.cold, onProgress: (text) => console.log(`  ${text}`) });
  console.log(`  ${state.nodes.length} nodes answer by SSH after ${seconds(began)}, kernel ${state.kernelRelease}`);
  try {
    const host = await createHost({ dataDir, bundleDir: join(root, "build/out/bundle"), shell: "cli" });
    try {
      await theJob(host, state);
    } finally {
      await host.close();
    }
    heading(failures.length === 0 ? `Every check held, ${seconds(began)}` : `${failures.length} checks failed, ${seconds(began)}`);
    for (const failure of failures) console.log(`  ${failure}`);
    process.off("SIGINT", interrupted);
    process.off("SIGTERM", interrupted);
    if (!options.once) {
      heading("The console is open on these nodes. Ctrl-C takes everything down");
      await openConsole();
    }
  } finally {
    heading("Taking the lab down");
    await lab.down();
  }
}

main().then(
  () => { process.exitCode = failures.length === 0 ? 0 : 1; },
  (thrown: unknown) => {
    const error = toErrorView(thrown);
    console.error(`demo: ${error.code} ${error.message} ${error.next}`);
    process.exitCode = 1;
  },
);
