import { RULES } from "./rules/index.js";
import type { Language, Text } from "./types.js";

/** The words of one class, for a page that wants them by itself: pure data, no node needed. */
export interface FindingTexts {
  title: string;
  explanation: string;
  causes: string[];
  checked: string[];
  mend: { command: string; explanation: string }[];
}

/** Words of every class in one language, by class. Commands hold placeholders such as {device}. */
export function findingTexts(language: Language): Record<string, FindingTexts> {
  const say = (text: Text): string => text[language === "en" ? 0 : 1];
  return Object.fromEntries(RULES.map((rule) => [rule.id, {
    title: say(rule.title), explanation: say(rule.what), causes: (rule.causes ?? []).map(say), checked: (rule.checks ?? []).map(say),
    mend: (rule.mend ?? []).map(([command, , en, zh]) => ({ command, explanation: language === "en" ? en : zh })),
  }]));
}
