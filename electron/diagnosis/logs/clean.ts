const SUSPECT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/;
const BARE_COLOUR = /\[\d{1,3}(?:;\d{1,3}){0,4}m/g;

/**
 * The line as a person may safely be shown it: no terminal escapes (CSI, OSC, DCS, single), no control or bidirectional
 * characters, no colour codes whose ESC was lost on the way, no trailing blanks. Tabs stay. Linear in the line's length.
 */
export function cleanLine(line: string): string {
  let text = SUSPECT.test(line) ? stripControls(line) : line;
  if (text.includes("m") && text.includes("[")) text = stripBareColours(text);
  return trimEnd(text);
}

function trimEnd(text: string): string {
  let end = text.length;
  while (end > 0 && text.charCodeAt(end - 1) <= 32) end--;
  return end === text.length ? text : text.slice(0, end);
}

function stripBareColours(text: string): string {
  // Only "[", digits and semicolons, "m": a rank such as "[3]" or a bit such as "[14]" has no m right after its digits.
  const at = text.indexOf("[");
  for (let i = at; i >= 0 && i < text.length; i = text.indexOf("[", i + 1)) {
    const c = text.charCodeAt(i + 1);
    if (c >= 48 && c <= 57) return text.replace(BARE_COLOUR, "");
  }
  return text;
}

function stripControls(text: string): string {
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x1b || c === 0x9b || c === 0x9d || c === 0x90) { i = skipEscape(text, i, c); continue; }
    if (c === 9) { out += "\t"; continue; }
    if (c < 32 || (c >= 0x7f && c <= 0x9f)) continue;
    if ((c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c === 0xfeff) continue;
    out += text[i];
  }
  return out;
}

/** Index of the escape's last character. */
function skipEscape(text: string, at: number, c: number): number {
  let kind = c;
  let i = at;
  if (c === 0x1b) {
    i++;
    const next = text.charCodeAt(i);
    kind = next === 0x5b ? 0x9b : next === 0x5d ? 0x9d : next === 0x50 || next === 0x5e || next === 0x5f || next === 0x58 ? 0x90 : 0;
    if (kind === 0) {
      // ESC, intermediates (charset choice and the like), one final.
      while (i < text.length && text.charCodeAt(i) >= 0x20 && text.charCodeAt(i) <= 0x2f) i++;
      return i;
    }
  }
  i++;
  if (kind === 0x9b) {
    while (i < text.length && text.charCodeAt(i) >= 0x20 && text.charCodeAt(i) <= 0x3f) i++;
    return i;
  }
  // OSC and DCS run to BEL or ST; an unterminated one takes the rest of the line.
  for (; i < text.length; i++) {
    const e = text.charCodeAt(i);
    if (e === 7 || e === 0x9c) return i;
    if (e === 0x1b && text.charCodeAt(i + 1) === 0x5c) return i + 1;
  }
  return text.length;
}

/** Evidence for the page: cleaned, and bounded. */
export function quoteLine(line: string, maxChars = 600): string {
  const text = cleanLine(line).replace(/\t/g, " ").trim();
  return text.length <= maxChars ? text : `${text.slice(0, maxChars)}…`;
}
