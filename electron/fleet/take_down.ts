import { ConsoleError } from "../contract/index.js";
import { NodeLock } from "./lock.js";
import type { NodeTask } from "./operations.js";
import { runScript, type Fields } from "./remote.js";
import { DRIVER_HOLDERS, DRIVER_REMOVE } from "./scripts/driver.js";
import { FILES_REMOVE, SERVICE_REMOVE } from "./scripts/service.js";
import { TX_ROLLBACK } from "./scripts/transaction.js";
import type { NodeTransport } from "./transport.js";

/** Steps of a removal, in order. */
export const REMOVE_STEPS = ["connect", "leave", "stop", "unload", "remove"] as const;

export interface TakeDownContext {
  readonly session: NodeTransport;
  readonly host: string;
  readonly consoleId: string;
  /** Takes the node out of the cluster and ends the link to its daemon. */
  readonly leave: () => Promise<void>;
}

/**
 * Takes off everything that bring-ups put on a node, last things first, and nothing else. Safe to repeat: what is gone is gone.
 * @throws ConsoleError H311 the driver is in use; nothing was changed then
 */
export async function takeDown(context: TakeDownContext, task: NodeTask): Promise<void> {
  const { session, host } = context;
  let lock: NodeLock | null = null;
  const root = async (name: string, script: string): Promise<Fields> => {
    await lock?.assertHeld();
    return await runScript(session, host, name, script, [], { root: true, timeoutMs: 120_000 });
  };
  try {
    await task.step("connect", async (report) => {
      await session.connect(task.signal);
      lock = await NodeLock.take(session, host, context.consoleId);
      const fields = await root("undoing a bring-up that was cut off", TX_ROLLBACK);
      // Asked before anything is taken away: a node that is in use stays whole.
      const holders = (await root("looking who uses the driver", DRIVER_HOLDERS)).one("holders");
      if (holders !== null) throw ConsoleError.of("H311", { host, holders: holders.trim() });
      if (fields.has("undo_failed")) report.detail(`not undone: ${fields.all("undo_failed").join(", ")}`);
    });
    await task.step("leave", () => context.leave());
    await task.step("stop", async (report) => {
      const fields = await root("removing the service", SERVICE_REMOVE);
      report.detail(fields.one("removed") === "yes" ? "stepccld is stopped and removed" : "stepccld was not installed");
    });
    await task.step("unload", async (report) => {
      const fields = await root("removing the driver", DRIVER_REMOVE);
      if (fields.one("failed") === "in_use") throw ConsoleError.of("H311", { host, holders: fields.one("detail") ?? "an unknown process" });
      report.detail(fields.one("removed") === "yes" ? "dma_engine is unloaded and removed" : "dma_engine was not loaded");
    });
    await task.step("remove", async (report) => {
      const fields = await root("removing the files", FILES_REMOVE);
      if (fields.one("removed") !== "yes") throw ConsoleError.of("H310", { command: "removing the files", host, status: "?", detail: fields.one("detail") ?? "no detail" });
      const kept = fields.all("kept");
      report.detail(kept.length > 0 ? `removed; kept: ${kept.join(", ")}` : "removed");
    });
  } finally {
    // A lock that cannot be released (the link is gone) ends by its missing heartbeat.
    await (lock as NodeLock | null)?.release().catch(() => undefined);
  }
}
