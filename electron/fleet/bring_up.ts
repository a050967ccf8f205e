import { ConsoleError } from "../contract/index.js";
import { shellQuote } from "../ssh/index.js";
import type { ExecResult } from "../ssh/types.js";
import type { Bundle } from "./bundle.js";
import { NodeLock } from "./lock.js";
import type { NodeTask } from "./operations.js";
import { judgePreflight, type Preflight } from "./preflight.js";
import { runScript, type Fields, type ScriptOptions } from "./remote.js";
import { DRIVER_BUILD, DRIVER_LOAD } from "./scripts/driver.js";
import { CHECK_RELEASE, INSTALL, STAGE, UNPACK, UNSTAGE, withCheck } from "./scripts/install.js";
import { PREFLIGHT } from "./scripts/preflight.js";
import { SERVICE_START } from "./scripts/service.js";
import { TX_BEGIN, TX_COMMIT, TX_ROLLBACK } from "./scripts/transaction.js";
import type { NodeTransport } from "./transport.js";

const ROOT = "/opt/stepccl";
const BUILD_TIMEOUT_MS = 600_000;
const SLOW_TIMEOUT_MS = 180_000;
/** Registered memory is locked memory: without this, RDMA and the driver end at 8 MiB. */
const LIMITS = "# StepCCL: registered memory is locked memory.\n@stepccl soft memlock unlimited\n@stepccl hard memlock unlimited\n";

export interface BringUpContext {
  readonly session: NodeTransport;
  readonly host: string;
  readonly bundle: Bundle;
  readonly consoleId: string;
  /** Opens the daemon's stream and reads its facts; the text is shown with the step. */
  readonly link: (signal: AbortSignal) => Promise<string>;
  /** Makes the node a member; what it did is undone by `leave`. */
  readonly join: (signal: AbortSignal) => Promise<string>;
  readonly leave: () => Promise<void>;
  readonly onPreflight: (found: Preflight) => void;
}

/**
 * Brings one node up as one transaction: everything ends as it should be, or the node is what it was before. Safe to repeat;
 * what is there already is left alone. Cancelling takes effect between two acts, never in the middle of one that changes the
 * node.
 * @throws ConsoleError the cause; the roll-back has been tried by then and is noted with the steps
 */
export async function bringUp(context: BringUpContext, task: NodeTask): Promise<void> {
  const { session, host } = context;
  await task.step("connect", async (report) => {
    await session.connect(task.signal);
    report.detail(`connected to ${host}`);
  });
  const work = new BringUp(context, task);
  let lock: NodeLock | null = null;
  let begun = false;
  try {
    await task.step("preflight", async (report) => {
      const found = await work.preflight();
      lock = await NodeLock.take(session, host, context.consoleId);
      work.lock = lock;
      begun = true;
      const recovered = await work.begin();
      report.detail(recovered ? `${found.summary}; an earlier bring-up that was cut off has been undone` : found.summary);
    });
    await task.step("upload", (report) => work.upload(report.progress, report.detail));
    await task.step("verify", (report) => work.verify(report.detail));
    await task.step("install", (report) => work.install(report.detail));
    await task.step("driver", (report) => work.driver(report.detail));
    await task.step("service", (report) => work.service(report.detail));
    await task.step("link", async (report) => report.detail(await context.link(task.signal)));
    await task.step("join", async (report) => report.detail(await context.join(task.signal)));
    await work.commit();
  } catch (error) {
    if (begun) {
      const problem = await work.rollBack();
      task.rolledBack(["upload", "verify", "install", "driver", "service", "link", "join"], problem);
    }
    throw error;
  } finally {
    await work.unstage();
    // A lock that cannot be released (the link is gone) ends by its missing heartbeat.
    await (lock as NodeLock | null)?.release().catch(() => undefined);
  }
}

class BringUp {
  /** Asked before each act: another console may have broken it. */
  lock: NodeLock | null = null;
  #found: Preflight | null = null;
  #staged: string | null = null;
  #present = false;
  readonly #context: BringUpContext;
  readonly #task: NodeTask;

  constructor(context: BringUpContext, task: NodeTask) {
    this.#context = context;
    this.#task = task;
  }

  async preflight(): Promise<Preflight> {
    const { session, host, bundle, onPreflight } = this.#context;
    const before = Date.now();
    const fields = await runScript(session, host, "preflight", PREFLIGHT, [], { signal: this.#task.signal });
    const uncertaintyMs = (Date.now() - before) / 2;
    const found = judgePreflight(fields, host, bundle, { nowMs: before + uncertaintyMs, uncertaintyMs });
    if (found.probeSocket !== null && !(await session.canForwardTo(found.probeSocket, this.#task.signal))) {
      this.#found = { ...found, summary: `${found.summary}, no stream-local forwarding (the proxy is used)` };
    } else this.#found = found;
    onPreflight(this.#found);
    return this.#found;
  }

  /** True when an earlier transaction had to be undone. */
  async begin(): Promise<boolean> {
    const { bundle } = this.#context;
    const fields = await this.#root("opening the transaction", [bundle.release], withCheck(TX_BEGIN + CHECK_RELEASE, bundle.files));
    if (fields.has("failed")) throw this.#failed("opening the transaction", fields);
    this.#present = fields.one("whole") === "yes";
    return fields.one("recovered") === "yes";
  }

  async upload(progress: (done: number, total: number, unit: "bytes") => void, detail: (text: string) => void): Promise<"skipped" | void> {
    const { session, host, bundle } = this.#context;
    if (this.#present) {
      detail(`release ${bundle.release} is on the node already`);
      return "skipped";
    }
    const dir = (await runScript(session, host, "making a folder", STAGE, [], { signal: this.#task.signal })).one("dir");
    if (!dir || !/^\/var\/tmp\/stepccl-upload\.[A-Za-z0-9]{6,}$/.test(dir)) throw ConsoleError.of("H310", { command: "mktemp", host, status: 1, detail: "it gave no folder" });
    this.#staged = dir;
    progress(0, bundle.sizeBytes, "bytes");
    const source = { path: bundle.archivePath, sizeBytes: bundle.sizeBytes, sha256: bundle.sha256 };
    await session.upload(source, `${dir}/bundle.tar.gz`, 0o600, (done) => progress(done, bundle.sizeBytes, "bytes"), this.#task.signal);
    detail(`${bundle.archive}, ${bundle.sizeBytes} bytes`);
  }

  async verify(detail: (text: string) => void): Promise<"skipped" | void> {
    const { host, bundle } = this.#context;
    if (this.#staged === null) {
      detail(`all ${bundle.files.length} files of ${bundle.release} have their checksums`);
      return "skipped";
    }
    const archive = `${this.#staged}/bundle.tar.gz`;
    const args = [archive, bundle.sha256, bundle.release, String(bundle.files.length), String(bundle.unpackedBytes + 4 * 1024 ** 2)];
    const fields = await this.#root("unpacking the bundle", args, withCheck(UNPACK, bundle.files));
    const failed = fields.one("failed");
    const what = fields.one("detail") ?? "";
    if (failed === "sha256") throw ConsoleError.of("H308", { path: archive, host, found: what, expected: bundle.sha256 });
    if (failed === "disk" || (failed !== null && /no space left/i.test(what))) {
      throw ConsoleError.of("H305", { host, path: ROOT, available: /^\d+$/.test(what) ? Number(what) : 0, needed: bundle.unpackedBytes });
    }
    if (failed === "tree") throw ConsoleError.of("H308", { path: `${ROOT}/releases/${bundle.release}`, host, found: what, expected: "the files of the manifest" });
    if (failed !== null) throw this.#failed("unpacking the bundle", fields);
    detail(`${bundle.files.length} files with their checksums`);
  }

  async install(detail: (text: string) => void): Promise<void> {
    const { session, bundle } = this.#context;
    const user = this.#preflight.user;
    const fields = await this.#root("installing", [bundle.release, user, LIMITS], INSTALL);
    if (fields.has("failed")) throw this.#failed("installing", fields);
    const joined = fields.one("membership") === "new";
    if (joined) {
      // Groups are read at login: the connection that stands would not reach the daemon's socket.
      session.close();
      await session.connect(this.#task.signal);
    }
    detail(`${ROOT}/current is ${bundle.release}${joined ? `; ${user} is in group stepccl now` : ""}`);
  }

  async driver(detail: (text: string) => void): Promise<void> {
    const { session, host, bundle } = this.#context;
    const { kernel } = this.#preflight;
    let module = `${ROOT}/releases/${bundle.release}/${bundle.kernels[kernel] ?? ""}`;
    let built = "";
    if (!(kernel in bundle.kernels)) {
      const fields = await this.#root("building the module", [bundle.release, kernel], DRIVER_BUILD, BUILD_TIMEOUT_MS);
      const path = fields.one("built");
      if (path === null) throw ConsoleError.of("H306", { host, release: kernel, detail: fields.one("detail") ?? "the build gave no module" });
      module = path;
      built = ", built on the node";
    }
    const fields = await this.#root("loading the module", [module, kernel], DRIVER_LOAD);
    const what = fields.one("detail") ?? "";
    switch (fields.one("failed")) {
      case null: break;
      case "vermagic": throw ConsoleError.of("H306", { host, release: kernel, detail: `the module is for ${what || "no kernel"}` });
      case "in_use": throw ConsoleError.of("H311", { host, holders: what });
      case "modprobe": throw ConsoleError.of("H307", { host, detail: what });
      case "device": throw ConsoleError.of("H315", { host, path: "/dev/dma_device", found: what });
      default: throw this.#failed("loading the module", fields);
    }
    if (bundle.has("bin/stepccl-dma")) {
      const tool = `${ROOT}/current/bin/stepccl-dma selftest`;
      const result: ExecResult = await session.exec(`exec ${tool.split(" ").map(shellQuote).join(" ")}`, { timeoutMs: 60_000, signal: this.#task.signal });
      if (result.status !== 0) throw ConsoleError.of("H310", { command: tool, host, status: result.status ?? "signal", detail: (result.stderr.trim() || result.stdout.trim()).slice(-300) });
    }
    const how = { kept: "was loaded already", swapped: "replaced the loaded one", new: "is loaded" }[fields.one("loaded") ?? ""] ?? "is loaded";
    detail(`dma_engine ${fields.one("version") ?? ""} ${how}${built}; /dev/dma_device is ${fields.one("device") ?? "there"}`);
  }

  async service(detail: (text: string) => void): Promise<void> {
    const fields = await this.#root("starting stepccld", [this.#context.bundle.release], SERVICE_START);
    if (fields.has("failed")) throw ConsoleError.of("H309", { host: this.#context.host, detail: fields.one("detail") ?? "no word in its journal" });
    detail(`stepccld ${fields.one("service") === "kept" ? "runs already" : "started"}, pid ${fields.one("pid") ?? "unknown"}`);
  }

  /** After this nothing is undone any more. */
  async commit(): Promise<void> {
    if (this.#task.signal.aborted) throw ConsoleError.of("H104");
    const fields = await this.#root("closing the transaction", [], TX_COMMIT);
    if (fields.one("committed") !== "yes") throw this.#failed("closing the transaction", fields);
  }

  /** Gives what could not be undone, null when the node is what it was. Not under the operation's signal. */
  async rollBack(): Promise<string | null> {
    const { session, host } = this.#context;
    try {
      await this.#context.leave();
      // The journal is the other console's now: its bring-up undoes it before it begins.
      if (this.lock?.lost) return "another console holds the node now, and undoes it with its next bring-up";
      const fields = await runScript(session, host, "rolling back", TX_ROLLBACK, [], { root: true, timeoutMs: SLOW_TIMEOUT_MS });
      const failed = fields.all("undo_failed");
      return fields.one("undone") === "yes" && failed.length === 0 ? null : `not undone: ${failed.join(", ") || "the journal"}`;
    } catch (error) {
      return `the roll-back could not be made now (${error instanceof Error ? error.message : String(error)}); the next bring-up makes it first`;
    }
  }

  async unstage(): Promise<void> {
    if (this.#staged === null) return;
    // When the link is gone the upload stays in /var/tmp, where the node cleans by age.
    await runScript(this.#context.session, this.#context.host, "removing the upload", UNSTAGE, [this.#staged]).catch(() => undefined);
  }

  get #preflight(): Preflight {
    if (!this.#found) throw new Error("preflight has not run");
    return this.#found;
  }

  /** As root and to its end: an abort takes effect before the next one, never in the middle. */
  async #root(name: string, args: readonly string[], script: string, timeoutMs = SLOW_TIMEOUT_MS): Promise<Fields> {
    if (this.#task.signal.aborted) throw ConsoleError.of("H104");
    await this.lock?.assertHeld();
    const options: ScriptOptions = { root: true, timeoutMs };
    return await runScript(this.#context.session, this.#context.host, name, script, args, options);
  }

  #failed(what: string, fields: Fields): ConsoleError {
    return ConsoleError.of("H310", { command: what, host: this.#context.host, status: fields.one("failed") ?? "?", detail: fields.one("detail") ?? "no detail" });
  }
}
