import { open, stat, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { InvalidArgumentError, Option, type Command } from "commander";
import { GuideId, PairTestKind, PIECE_BYTES, riskClassOf, type InputFile, type MendRunView, type NodeView } from "../contract/index.js";
import type { Host } from "../gate.js";
import { pickNodes, provideSecrets, UsageError } from "./cli-nodes.js";
import { diagnosisText, errorText, findingsText } from "./cli-print.js";
import { diagnosesOf, followEnded, followOperation } from "./cli-watch.js";
import { ask, canAsk, clean, table, type Io } from "./terminal.js";

/** What the commands need of the command line that they hang on. */
export interface DiagnoseCommands {
  io: Io;
  signal: AbortSignal;
  isJson(): boolean;
  out(text: string): void;
  note(text: string): void;
  withHost<A extends unknown[]>(work: (host: Host, ...args: A) => Promise<number | void>): (...args: A) => Promise<void>;
  exit: { ok: number; failed: number; needsConfirmation: number };
}

/** Sends a file of this machine to the host, in pieces. */
async function upload(host: Host, path: string, signal: AbortSignal): Promise<InputFile> {
  const { size } = await stat(path);
  const { uploadId } = await host.request("uploads.begin", { name: basename(path).slice(0, 255), sizeBytes: size }, signal);
  const file = await open(path, "r");
  try {
    const buffer = Buffer.alloc(PIECE_BYTES);
    for (let offset = 0; offset < size;) {
      const { bytesRead } = await file.read(buffer, 0, PIECE_BYTES, offset);
      if (bytesRead === 0) throw new UsageError(`${path} became shorter while it was read.`);
      await host.request("uploads.append", { uploadId, offset, base64: buffer.subarray(0, bytesRead).toString("base64") }, signal);
      offset += bytesRead;
    }
  } finally {
    await file.close();
  }
  return { kind: "upload", uploadId };
}

async function uploadAll(host: Host, paths: readonly string[], signal: AbortSignal): Promise<InputFile[]> {
  const files: InputFile[] = [];
  for (const path of paths) files.push(await upload(host, path, signal).catch((error: unknown) => { throw (error as NodeJS.ErrnoException).code === "ENOENT" ? new UsageError(`There is no file ${path}.`) : error; }));
  return files;
}

/** Adds diagnose, mend, guide, pairs, hangs and support. */
export function addDiagnoseCommands(program: Command, c: DiagnoseCommands): void {
  const json = (value: unknown): void => c.out(JSON.stringify(value, null, 2));
  const chosenNodes = async (host: Host, names: readonly string[]): Promise<NodeView[]> => {
    const chosen = await pickNodes(host, names);
    await provideSecrets(host, chosen, c.io);
    return chosen;
  };
  const nameOf = (chosen: readonly NodeView[]) => (nodeId: string): string => chosen.find((node) => node.id === nodeId)?.name ?? nodeId;

  program.command("diagnose").description("look for faults: evidence, cause, mend").argument("[node...]").option("--file <path>", "judge files of another machine instead (again for more)", (path: string, before: string[] = []) => [...before, path])
    .action(c.withHost(async (host, names: string[], options: { file?: string[] }) => {
      if (options.file) {
        const view = await host.request("diagnose.files", { files: await uploadAll(host, options.file, c.signal) }, c.signal);
        if (c.isJson()) json(view);
        else c.out([`${view.lines} lines: ${view.verdict.replaceAll("_", " ")}`, ...findingsText(view.findings, null)].join("\n"));
        return c.exit.ok;
      }
      const chosen = await chosenNodes(host, names);
      const nodeIds = chosen.map((node) => node.id);
      const { operationId } = await host.request("diagnose.start", { nodeIds });
      const operation = await cancellable(c, () => followOperation(host, operationId, () => {}, c.signal), () => host.request("operations.cancel", { operationId }));
      const diagnoses = await diagnosesOf(host, nodeIds);
      if (c.isJson()) json(diagnoses);
      else for (const diagnosis of diagnoses) c.out(diagnosisText(diagnosis, nameOf(chosen)(diagnosis.nodeId)));
      return operation.state === "succeeded" ? c.exit.ok : c.exit.failed;
    }));

  program.command("mend").description("apply a mend of the newest diagnosis, then look again").argument("<node>").argument("<finding>").argument("<mend...>")
    .option("--yes", "consent to the commands, without being asked").option("--confirm <name>", "second consent for what destroys something: the node's name")
    .action(c.withHost(async (host, name: string, findingId: string, mendIds: string[], options: { yes?: boolean; confirm?: string }) => {
      const [node] = await chosenNodes(host, [name]);
      const offer = await host.request("mends.offer", { nodeId: node!.id, findingId, mendIds }, c.signal);
      for (const command of offer.commands) c.note(`  $ ${clean(command.command)}\n    ${clean(command.explanation.en)} (${riskClassOf(command.risk)})`);
      if (!options.yes) {
        if (!canAsk(c.io)) { c.note("Give --yes to consent to these commands."); return c.exit.needsConfirmation; }
        if ((await ask(c.io, `Type "yes" to run this as root on ${clean(node!.name)}: `)) !== "yes") return c.exit.needsConfirmation;
      }
      let second = options.confirm;
      if (offer.secondConsent !== null && second === undefined) {
        if (!canAsk(c.io)) { c.note(`It destroys something: give --confirm ${clean(offer.secondConsent)}.`); return c.exit.needsConfirmation; }
        second = await ask(c.io, `It destroys something. Type ${clean(offer.secondConsent)} to go on: `);
      }
      const run = await host.request("mends.apply", { offerId: offer.offerId, commands: offer.commands.map((x) => x.command), ...(second === undefined ? {} : { secondConsent: second }) }, c.signal);
      const ended = await cancellable(c, () => followEnded(host, "mends", run.id, () => {}, c.signal), () => host.request("mends.cancel", { mendRunId: run.id }));
      if (c.isJson()) json(ended);
      else c.out(mendText(ended));
      return ended.state === "mended" ? c.exit.ok : c.exit.failed;
    }));

  program.command("guide").description(`walk through a symptom: ${GuideId.options.join(", ")}`).addArgument(program.createArgument("<guide>").choices(GuideId.options)).argument("[node...]")
    .action(c.withHost(async (host, guideId: GuideId, names: string[]) => {
      const chosen = await chosenNodes(host, names);
      const run = await host.request("guides.start", { guideId, nodeIds: await connected(host, chosen, c) }, c.signal);
      const ended = await cancellable(c, () => followEnded(host, "guides", run.id, () => {}, c.signal), () => host.request("guides.cancel", { guideRunId: run.id }));
      if (c.isJson()) json(ended);
      else {
        for (const step of ended.steps) c.out(`  [${step.state}] ${step.nodeId === null ? "" : `${nameOf(chosen)(step.nodeId)}: `}${step.question.en}${step.answer ? ` ${clean(step.answer.en)}` : ""}`);
        for (const path of ended.paths) c.out(`  ${path.elements.map((e, i) => `${i === path.firstBroken ? "!" : ""}${clean(e.label)} [${e.state}]`).join(" > ")}`);
        if (ended.conclusion) c.out([clean(ended.conclusion.text.en), ...ended.conclusion.cards.flatMap((card) => [`${nameOf(chosen)(card.nodeId)}:`, ...findingsText([card.finding], nameOf(chosen)(card.nodeId))])].join("\n"));
        if (ended.error) c.note(errorText(ended.error));
      }
      return ended.state === "done" ? c.exit.ok : c.exit.failed;
    }));

  program.command("pairs").description("ping between nodes, by verbs and by StepCCL's transports").argument("[node...]")
    .addOption(new Option("--kind <kind>", `which pings, ${PairTestKind.options.join(", ")} (again for more; default: tcp and verbs)`).argParser<PairTestKind[]>((text, before = []) => {
      const kind = PairTestKind.safeParse(text);
      if (!kind.success) throw new InvalidArgumentError(`It is one of ${PairTestKind.options.join(", ")}.`);
      return [...before, kind.data];
    })).addOption(new Option("--sampling <how>").choices(["all", "ring", "random"]).default("all"))
    .action(c.withHost(async (host, names: string[], options: { kind?: PairTestKind[]; sampling: "all" | "ring" | "random" }) => {
      const kinds: PairTestKind[] = options.kind ?? ["tcp", "verbs"];
      const chosen = await chosenNodes(host, names);
      const test = await host.request("pairs.start", { nodeIds: await connected(host, chosen, c), kinds, sampling: options.sampling }, c.signal);
      const ended = await cancellable(c, () => followEnded(host, "pairs", test.id, () => {}, c.signal), () => host.request("pairs.cancel", { pairTestId: test.id }));
      const name = nameOf(chosen);
      if (c.isJson()) json(ended);
      else {
        c.out(table(["FROM", "TO", "PING", "STATE", "us", "GB/s", ""], ended.results.map((r) => [name(r.from), name(r.to), r.kind, r.state, r.latencyUs?.toFixed(1) ?? null, r.bandwidthGBps?.toPrecision(3) ?? null, clean(r.text?.en ?? r.error?.message ?? "")])));
        for (const s of ended.suspects) c.out(`suspect: ${name(s.nodeId)}, in ${s.failed} of its ${s.of} pings`);
      }
      return ended.results.every((r) => r.state === "ok") ? c.exit.ok : c.exit.failed;
    }));

  program.command("hangs").description("merge the flight recorders of all ranks and name who holds the others up").argument("[node...]").option("--file <path>", "recordings in files instead (again for more)", (path: string, before: string[] = []) => [...before, path])
    .action(c.withHost(async (host, names: string[], options: { file?: string[] }) => {
      const view = options.file
        ? await host.request("hangs.files", { files: await uploadAll(host, options.file, c.signal) }, c.signal)
        : await host.request("hangs.check", { nodeIds: await connected(host, await chosenNodes(host, names), c) }, c.signal);
      if (c.isJson()) json(view);
      else {
        for (const group of view.groups) c.out(`${clean(group.job)} ${clean(group.communicator)} [${group.verdict}] ${clean(group.text.en)}`);
        if (view.groups.length === 0) c.out("No recording was found.");
      }
      for (const unread of view.unread) c.note(`${clean(unread.what)}: ${errorText(unread.error)}`);
      return view.groups.some((g) => g.verdict === "hang" || g.verdict === "mismatch" || g.verdict === "failed") ? c.exit.failed : c.exit.ok;
    }));

  program.command("support").description("pack what is known of nodes, with stand-ins for names and addresses").argument("[node...]").requiredOption("-o, --output <file>", "where to write the archive")
    .action(c.withHost(async (host, names: string[], options: { output: string }) => {
      const chosen = names.length > 0 ? await pickNodes(host, names) : [];
      const bundle = await host.request("support.prepare", chosen.length > 0 ? { nodeIds: chosen.map((node) => node.id) } : {}, c.signal);
      const pieces: Buffer[] = [];
      for (let at = 0; at < bundle.sizeBytes;) {
        const piece = await host.request("support.read", { bundleId: bundle.bundleId, offset: at }, c.signal);
        pieces.push(Buffer.from(piece.base64, "base64"));
        at = piece.nextOffset;
      }
      await writeFile(options.output, Buffer.concat(pieces), { mode: 0o600, flag: "wx" }).catch((error: unknown) => { throw (error as NodeJS.ErrnoException).code === "EEXIST" ? new UsageError(`${options.output} exists already.`) : error; });
      if (c.isJson()) json(bundle);
      else c.out(`${options.output}: ${bundle.files.length} files, ${bundle.sizeBytes} bytes; replaced ${bundle.replaced.map((r) => `${r.names} ${r.kind}`).join(", ") || "nothing"}`);
    }));
}

/** A fresh process has no connection and knows no facts yet: dials. Who does not answer is asked all the same, and said so. */
async function connected(host: Host, chosen: readonly NodeView[], c: DiagnoseCommands): Promise<string[]> {
  const views = await Promise.all(chosen.map((node) => host.request("nodes.connect", { nodeId: node.id }, c.signal).catch((error: unknown) => { if (c.signal.aborted) throw error; return node; })));
  return views.map((node) => node.id);
}

async function cancellable<T>(c: DiagnoseCommands, wait: () => Promise<T>, cancel: () => Promise<unknown>): Promise<T> {
  try {
    return await wait();
  } catch (error) {
    if (c.signal.aborted) await cancel();
    throw error;
  }
}

function mendText(run: MendRunView): string {
  const lines = run.steps.map((step) => `  [${step.state}] $ ${clean(step.command)}${step.output.trim() === "" ? "" : `\n${step.output.trimEnd().split("\n").map((l) => `      ${clean(l)}`).join("\n")}`}`);
  lines.push(run.state === "mended" ? `mended: ${run.class} is gone.` : run.state === "not_mended" ? `not mended: ${run.class} is still there.` : `${run.state.replace("_", " ")}${run.error ? `: ${errorText(run.error)}` : ""}`);
  for (const reading of run.after?.readings ?? []) lines.push(...reading.text.trimEnd().split("\n").slice(-4).map((l) => `  > ${clean(reading.source)}: ${clean(l)}`));
  return lines.join("\n");
}
