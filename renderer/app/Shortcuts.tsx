import { Modal } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { Shortcut } from "../shared/small.js";
import { useUi } from "./ui.js";
import css from "./app.module.css";

/** Every shortcut, grouped: [keys, text key]. */
const GROUPS = {
  everywhere: [["Ctrl K", "palette"], ["?", "list"], ["g n", "nodes"], ["g t", "topology"], ["g m", "memory"], ["g c", "collectives"], ["g d", "diagnose"], ["g a", "alerts"], ["g s", "settings"], ["n", "addNodes"], ["/", "filter"]],
  tables: [["↑ ↓", "move"], ["Space", "choose"], ["Shift ↑ ↓", "extend"], ["Ctrl A", "all"], ["Enter", "open"], ["Esc", "none"]],
  map: [["← → ↑ ↓", "walk"], ["Enter", "detail"], ["+ -", "zoom"], ["0", "fit"], ["Esc", "clear"]],
} as const;

export function Shortcuts() {
  const { t } = useTranslation();
  const opened = useUi((s) => s.shortcuts);
  const set = useUi((s) => s.set);
  return (
    <Modal opened={opened} onClose={() => set({ shortcuts: false })} title={t("app.shortcuts")} size="lg" closeButtonProps={{ "aria-label": t("common.close") }}>
      <div className={css.shortcutGroups}>
        {(Object.keys(GROUPS) as Array<keyof typeof GROUPS>).map((group) => (
          <section key={group}>
            <h3>{t(`shortcuts.${group}.title`)}</h3>
            <dl>
              {GROUPS[group].map(([keys, name]) => (
                <div key={keys}><dt>{t(`shortcuts.${group}.${name}`)}</dt><dd><Shortcut keys={keys} /></dd></div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Modal>
  );
}
