import { useTranslation } from "react-i18next";
import type { SettingChangeView } from "../../electron/contract/index.js";
import { timeOfDay } from "../shared/format.js";
import { oneLine } from "../shared/printable.js";
import { useNow } from "../store/console-hooks.js";
import { valueText } from "./words.js";
import css from "./settings.module.css";

/** Who changed what, newest first. */
export function History({ entries }: { entries: readonly SettingChangeView[] }) {
  const { t } = useTranslation();
  const now = useNow();
  return (
    <section className={`panel ${css.history}`} aria-label={t("settings.history")} data-testid="settings-history">
      <h2 className="panel-title">{t("settings.history")}</h2>
      {entries.length === 0 ? <span className="dim">{t("settings.noHistory")}</span> : (
        <div className={css.scroll}>
          <table className={css.table}>
            <thead><tr><th scope="col">{t("settings.at")}</th><th scope="col">{t("settings.node")}</th><th scope="col">{t("settings.setting")}</th><th scope="col">{t("settings.fromTo")}</th><th scope="col">{t("settings.by")}</th></tr></thead>
            <tbody>
              {entries.map((entry, index) => (
                <tr key={`${entry.atMs} ${entry.nodeId} ${entry.setting} ${index}`}>
                  <td title={new Date(entry.atMs).toISOString()}>{timeOfDay(entry.atMs, now)}</td><td>{oneLine(entry.nodeName, 40)}</td><td>{t(`settings.names.${entry.setting}`)}</td>
                  <td>{valueText(entry.setting, entry.from, t)} → {valueText(entry.setting, entry.to, t)}</td><td>{oneLine(entry.by, 60)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
