import { z } from "zod";

/** A text of the product in both of its languages: the page shows the one that was chosen, whenever it was made. */
export const Words = z.object({ en: z.string(), zh: z.string() });
export type Words = z.infer<typeof Words>;
export type Language = "en" | "zh-CN";

export function say(words: Words, language: string): string {
  return language.toLowerCase().startsWith("zh") ? words.zh : words.en;
}
