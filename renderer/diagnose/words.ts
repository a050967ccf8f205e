import { useCallback } from "react";
import { useTranslation } from "react-i18next";
import { say, type Words } from "../../electron/contract/index.js";
import { printable } from "../shared/printable.js";

/** Gives a text of the host in the language that was chosen. It may hold what a node said, so it is made visible. */
export function useSay(): (words: Words) => string {
  const { i18n } = useTranslation();
  const { language } = i18n;
  return useCallback((words: Words) => printable(say(words, language)), [language]);
}
