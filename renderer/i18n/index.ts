import i18next, { type i18n } from "i18next";
import { initReactI18next } from "react-i18next";
import { HOST_ERRORS } from "../../electron/contract/index.js";
import { PAGE_ERRORS } from "../client/page-error.js";
import en from "./en.json";
import zh from "./zh-CN.json";

export const LANGUAGES = { en: "English", "zh-CN": "简体中文" } as const;
export type Language = keyof typeof LANGUAGES;
const STORAGE_KEY = "stepccl.language";

/** The contract writes `{name}`, i18next `{{name}}`. */
const placeholders = (text: string): string => text.replace(/\{(\w+)\}/g, "{{$1}}");

/** The English texts of the error codes come from the contract and the page's table: written once, there. */
export const englishErrors = (): Record<string, { message: string; next: string }> =>
  Object.fromEntries(
    Object.entries({ ...HOST_ERRORS, ...PAGE_ERRORS }).map(([code, [message, next]]) => [code, { message: placeholders(message), next: placeholders(next) }]),
  );

/** What the person chose, else what the browser prefers. */
export function initialLanguage(storage: Pick<Storage, "getItem"> = localStorage, preferred: readonly string[] = navigator.languages): Language {
  const kept = storage.getItem(STORAGE_KEY);
  if (kept === "en" || kept === "zh-CN") return kept;
  const first = preferred.find((tag) => /^(en|zh)\b/i.test(tag));
  return first && /^zh/i.test(first) ? "zh-CN" : "en";
}

export function createI18n(language: Language): i18n {
  const instance = i18next.createInstance();
  void instance.use(initReactI18next).init({
    lng: language,
    fallbackLng: "en",
    resources: { en: { translation: { ...en, errors: { ...englishErrors(), ...en.errors } } }, "zh-CN": { translation: zh } },
    // React escapes; a second time would show &amp; to people.
    interpolation: { escapeValue: false },
    initAsync: false,
    returnNull: false,
  });
  document.documentElement.lang = language;
  instance.on("languageChanged", (tag) => {
    document.documentElement.lang = tag;
    localStorage.setItem(STORAGE_KEY, tag);
  });
  return instance;
}
