import { useTranslation } from "react-i18next";
import IconHelpCircle from "@tabler/icons-react/icons/IconHelpCircle";
import type { CannotTellView } from "../../electron/contract/index.js";
import { oneLine } from "../shared/printable.js";
import { Fold } from "./Fold.js";
import { useSay } from "./words.js";
import css from "./diagnose.module.css";

/** Above this many, the list is folded: in a pasted log most classes lack their input, and that is no news. */
const OPEN_UP_TO = 6;

/** Checks that could not be made, grouped by the input that was missing. */
export function CannotTell({ items }: { items: readonly CannotTellView[] }) {
  const { t } = useTranslation();
  const say = useSay();
  if (items.length === 0) return null;
  const groups = new Map<string, CannotTellView[]>();
  for (const item of items) {
    const missing = item.missing.join(", ");
    groups.set(missing, [...(groups.get(missing) ?? []), item]);
  }
  return (
    <Fold label={<>{t("diagnose.cannotTell")} <span className="dim">{t("diagnose.checksLack", { count: items.length })}</span></>} testId="cannot-tell" open={items.length <= OPEN_UP_TO}>
      <p className="dim">{t("diagnose.cannotTellText")}</p>
      <ul className={css.plainList}>
        {[...groups].map(([missing, each]) => (
          <li key={missing}><IconHelpCircle size={13} aria-hidden /> {each.map((item) => say(item.title)).join("; ")} <span className="dim">{t("diagnose.missing", { what: oneLine(missing) })}</span></li>
        ))}
      </ul>
    </Fold>
  );
}
