import type Database from "libsql";
import { ALERT_RULES, AlertRule, AlertView, Threshold, type HistoryMetric, type HistorySeries, type Thresholds } from "../contract/index.js";
import type { Bucket } from "./recorder.js";

const KEPT_ALERTS = 5000;
/** About 40 bytes each: 200 MB. The oldest go first. */
const KEPT_POINTS = 5_000_000;

/** Alerts, thresholds and curves in the console's history. */
export class AlertStore {
  constructor(private readonly db: Database.Database) {}

  /** Newest first. One that lasted when the console ended is given as ended when it was seen last. */
  load(): AlertView[] {
    const rows = this.db.prepare("SELECT document FROM alerts ORDER BY started_at_ms DESC LIMIT ?").all(KEPT_ALERTS) as { document: string }[];
    return rows.flatMap((row) => {
      const parsed = AlertView.safeParse(JSON.parse(row.document));
      return parsed.success ? [{ ...parsed.data, endedAtMs: parsed.data.endedAtMs ?? parsed.data.lastAtMs }] : [];
    });
  }
  save(alerts: readonly AlertView[]): void {
    this.db.transaction(() => {
      const put = this.db.prepare("INSERT INTO alerts (id, started_at_ms, document) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document");
      for (const alert of alerts) put.run(alert.id, Math.trunc(alert.startedAtMs), JSON.stringify(alert));
      this.db.prepare("DELETE FROM alerts WHERE id NOT IN (SELECT id FROM alerts ORDER BY started_at_ms DESC LIMIT ?)").run(KEPT_ALERTS);
    })();
  }

  thresholds(): Thresholds {
    const kept = new Map((this.db.prepare("SELECT name, document FROM thresholds").all() as { name: string; document: string }[]).map((row) => [row.name, Threshold.safeParse(JSON.parse(row.document))]));
    return Object.fromEntries(AlertRule.options.map((rule) => {
      const own = kept.get(rule);
      return [rule, own?.success ? own.data : { enabled: true, value: ALERT_RULES[rule].standard }];
    })) as Thresholds;
  }
  setThreshold(rule: AlertRule, threshold: Threshold): void {
    this.db.prepare("INSERT INTO thresholds (name, document) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET document = excluded.document").run(rule, JSON.stringify(threshold));
  }

  record(buckets: readonly Bucket[]): void {
    this.db.transaction(() => {
      const put = this.db.prepare("INSERT OR REPLACE INTO series (metric, subject, at_ms, lowest, highest, mean) VALUES (?, ?, ?, ?, ?, ?)");
      for (const b of buckets) put.run(b.metric, b.nodeId, Math.trunc(b.atMs), b.lowest, b.highest, b.mean);
    })();
  }
  /** Drops the oldest minutes above what is kept. */
  prune(keep = KEPT_POINTS): void {
    const { n } = this.db.prepare("SELECT count(*) AS n FROM series").get() as { n: number };
    if (n <= keep) return;
    const cut = this.db.prepare("SELECT at_ms FROM series ORDER BY at_ms LIMIT 1 OFFSET ?").get(n - keep) as { at_ms: number } | undefined;
    if (cut) this.db.prepare("DELETE FROM series WHERE at_ms < ?").run(cut.at_ms);
  }
  curves(metric: HistoryMetric, fromMs: number, toMs: number, points: number): HistorySeries[] {
    const step = Math.max(60_000, Math.ceil((toMs - fromMs) / points));
    const rows = this.db.prepare(`SELECT subject, CAST((at_ms - ?) / ? AS INTEGER) AS slot, min(lowest) AS lowest, max(highest) AS highest, avg(mean) AS mean FROM series
      WHERE metric = ? AND at_ms >= ? AND at_ms < ? GROUP BY subject, slot ORDER BY subject, slot`).all(fromMs, step, metric, fromMs, toMs) as
      { subject: string; slot: number; lowest: number; highest: number; mean: number }[];
    const byNode = new Map<string, HistorySeries>();
    for (const row of rows) {
      let series = byNode.get(row.subject);
      if (!series) byNode.set(row.subject, (series = { nodeId: row.subject, points: [] }));
      series.points.push({ atMs: fromMs + row.slot * step, lowest: row.lowest, highest: row.highest, mean: row.mean });
    }
    return [...byNode.values()];
  }
}
