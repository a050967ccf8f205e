/** True when every word of `query` stands in `text`, in any order, or its letters do in their order (at least three). */
export function matches(query: string, text: string): boolean {
  const haystack = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).filter(Boolean).every((word) => haystack.includes(word) || (word.length >= 3 && inOrder(word, haystack)));
}

function inOrder(word: string, haystack: string): boolean {
  let at = 0;
  let gap = 0;
  for (const char of word) {
    const found = haystack.indexOf(char, at);
    if (found < 0) return false;
    gap += at === 0 ? 0 : found - at;
    at = found + 1;
  }
  return gap <= word.length;
}
