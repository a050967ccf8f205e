import { Button } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconCircleX from "@tabler/icons-react/icons/IconCircleX";
import { say } from "../../electron/contract/index.js";
import { hrefOf } from "../app/router.js";
import { oneLine, printable } from "../shared/printable.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import { useTopologyUi } from "./store.js";
import css from "./topology.module.css";

/** What a guide found to be the first element that breaks a rule, in words, and the way back to the card. */
export function Marked() {
  const { t, i18n } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const ui = useTopologyUi();
  const mark = useStore(ui, (s) => s.mark);
  if (!mark) return null;
  const name = (id: string) => oneLine(items.get(id)?.name ?? id, 40);
  const { ref } = mark;
  const place = ref.kind === "link" ? `${name(ref.from)} → ${name(ref.to)}` : name(ref.nodeId);
  return (
    <div className={css.marked} role="status" data-testid="topology-mark">
      <IconCircleX size={15} aria-hidden />
      <span><strong>{t("topology.marked", { place })}</strong> {oneLine(mark.label, 80)}: {printable(say(mark.rule, i18n.language))}</span>
      <span className="spacer" />
      <Button size="compact-xs" variant="default" component="a" href={hrefOf("diagnose", { view: "guides" })}>{t("topology.backToGuide")}</Button>
      <Button size="compact-xs" variant="subtle" onClick={() => ui.setState({ mark: null })}>{t("topology.clearMark")}</Button>
    </div>
  );
}
