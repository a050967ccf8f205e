import type { ComponentType, ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Kbd } from "@mantine/core";
import type { TFunction } from "i18next";
import { age, STALE_AFTER_MS, type Age as AgeValue } from "./format.js";
import { useNow } from "../store/console.js";
import { oneLine } from "./printable.js";
import css from "./shared.module.css";

/** One line that a node said, made visible and cut; the whole stands in the title. */
export function NodeText({ text, mono = false }: { text: string; mono?: boolean }) {
  const shown = oneLine(text);
  return <span className={`ellipsis${mono ? " mono" : ""}`} title={shown}>{shown}</span>;
}

/** "5 s ago", "5 秒前". */
export const ago = (of: AgeValue, t: TFunction): string => t("common.ago", { age: `${of.count} ${t(`ageUnits.${of.unit}`)}` });

/**
 * The age of a value that was true at `atMs`; empty while it is fresh, so that nothing moves for good news. `event`: of what happened then,
 * which does not grow stale.
 */
export function Age({ atMs, always = false, event = false }: { atMs: number | null; always?: boolean; event?: boolean }) {
  const { t } = useTranslation();
  const now = useNow();
  if (atMs === null) return <span className="dim">{t("common.never")}</span>;
  const old = now - atMs;
  if (old <= STALE_AFTER_MS) return always || event ? <span>{t("common.now")}</span> : null;
  return <span className={event ? undefined : css.age} title={new Date(atMs).toISOString()}>{ago(age(old), t)}</span>;
}

/** True when a value is too old to be taken for the present one. */
export function useStale(atMs: number | null): boolean {
  const now = useNow();
  return atMs === null || now - atMs > STALE_AFTER_MS;
}

type Tone = "ok" | "warn" | "bad" | "info" | "idle";
export type Icon = ComponentType<{ size?: number | string; className?: string; "aria-hidden"?: boolean }>;

/** A state: icon, word and colour together, so that colour is never alone. */
export function State({ tone, icon: IconOf, label, spin = false }: { tone: Tone; icon: Icon; label: string; spin?: boolean }) {
  return (
    <span className={css.state} data-tone={tone}>
      <IconOf size={14} aria-hidden className={spin ? "icon-spin" : undefined} />
      <span className="ellipsis">{label}</span>
    </span>
  );
}

export function EmptyState({ icon: IconOf, title, children, action }: { icon: Icon; title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className={css.empty} data-testid="empty-state">
      <IconOf size={28} aria-hidden />
      <h2>{title}</h2>
      {children !== undefined && <div className={css.emptyText}>{children}</div>}
      {action}
    </div>
  );
}

export const Shortcut = ({ keys }: { keys: string }) => (
  <span className={css.shortcut}>{keys.split(" ").map((key) => <Kbd key={key} size="xs">{key}</Kbd>)}</span>
);
