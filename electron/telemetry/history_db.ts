import Database from "libsql";
import { chmodSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const MIGRATIONS: readonly string[] = [
  `CREATE TABLE setting_changes (id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, node_id TEXT NOT NULL, node_name TEXT NOT NULL, setting TEXT NOT NULL,
     before TEXT NOT NULL, after TEXT NOT NULL, by TEXT NOT NULL) STRICT;
   CREATE TABLE alerts (id TEXT PRIMARY KEY, started_at_ms INTEGER NOT NULL, document TEXT NOT NULL) STRICT;
   CREATE INDEX alerts_by_time ON alerts (started_at_ms);
   CREATE TABLE thresholds (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
   CREATE TABLE series (metric TEXT NOT NULL, subject TEXT NOT NULL, at_ms INTEGER NOT NULL, lowest REAL NOT NULL, highest REAL NOT NULL, mean REAL NOT NULL,
     PRIMARY KEY (metric, subject, at_ms)) STRICT, WITHOUT ROWID;
   CREATE INDEX series_by_time ON series (at_ms);`,
];

/**
 * `history.db` of the data folder: what happened, kept over restarts; readable by this user alone.
 * @throws Error when the file is no database, or of a newer console
 */
export function openHistory(dataDir: string): Database.Database {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, "history.db");
  const db = new Database(path);
  chmodSync(path, 0o600);
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 5000;");
  const version = (db.prepare("PRAGMA user_version").get() as { user_version: number }).user_version;
  if (version > MIGRATIONS.length) throw new Error(`${path} belongs to a newer console (schema ${version}, this one knows ${MIGRATIONS.length})`);
  for (let next = version; next < MIGRATIONS.length; next++) db.exec(`BEGIN IMMEDIATE; ${MIGRATIONS[next]} PRAGMA user_version = ${next + 1}; COMMIT;`);
  return db;
}
