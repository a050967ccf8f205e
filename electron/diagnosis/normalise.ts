/** Log text as nodes print it, in one shape. Linear in the text's length: every pattern is anchored and bounded. */

export interface LogLine {
  /** 1-based, in the source's text. */
  number: number;
  /** Without time, host, priority and colour. */
  text: string;
  /** As it stood, without colour; for the quotation. */
  raw: string;
  /** Seconds since boot, where the line says so. */
  uptimeS: number | null;
}

const MAX_LINES = 100_000;
const MAX_LINE_CHARS = 2000;

// CSI sequences, OSC sequences, and the bare "[0m" that remains where a paste lost its ESC.
const COLOUR = /\u001b\[[0-9;?]{0,24}[A-Za-z]|\u001b\][^\u0007\u001b]{0,200}\u0007|\[(?:0|1|3[0-7]|[01];\d{1,3})?m/g;

type Prefix = readonly [RegExp, ((match: RegExpExecArray) => number | null)?];
const PREFIXES: readonly Prefix[] = [
  [/^\[ {0,12}(\d{1,10}\.\d{1,9})\] ?/, (m) => Number(m[1])],
  [/^\[ {0,12}\+\d{1,10}\.\d{1,9}\] ?/],
  [/^\[[A-Za-z]{3} [A-Za-z]{3} {1,2}\d{1,2} \d{2}:\d{2}:\d{2} \d{4}\] ?/],
  [/^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?:? /],
  [/^[A-Za-z]{3} {1,2}\d{1,2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})? /],
  [/^[a-z]{2,8} {0,6}:[a-z]{2,8} {0,6}: ?/],
  [/^\d{1,6},\d{1,20},(\d{1,20}),[-c](?:,[^;]{0,64})?;/, (m) => Number(m[1]) / 1e6],
  [/^\[\d{1,6},\d{1,6}\]<std(?:err|out)>: ?/],
  [/^(?:[A-Za-z0-9._-]{1,64} )?kernel: ?/],
];
const MAX_PREFIXES = 6;

export function normaliseLog(text: string): LogLine[] {
  const lines: LogLine[] = [];
  let number = 0;
  for (const whole of text.split("\n")) {
    number++;
    if (lines.length >= MAX_LINES) break;
    for (const piece of whole.slice(0, MAX_LINE_CHARS * 4).split("#012")) {
      const raw = piece.replace(COLOUR, "").slice(0, MAX_LINE_CHARS).trimEnd();
      if (raw === "") continue;
      let rest = raw.trimStart();
      let uptimeS: number | null = null;
      for (let i = 0; i < MAX_PREFIXES; i++) {
        const before = rest;
        for (const [pattern, uptime] of PREFIXES) {
          const match = pattern.exec(rest);
          if (!match) continue;
          uptimeS ??= uptime?.(match) ?? null;
          rest = rest.slice(match[0].length);
          break;
        }
        if (rest === before) break;
      }
      lines.push({ number, text: rest.trim(), raw: raw.trimStart(), uptimeS });
    }
  }
  return lines;
}

/** Plain lines of a command's output, bounded. */
export function plainLines(text: string): LogLine[] {
  return text.split("\n", MAX_LINES).flatMap((line, i) => {
    const raw = line.replace(COLOUR, "").slice(0, MAX_LINE_CHARS).trimEnd();
    return raw === "" ? [] : [{ number: i + 1, text: raw.trim(), raw, uptimeS: null }];
  });
}
