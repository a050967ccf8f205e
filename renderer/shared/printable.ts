/**
 * What a node says is hostile text. React keeps it from being markup; this keeps it from lying: control characters, bidirectional
 * overrides and invisible characters are shown as what they are (Unicode TR36 and TR39 name the classes).
 */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

const name = (char: string): string => {
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
};

/** Text of any length, made visible; tabs and newlines stay. */
export const printable = (text: string): string => text.replace(HIDDEN, name);

/** One line for a cell or a label: newlines are shown too, and a long line is cut in the middle of nothing visible. */
export function oneLine(text: string, maxLength = 400): string {
  const line = printable(text).replace(/\n/g, "\u240a").replace(/\t/g, " ");
  const chars = line.length > maxLength ? `${[...line].slice(0, maxLength - 1).join("")}\u2026` : line;
  return chars;
}
