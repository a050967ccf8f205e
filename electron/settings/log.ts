import type Database from "libsql";
import { SettingName, SettingValue, type SettingChangeView } from "../contract/index.js";

const KEPT = 5000;

/** The changes of settings, newest first, in the console's history. */
export class SettingsLog {
  constructor(private readonly db: Database.Database) {}

  add(changes: readonly SettingChangeView[]): void {
    this.db.transaction(() => {
      const insert = this.db.prepare("INSERT INTO setting_changes (at_ms, node_id, node_name, setting, before, after, by) VALUES (?, ?, ?, ?, ?, ?, ?)");
      for (const c of changes) insert.run(Math.trunc(c.atMs), c.nodeId, c.nodeName, c.setting, JSON.stringify(c.from), JSON.stringify(c.to), c.by);
      this.db.prepare("DELETE FROM setting_changes WHERE id <= (SELECT max(id) FROM setting_changes) - ?").run(KEPT);
    })();
  }

  list(limit: number): SettingChangeView[] {
    const rows = this.db.prepare("SELECT at_ms, node_id, node_name, setting, before, after, by FROM setting_changes ORDER BY id DESC LIMIT ?").all(limit) as
      { at_ms: number; node_id: string; node_name: string; setting: string; before: string; after: string; by: string }[];
    return rows.flatMap((row) => {
      const setting = SettingName.safeParse(row.setting);
      // Of a newer console: a setting that this one does not know.
      if (!setting.success) return [];
      return [{ atMs: row.at_ms, nodeId: row.node_id, nodeName: row.node_name, setting: setting.data, from: SettingValue.parse(JSON.parse(row.before)), to: SettingValue.parse(JSON.parse(row.after)), by: row.by }];
    });
  }
}
