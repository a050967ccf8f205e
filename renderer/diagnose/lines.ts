export interface NumberedLine { number: number; text: string }

/** A line longer than this is shown in pieces, each under the same number: one line of a megabyte would stop the browser's layout. */
const PIECE = 2000;

/** Numbered from 1; a trailing newline ends the last line and begins none. */
export function splitLines(text: string): NumberedLine[] {
  if (text === "") return [];
  const raw = text.split(/\r\n|\n/);
  if (raw.at(-1) === "") raw.pop();
  return raw.flatMap((line, index) => {
    if (line.length <= PIECE) return [{ number: index + 1, text: line }];
    const pieces: NumberedLine[] = [];
    for (let at = 0; at < line.length; at += PIECE) pieces.push({ number: index + 1, text: line.slice(at, at + PIECE) });
    return pieces;
  });
}
