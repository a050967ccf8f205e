export interface Part { text: string; redacted: boolean }

/**
 * What the console puts in the place of names, addresses and keys: counted words, and addresses of ranges that are set aside for tests
 * and documents (RFC 2544, RFC 3849) or locally administered. Marking only: a stand-in that is missed here is one all the same.
 */
const STAND_IN = new RegExp([
  "\\b(?:host|user|serial|secret)-\\d{1,6}\\b", "\\b198\\.1[89]\\.\\d{1,3}\\.\\d{1,3}\\b", "\\b02:00:[0-9a-f]{2}(?::[0-9a-f]{2}){3}\\b", "\\b00000000-0000-4000-8000-[0-9a-f]{12}\\b",
  "\\b2001:0?db8:[0-9a-f:]{1,40}", "\\b(?:0x)?0200[0-9a-f]{12}\\b", "\\bffff:c61[23]:[0-9a-f]{4}\\b",
].join("|"), "g");

/** Cuts a redacted text at its stand-ins, so that they can be marked. */
export function markRedacted(text: string): Part[] {
  const parts: Part[] = [];
  let at = 0;
  for (const match of text.matchAll(STAND_IN)) {
    if (match.index > at) parts.push({ text: text.slice(at, match.index), redacted: false });
    parts.push({ text: match[0], redacted: true });
    at = match.index + match[0].length;
  }
  if (at < text.length) parts.push({ text: text.slice(at), redacted: false });
  return parts;
}
