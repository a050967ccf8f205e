import type { ReactNode } from "react";
import IconChevronRight from "@tabler/icons-react/icons/IconChevronRight";
import css from "./diagnose.module.css";

/** A part that is folded until somebody wants it. */
export function Fold({ label, children, testId, open = false }: { label: ReactNode; children: ReactNode; testId?: string; open?: boolean }) {
  return (
    <details className={css.fold} data-testid={testId} open={open}>
      <summary><IconChevronRight size={13} aria-hidden className={css.chevron} /> {label}</summary>
      <div className={css.folded}>{children}</div>
    </details>
  );
}
