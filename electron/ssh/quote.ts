import { ConsoleError } from "../contract/index.js";

/** One argument as a POSIX shell reads it back, byte for byte. Safe in any position of a command. */
export function shellQuote(argument: string): string {
  if (argument.includes("\0")) throw ConsoleError.of("H101", { detail: "an argument of a command holds a NUL byte" });
  return /^[A-Za-z0-9_\-./:=@%+,]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}

/** A command line from its words, each quoted. */
export function shellCommand(words: readonly string[]): string {
  return words.map(shellQuote).join(" ");
}

/**
 * Hostile text as one line that can be shown: control characters, bidirectional overrides and line breaks become spaces,
 * and at most `maxChars` UTF-16 units are kept.
 */
export function plainLine(text: string, maxChars = 400): string {
  const line = text.slice(0, maxChars * 8)
    // Terminal escapes first, so that their letters do not stay behind.
    .replace(/\u001b(\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(\u0007|\u001b\\)?|.)/g, "")
    .replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+/g, " ").trim();
  return line.length > maxChars ? `${line.slice(0, maxChars - 1)}…` : line;
}
