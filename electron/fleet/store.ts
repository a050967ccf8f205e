import { randomUUID } from "node:crypto";
import { chmodSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import Database from "libsql";
import { z } from "zod";
import { DiagnosisView, MendRunView, OperationView } from "../contract/index.js";
import type { TrustedKey, TrustStore } from "../ssh/index.js";

/** What the console remembers of a node. Secrets are not among it (see secrets.ts). */
export interface NodeRecord {
  readonly id: string;
  name: string;
  host: string;
  port: number;
  user: string;
  authKind: "agent" | "key" | "password";
  keyPath: string | null;
  jump: string[];
  /** Set by the operator; null = chosen from the node's facts. */
  dataAddress: string | null;
  /** Whether the daemon was brought up or found there, so that the console keeps a link to it. */
  up: boolean;
  /** Number inside the cluster; kept for good, so that numbers stay stable over a removal and a new bring-up. */
  member: number | null;
  /** The node's own address of the SSH connection, by which the SSH interface is told from the data interface. */
  sshAddress: string | null;
  lastSeenMs: number | null;
  readonly addedAtMs: number;
}

export const ClusterState = z.object({
  clusterId: z.string(),
  epoch: z.number().int().nonnegative(),
  members: z.array(z.object({
    node: z.number().int(), name: z.string(),
    addresses: z.array(z.object({ address: z.string(), netdev: z.string().nullable(), rdma_device: z.string().nullable(), gid_index: z.number().nullable() })),
  })),
});
export type ClusterState = z.infer<typeof ClusterState>;

const MIGRATIONS: readonly string[] = [
  `CREATE TABLE nodes (id TEXT PRIMARY KEY, name TEXT NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL, user TEXT NOT NULL,
     auth_kind TEXT NOT NULL, key_path TEXT, jump TEXT NOT NULL, data_address TEXT, up INTEGER NOT NULL, member INTEGER UNIQUE,
     ssh_address TEXT, last_seen_ms INTEGER, added_at_ms INTEGER NOT NULL, UNIQUE (host, port, user)) STRICT;
   CREATE TABLE trusted_keys (name TEXT NOT NULL, type TEXT NOT NULL, key BLOB NOT NULL, source TEXT NOT NULL, added_at_ms INTEGER NOT NULL,
     PRIMARY KEY (name, key)) STRICT;
   CREATE TABLE operations (id TEXT PRIMARY KEY, started_at_ms INTEGER NOT NULL, document TEXT NOT NULL) STRICT;
   CREATE TABLE diagnoses (id TEXT PRIMARY KEY, started_at_ms INTEGER NOT NULL, document TEXT NOT NULL) STRICT;
   CREATE TABLE state (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;`,
  "CREATE TABLE mends (id TEXT PRIMARY KEY, started_at_ms INTEGER NOT NULL, document TEXT NOT NULL) STRICT;",
];

/** JSON documents of one kind, newest first, at most `keep`. What no longer matches its schema is left out. */
export class Documents<T> {
  constructor(private readonly db: Database.Database, private readonly table: "operations" | "diagnoses" | "mends", private readonly schema: z.ZodType<T>, private readonly keep: number) {}

  list(): T[] {
    const rows = this.db.prepare(`SELECT document FROM ${this.table} ORDER BY started_at_ms DESC, id DESC LIMIT ?`).all(this.keep) as { document: string }[];
    return rows.flatMap((row) => {
      const parsed = this.schema.safeParse(JSON.parse(row.document));
      return parsed.success ? [parsed.data] : [];
    });
  }
  put(id: string, startedAtMs: number, document: T): void {
    this.db.prepare(`INSERT INTO ${this.table} (id, started_at_ms, document) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document`)
      .run(id, Math.trunc(startedAtMs), JSON.stringify(document));
    this.db.prepare(`DELETE FROM ${this.table} WHERE id NOT IN (SELECT id FROM ${this.table} ORDER BY started_at_ms DESC, id DESC LIMIT ?)`).run(this.keep);
  }
  remove(id: string): void {
    this.db.prepare(`DELETE FROM ${this.table} WHERE id = ?`).run(id);
  }
}

type NodeRow = {
  id: string; name: string; host: string; port: number; user: string; auth_kind: string; key_path: string | null; jump: string; data_address: string | null;
  up: number; member: number | null; ssh_address: string | null; last_seen_ms: number | null; added_at_ms: number;
};

export class NodeRecords {
  constructor(private readonly db: Database.Database) {}

  list(): NodeRecord[] {
    return (this.db.prepare("SELECT * FROM nodes ORDER BY added_at_ms, id").all() as NodeRow[]).map((r) => ({
      id: r.id, name: r.name, host: r.host, port: r.port, user: r.user, authKind: r.auth_kind as NodeRecord["authKind"], keyPath: r.key_path,
      jump: JSON.parse(r.jump) as string[], dataAddress: r.data_address, up: r.up === 1, member: r.member, sshAddress: r.ssh_address,
      lastSeenMs: r.last_seen_ms, addedAtMs: r.added_at_ms,
    }));
  }
  save(n: NodeRecord): void {
    this.db.prepare(`INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
        name = excluded.name, host = excluded.host, port = excluded.port, user = excluded.user, auth_kind = excluded.auth_kind, key_path = excluded.key_path,
        jump = excluded.jump, data_address = excluded.data_address, up = excluded.up, member = excluded.member, ssh_address = excluded.ssh_address,
        last_seen_ms = excluded.last_seen_ms`)
      .run(n.id, n.name, n.host, n.port, n.user, n.authKind, n.keyPath, JSON.stringify(n.jump), n.dataAddress, n.up ? 1 : 0, n.member, n.sshAddress, n.lastSeenMs, n.addedAtMs);
  }
  remove(id: string): void {
    this.db.prepare("DELETE FROM nodes WHERE id = ?").run(id);
  }
}

/** The console's own trust in host keys; known_hosts files are never written. */
class TrustedKeys implements TrustStore {
  constructor(private readonly db: Database.Database) {}

  keysOf(name: string): TrustedKey[] {
    const rows = this.db.prepare("SELECT name, type, key, source, added_at_ms FROM trusted_keys WHERE name = ? ORDER BY added_at_ms, rowid").all(name) as
      { name: string; type: string; key: Uint8Array; source: string; added_at_ms: number }[];
    return rows.map((r) => ({ name: r.name, type: r.type, key: Buffer.from(r.key), source: r.source, addedAtMs: r.added_at_ms }));
  }
  trust(k: TrustedKey): void {
    this.replace(k.name, [k]);
  }
  replace(name: string, keys: readonly TrustedKey[]): void {
    this.db.transaction(() => {
      this.forget(name);
      const insert = this.db.prepare("INSERT INTO trusted_keys (name, type, key, source, added_at_ms) VALUES (?, ?, ?, ?, ?)");
      for (const k of keys) insert.run(name, k.type, k.key, k.source, Math.trunc(k.addedAtMs));
    })();
  }
  forget(name: string): void {
    this.db.prepare("DELETE FROM trusted_keys WHERE name = ?").run(name);
  }
}

export interface Store {
  readonly nodes: NodeRecords;
  readonly trust: TrustStore;
  readonly operations: Documents<OperationView>;
  readonly diagnoses: Documents<DiagnosisView>;
  readonly mends: Documents<MendRunView>;
  /** This installation of the console, by which its own abandoned locks are known. */
  readonly consoleId: string;
  loadCluster(): ClusterState | null;
  saveCluster(state: ClusterState): void;
  close(): void;
}

/**
 * `console.db` in `dataDir`, made where it is missing, readable by this user alone. A newer schema than ours is refused.
 * @throws Error when the file is no database, or of a newer console
 */
export function openStore(dataDir: string): Store {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, "console.db");
  const db = new Database(path);
  chmodSync(path, 0o600);
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON;");
  const version = (db.prepare("PRAGMA user_version").get() as { user_version: number }).user_version;
  if (version > MIGRATIONS.length) throw new Error(`${path} belongs to a newer console (schema ${version}, this one knows ${MIGRATIONS.length})`);
  for (let next = version; next < MIGRATIONS.length; next++) {
    db.exec(`BEGIN IMMEDIATE; ${MIGRATIONS[next]} PRAGMA user_version = ${next + 1}; COMMIT;`);
  }
  const read = (name: string): unknown => {
    const row = db.prepare("SELECT document FROM state WHERE name = ?").get(name) as { document: string } | undefined;
    return row ? JSON.parse(row.document) : undefined;
  };
  const write = (name: string, value: unknown): void => {
    db.prepare("INSERT INTO state (name, document) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET document = excluded.document").run(name, JSON.stringify(value));
  };
  let consoleId = read("console_id");
  if (typeof consoleId !== "string") write("console_id", (consoleId = randomUUID()));
  return {
    nodes: new NodeRecords(db), trust: new TrustedKeys(db),
    operations: new Documents(db, "operations", OperationView, 200),
    diagnoses: new Documents(db, "diagnoses", DiagnosisView, 500),
    mends: new Documents(db, "mends", MendRunView, 500),
    consoleId: consoleId as string,
    loadCluster: () => {
      const parsed = ClusterState.safeParse(read("cluster"));
      return parsed.success ? parsed.data : null;
    },
    saveCluster: (state) => write("cluster", state),
    close: () => db.close(),
  };
}
