import { useTranslation } from "react-i18next";
import IconAlertTriangle from "@tabler/icons-react/icons/IconAlertTriangle";
import { CloseButton } from "@mantine/core";
import type { ShownError } from "../client/page-error.js";
import { printable } from "./printable.js";
import css from "./shared.module.css";

const usable = (text: string): boolean => !/\{\{\w+\}\}/.test(text);

/** The texts of an error in the chosen language; the host's own sentence where there is no translation or a value is missing. */
export function useErrorText(error: ShownError): { message: string; next: string } {
  const { t, i18n } = useTranslation();
  const params = Object.fromEntries(Object.entries(error.params ?? {}).map(([key, value]) => [key, printable(String(value))]));
  const text = (part: "message" | "next"): string => {
    const key = `errors.${error.code}.${part}`;
    if (i18n.language !== "en" && i18n.exists(key)) {
      const translated = t(key, { ...params, interpolation: { skipOnVariables: true } });
      if (usable(translated)) return translated;
    }
    return printable(error[part]);
  };
  return { message: text("message"), next: text("next") };
}

export interface ErrorNoteProps {
  error: ShownError;
  onClose?: () => void;
  compact?: boolean;
}

/** An error as a person needs it: what happened to what, what to do next, and the code to search or report. */
export function ErrorNote({ error, onClose, compact = false }: ErrorNoteProps) {
  const { t } = useTranslation();
  const { message, next } = useErrorText(error);
  const original = printable(error.message);
  const evidence = typeof error.params?.detail === "string" && !message.includes(printable(error.params.detail)) ? printable(error.params.detail) : null;
  return (
    <div className={css.error} role="alert" data-testid="error-note" data-code={error.code} data-compact={compact || undefined}>
      <IconAlertTriangle size={16} aria-hidden className={css.errorIcon} />
      <div className={css.errorBody}>
        <p className={css.errorMessage}>
          <span className={css.code}>{error.code}</span> {message}
        </p>
        <p className={css.errorNext}>{next}</p>
        {evidence !== null && <pre className={css.errorEvidence}>{evidence}</pre>}
        {!compact && message !== original && <p className={css.errorOriginal} lang="en">{original}</p>}
      </div>
      {onClose && <CloseButton size="sm" onClick={onClose} aria-label={t("common.dismiss")} />}
    </div>
  );
}
