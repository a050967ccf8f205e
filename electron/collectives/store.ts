import Database from "libsql";
import { chmodSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { ConsoleError, RunView } from "../contract/index.js";

const KEPT_RUNS = 500;

/** Runs that ended or are going on, in `runs.db` of the data folder; survives a restart. */
export class RunStore {
  readonly #db: Database.Database;

  constructor(dataDir: string) {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    const path = join(dataDir, "runs.db");
    this.#db = new Database(path);
    chmodSync(path, 0o600);
    this.#db.exec("PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 5000; PRAGMA user_version = 1;");
    this.#db.exec("CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, started_at_ms INTEGER NOT NULL, view TEXT NOT NULL) STRICT");
  }

  /** The newest runs, newest first. A run that was going on when the console ended is given as failed. */
  load(): RunView[] {
    const rows = this.#db.prepare("SELECT view FROM runs ORDER BY started_at_ms DESC LIMIT ?").all(KEPT_RUNS) as { view: string }[];
    return rows.flatMap((row) => {
      const view = RunView.safeParse(JSON.parse(row.view));
      return view.success ? [interrupted(view.data)] : [];
    });
  }

  save(view: RunView): void {
    this.#db.prepare("INSERT INTO runs (id, started_at_ms, view) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET view = excluded.view").run(view.id, Math.trunc(view.startedAtMs), JSON.stringify(view));
    this.#db.prepare("DELETE FROM runs WHERE id NOT IN (SELECT id FROM runs ORDER BY started_at_ms DESC LIMIT ?)").run(KEPT_RUNS);
  }

  close(): void {
    this.#db.close();
  }
}

function interrupted(view: RunView): RunView {
  if (view.endedAtMs !== null) return view;
  return { ...view, state: "failed", endedAtMs: view.startedAtMs, error: ConsoleError.of("H105", { detail: "the console ended while the run was going on" }).view };
}
