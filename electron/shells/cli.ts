import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { Collective, ConsoleError, DataType, RedOp, RunTransport, toErrorView, type ErrorView, type NodeView, type OperationView } from "../contract/index.js";
import type { Host } from "../gate.js";
import { addDiagnoseCommands } from "./cli-diagnose.js";
import { addMemoryCommand } from "./cli-memory.js";
import { confirmHostKey, inputOf, NeedsConfirmation, passphraseOf, pickNodes, provideSecrets, unlock, UsageError, type AddOptions } from "./cli-nodes.js";
import { errorText, nodesText, OperationPrinter, rowText, runEndText, RUN_HEADER, statusText } from "./cli-print.js";
import { followOperation, followRun } from "./cli-watch.js";
import { clean, firstLine, table, type Io } from "./terminal.js";

/** Exit statuses. */
export const EXIT = { ok: 0, failed: 1, usage: 2, needsConfirmation: 3, wrongData: 4, interrupted: 130 } as const;

export interface CliContext {
  io: Io;
  version: string;
  /** Opened for commands that need it, with the options of the command line. */
  openHost(options: { dataDir?: string; bundleDir?: string }): Promise<Host>;
  /** `stepccl console`: runs until it is ended. */
  console(options: { dataDir?: string; bundleDir?: string; port?: number; open?: boolean; shell?: "browser" | "desktop" }): Promise<number>;
  /** Aborted by Ctrl-C. */
  signal: AbortSignal;
}

interface Globals {
  json?: boolean;
  dataDir?: string;
  bundle?: string;
}

const BYTES = /^(\d{1,15})([kmgKMG]?)(?:i?[bB])?$/;
/** "16M" as nccl-tests takes it: powers of 1024. */
export function parseBytes(text: string): number {
  const match = BYTES.exec(text);
  if (!match) throw new InvalidArgumentError("Write a number of bytes, with K, M or G.");
  return Number(match[1]) * 1024 ** ["", "k", "m", "g"].indexOf(match[2]!.toLowerCase());
}
const whole = (text: string): number => {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError("Write a whole number.");
  return Number(text);
};
const list = (text: string): string[] => text.split(",").map((part) => part.trim()).filter((part) => part !== "");
const collectText = (text: string, before: string[] = []): string[] => [...before, text];

/** Runs one command line; gives the exit status. Writes data to stdout, all else to stderr. */
export async function runCli(argv: readonly string[], context: CliContext): Promise<number> {
  const { io } = context;
  let status: number = EXIT.ok;
  const out = (text: string): void => void io.stdout.write(`${text}\n`);
  const note = (text: string): void => void io.stderr.write(`${text}\n`);
  const program = new Command("stepccl").description("Brings a GPU cluster up on StepCCL, watches it, drives it and mends it.")
    .version(context.version).option("--json", "print JSON for machines: one document, or one object a line while a run goes on")
    .option("--data-dir <dir>", "where the console keeps its nodes (default: $STEPCCL_DATA_DIR, else the user's data folder)")
    .option("--bundle <dir>", "the bundle that a bring-up sends")
    .showHelpAfterError("(stepccl --help shows every command)").exitOverride()
    .configureOutput({ writeOut: (text) => void io.stdout.write(text), writeErr: (text) => void io.stderr.write(text) })
    .addHelpText("after", `
Exit status: 0 all well; 1 something failed (said on stderr); 2 the command line is wrong; 3 a host key, or the breaking
of a lock, waits to be confirmed; 4 a run gave wrong results; 130 interrupted.`);
  const globals = (): Globals => program.opts<Globals>();
  const json = (value: unknown): void => out(JSON.stringify(value, null, 2));

  /** Opens the host for one command and closes it after it, whatever happens. */
  const withHost = <A extends unknown[]>(work: (host: Host, ...args: A) => Promise<number | void>) => async (...args: A): Promise<void> => {
    const { dataDir, bundle } = globals();
    const host = await context.openHost({ ...(dataDir === undefined ? {} : { dataDir }), ...(bundle === undefined ? {} : { bundleDir: bundle }) });
    try {
      status = (await work(host, ...args)) ?? EXIT.ok;
    } finally {
      await host.close();
    }
  };

  // ---- nodes ----------------------------------------------------------------------------------------------------------------
  const nodes = program.command("nodes").description("the nodes of the cluster");
  nodes.command("list").description("show all nodes").action(withHost(async (host) => {
    const all = await host.request("nodes.list", {});
    if (globals().json) json(all);
    else out(nodesText(all));
  }));
  nodes.command("add").description("add nodes and confirm their host keys").argument("<node...>", "[user@]host[:port]")
    .option("--user <name>", "user for nodes that name none").option("--port <port>", "SSH port", whole).option("--name <name>", "shown name (one node)")
    .option("--key <file>", "private key (its passphrase is asked for on the terminal); default: the SSH agent")
    .option("--password-stdin", "read the password from the first line of standard input").option("--jump <host>", "jump host, [user@]host[:port]; repeat for a chain", collectText)
    .option("--data-address <address>", "address on the data network").option("--accept-fingerprint <SHA256:…>", "confirm exactly this host key (one node)")
    .action(withHost(async (host, targets: string[], options: AddOptions & { acceptFingerprint?: string }) => {
      if (targets.length > 1 && (options.name !== undefined || options.acceptFingerprint !== undefined)) throw new UsageError("--name and --accept-fingerprint are for one node.");
      let password: Promise<string> | undefined;
      let passphrase: Promise<string | undefined> | undefined;
      const secrets = { password: () => (password ??= firstLine(io)), passphrase: (keyPath: string) => (passphrase ??= passphraseOf(keyPath, io)) };
      const inputs = await Promise.all(targets.map((target) => inputOf(target, options, secrets)));
      const added: NodeView[] = [];
      for (const input of inputs) added.push(await host.request("nodes.add", input));
      return confirmAll(host, added, options.acceptFingerprint);
    }));
  nodes.command("trust").description("confirm a node's host key").argument("<node>").option("--accept-fingerprint <SHA256:…>", "exactly this key")
    .action(withHost(async (host, name: string, options: { acceptFingerprint?: string }) => confirmAll(host, await pickNodes(host, [name]), options.acceptFingerprint)));
  nodes.command("import").description("hosts of ~/.ssh/config: shows them, adds those that are named").argument("[alias...]").option("--all", "add every one")
    .action(withHost(async (host, aliases: string[], options: { all?: boolean }) => {
      const found = await host.request("nodes.importable", {});
      const chosen = options.all ? found : found.filter((entry) => aliases.includes(entry.alias));
      const unknown = aliases.filter((alias) => !found.some((entry) => entry.alias === alias));
      if (unknown.length > 0) throw new UsageError(`~/.ssh/config has no host ${unknown.map(clean).join(", ")}.`);
      if (chosen.length === 0) {
        if (globals().json) json(found);
        else out(table(["ALIAS", "ADDRESS", "JUMP", "NOT APPLIED"], found.map((entry) => [entry.alias, `${entry.input.user}@${entry.input.host}:${entry.input.port ?? 22}`, (entry.input.jump ?? []).join(" > "), entry.notApplied.join(", ")])));
        return;
      }
      const added: NodeView[] = [];
      for (const entry of chosen) added.push(await host.request("nodes.add", entry.input));
      return confirmAll(host, added, undefined);
    }));
  nodes.command("unlock").description("break the lock of another console on a node, after showing who holds it").argument("<node>").option("--held-by <token>", "exactly this hold, as shown")
    .action(withHost(async (host, name: string, options: { heldBy?: string }) => {
      const [node] = await pickNodes(host, [name]);
      await provideSecrets(host, [node!], io);
      const outcome = await unlock(host, node!, io, options.heldBy);
      if (globals().json) json(outcome);
      else out(outcome.holder === null ? `Nobody holds ${node!.name}.` : outcome.broken ? `The lock of ${clean(outcome.holder.owner)} on ${node!.name} is broken.` : `Another one holds ${node!.name} by now: look again.`);
      return outcome.holder === null || outcome.broken ? EXIT.ok : EXIT.failed;
    }));
  nodes.command("rejoin").description("read a member's addresses and GIDs anew and tell the cluster").argument("<node...>").action(withHost(async (host, names: string[]) => {
    const chosen = await pickNodes(host, names);
    await provideSecrets(host, chosen, io);
    for (const node of chosen) {
      const { detail } = await host.request("nodes.rejoin", { nodeId: node.id }, context.signal);
      if (globals().json) json({ nodeId: node.id, detail });
      else out(`${node.name}: ${clean(detail)}`);
    }
  }));
  nodes.command("forget").description("take nodes off the list; nothing is changed on them").argument("<node...>").action(withHost(async (host, names: string[]) => {
    const chosen = await pickNodes(host, names);
    await host.request("nodes.forget", { nodeIds: chosen.map((node) => node.id) });
    if (globals().json) json(chosen.map((node) => node.id));
  }));

  async function confirmAll(host: Host, added: readonly NodeView[], accepted: string | undefined): Promise<number> {
    const results: NodeView[] = [];
    let worst: number = EXIT.ok;
    for (const node of added) {
      try {
        results.push(await confirmHostKey(host, node, io, accepted));
      } catch (error) {
        results.push((await host.request("nodes.list", {})).find((candidate) => candidate.id === node.id) ?? node);
        note(error instanceof NeedsConfirmation ? error.message : errorText(viewOf(error)));
        worst = error instanceof NeedsConfirmation ? EXIT.needsConfirmation : EXIT.failed;
      }
    }
    if (globals().json) json(results);
    else out(nodesText(results));
    return worst;
  }

  // ---- operations -----------------------------------------------------------------------------------------------------------
  async function operate(host: Host, method: "nodes.bringUp" | "nodes.takeDown", names: string[]): Promise<number> {
    const chosen = await pickNodes(host, names);
    await provideSecrets(host, chosen, io);
    const { operationId } = await host.request(method, { nodeIds: chosen.map((node) => node.id) });
    const operation = await watch(host, operationId, chosen, true);
    if (globals().json) json(operation);
    return operation.state === "succeeded" ? EXIT.ok : EXIT.failed;
  }
  /** Follows an operation to its end; Ctrl-C cancels it and waits until it has rolled back. */
  async function watch(host: Host, operationId: string, chosen: readonly NodeView[], show: boolean): Promise<OperationView> {
    const names = new Map(chosen.map((node) => [node.id, node.name]));
    const printer = new OperationPrinter((nodeId) => names.get(nodeId) ?? nodeId);
    const onChange = (operation: OperationView): void => {
      if (show && !globals().json) for (const line of printer.lines(operation)) out(line);
    };
    try {
      return await followOperation(host, operationId, onChange, context.signal);
    } catch (error) {
      if (!context.signal.aborted) throw error;
      note("Cancelling; what was begun is rolled back.");
      await host.request("operations.cancel", { operationId });
      await followOperation(host, operationId, onChange, new AbortController().signal);
      throw error;
    }
  }
  program.command("up").description("bring nodes up: driver, runtime, daemon (all nodes where none is named)").argument("[node...]")
    .action(withHost((host, names: string[]) => operate(host, "nodes.bringUp", names)));
  program.command("down").description("take driver, runtime and daemon off again").argument("[node...]").option("--all", "all nodes")
    .action(withHost((host, names: string[], options: { all?: boolean }) => {
      if (names.length === 0 && !options.all) throw new UsageError("Name the nodes to take down, or give --all.");
      return operate(host, "nodes.takeDown", names);
    }));
  program.command("status").description("connect to the nodes and show how they stand").argument("[node...]").action(withHost(async (host, names: string[]) => {
    const chosen = await pickNodes(host, names);
    await provideSecrets(host, chosen, io);
    const fresh = await Promise.all(chosen.map((node) => host.request("nodes.connect", { nodeId: node.id }, context.signal).catch((error: unknown) => {
      const view = viewOf(error);
      if (view.code === "H104") throw error;
      return { ...node, error: view };
    })));
    if (globals().json) json(fresh);
    else {
      out(statusText(fresh));
      for (const node of fresh) if (node.error) note(`${node.name}: ${errorText(node.error)}`);
    }
    return fresh.every((node) => node.error === null) ? EXIT.ok : EXIT.failed;
  }));

  // ---- runs -----------------------------------------------------------------------------------------------------------------
  program.command("run").description("run a collective and print the table of nccl-tests").addArgument(program.createArgument("<collective>").choices(Collective.options))
    .option("--nodes <list>", "names, separated by commas; all that are up where absent", list)
    .addOption(new Option("-T, --transport <name>").choices(RunTransport.options).default("auto")).option("-b, --min-bytes <size>", "smallest size", parseBytes, 8)
    .option("-e, --max-bytes <size>", "largest size", parseBytes, 16 * 1024 ** 2).option("-f, --step-factor <n>", "factor between sizes", whole, 2)
    .option("-n, --iterations <n>", "timed iterations", whole, 20).option("-w, --warmup <n>", "iterations before", whole, 5)
    .addOption(new Option("-d, --datatype <name>").choices(DataType.options).default("float32")).addOption(new Option("-o, --redop <name>").choices(RedOp.options).default("sum"))
    .option("-a, --algorithm <name>", "schedule", "auto").option("-r, --root <rank>", "root of broadcast, reduce, scatter and gather", whole, 0).option("-g, --ranks-per-node <n>", "ranks on each node", whole, 1).option("--no-check", "do not check the results")
    .option("--timeout <ms>", "of one operation", whole, 30_000).option("--csv", "print CSV at the end instead of the table")
    .action(withHost(async (host, collective: Collective, options: RunOptions) => {
      const all = await pickNodes(host, options.nodes ?? []);
      await provideSecrets(host, all, io);
      // A fresh process has no connection yet: dial before asking who is up.
      const connected = await Promise.all(all.map((node) => host.request("nodes.connect", { nodeId: node.id }, context.signal).catch(() => node)));
      const chosen = options.nodes ? connected : connected.filter((node) => node.phase === "up" || node.phase === "degraded");
      if (chosen.length === 0) throw new UsageError("No node is up: run stepccl up first.");
      const run = await host.request("runs.start", {
        collective, nodeIds: chosen.map((node) => node.id), transport: options.transport, minBytes: options.minBytes, maxBytes: options.maxBytes, stepFactor: options.stepFactor,
        iterations: options.iterations, warmup: options.warmup, datatype: options.datatype, redop: options.redop, root: options.root, algorithm: options.algorithm, ranksPerNode: options.ranksPerNode,
        check: options.check, timeoutMs: options.timeout,
      }, context.signal);
      return followToEnd(host, run.id, chosen, options.csv === true);
    }));

  async function followToEnd(host: Host, runId: string, chosen: readonly NodeView[], csv: boolean): Promise<number> {
    const names = new Map(chosen.map((node) => [node.id, node.name]));
    const asJson = globals().json === true;
    let printed = 0;
    if (!asJson && !csv) out(RUN_HEADER);
    try {
      const run = await followRun(host, runId, (view) => {
        for (const row of view.rows.slice(printed)) {
          if (asJson) out(JSON.stringify({ event: "row", runId, ...row }));
          else if (!csv) out(rowText(row));
        }
        printed = Math.max(printed, view.rows.length);
      }, context.signal);
      if (asJson) out(JSON.stringify({ event: "end", runId, run }));
      else if (csv) io.stdout.write((await host.request("runs.export", { runId, format: "csv" })).text);
      else out(runEndText(run, (nodeId) => names.get(nodeId) ?? nodeId));
      if (csv && run.error) note(errorText(run.error));
      if ((run.wrongTotal ?? 0) > 0) return EXIT.wrongData;
      return run.state === "succeeded" ? EXIT.ok : EXIT.failed;
    } catch (error) {
      if (context.signal.aborted) await host.request("runs.stop", { runId });
      throw error;
    }
  }

  // ---- diagnosis ------------------------------------------------------------------------------------------------------------
  const common = { io, signal: context.signal, isJson: () => globals().json === true, out, note, withHost, exit: EXIT };
  addDiagnoseCommands(program, common);
  addMemoryCommand(program, common);

  program.command("console").description("open the console").option("--port <port>", "of the browser shell; a free one where absent", whole)
    .addOption(new Option("--shell <shell>", "which one; the desktop's where Electron is installed").choices(["browser", "desktop"])).option("--open", "open a window on it")
    .action(async (options: { port?: number; open?: boolean; shell?: "browser" | "desktop" }) => {
      const { dataDir, bundle } = globals();
      status = await context.console({ ...options, ...(dataDir === undefined ? {} : { dataDir }), ...(bundle === undefined ? {} : { bundleDir: bundle }) });
    });

  try {
    await program.parseAsync([...argv], { from: "user" });
    return status;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (error instanceof UsageError) {
      note(error.message);
      return EXIT.usage;
    }
    if (error instanceof NeedsConfirmation) {
      note(error.message);
      return EXIT.needsConfirmation;
    }
    if (context.signal.aborted) return EXIT.interrupted;
    const view = viewOf(error);
    if (globals().json) json({ error: view });
    note(errorText(view));
    return EXIT.failed;
  }
}

interface RunOptions {
  nodes?: string[];
  transport: (typeof RunTransport.options)[number];
  minBytes: number;
  maxBytes: number;
  stepFactor: number;
  iterations: number;
  warmup: number;
  datatype: (typeof DataType.options)[number];
  redop: (typeof RedOp.options)[number];
  algorithm: string;
  root: number;
  ranksPerNode: number;
  check: boolean;
  timeout: number;
  csv?: boolean;
}

const viewOf = (error: unknown): ErrorView => (error instanceof ConsoleError ? error.view : toErrorView(error));
