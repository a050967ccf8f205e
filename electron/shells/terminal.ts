import type { Readable, Writable } from "node:stream";
import { createInterface } from "node:readline/promises";

/** Plain text on a terminal: what nodes say is hostile and must not move the cursor, colour the screen or ring the bell. */

export function clean(text: string): string {
  // Control characters (C0 but tab, DEL, C1), bidirectional overrides and line separators.
  return text.replace(/[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** Columns padded to their widest cell; numbers to the right. */
export function table(header: readonly string[], rows: readonly (readonly (string | number | null)[])[]): string {
  const cells = [header.map(String), ...rows.map((row) => row.map((cell) => (cell === null ? "-" : typeof cell === "number" ? String(cell) : clean(cell))))];
  const widths = header.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const right = header.map((_, column) => rows.length > 0 && rows.every((row) => typeof row[column] === "number" || row[column] === null));
  return cells.map((row) => row.map((cell, column) => (right[column] ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!))).join("  ").trimEnd()).join("\n");
}

export function bytesText(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${units[unit]}`;
}

export interface Io {
  stdin: Readable & { isTTY?: boolean; setRawMode?: (raw: boolean) => unknown };
  stdout: Writable & { isTTY?: boolean };
  stderr: Writable & { isTTY?: boolean };
}

/** True when a person can be asked. */
export const canAsk = (io: Io): boolean => io.stdin.isTTY === true && io.stderr.isTTY === true;

/** Asks on the error stream, so that standard output stays data. */
export async function ask(io: Io, question: string): Promise<string> {
  const lines = createInterface({ input: io.stdin, output: io.stderr });
  try {
    return (await lines.question(question)).trim();
  } finally {
    lines.close();
  }
}

/** Asks without showing what is typed. */
export async function askSecret(io: Io, question: string): Promise<string> {
  io.stderr.write(question);
  io.stdin.setRawMode?.(true);
  try {
    return await new Promise<string>((done, fail) => {
      let text = "";
      const onData = (chunk: Buffer | string): void => {
        const characters = [...chunk.toString("utf8")];
        for (const [at, character] of characters.entries()) {
          if (character === "\r" || character === "\n") {
            const rest = characters.slice(at + 1).join("");
            return end(() => {
              // What was typed (or pasted) ahead is for the next question.
              if (rest !== "") io.stdin.unshift(Buffer.from(rest));
              done(text);
            });
          }
          if (character === "\u0003") return end(() => fail(Object.assign(new Error("interrupted"), { name: "AbortError" })));
          if (character === "\u007f" || character === "\b") text = text.slice(0, -1);
          else text += character;
        }
      };
      const end = (then: () => void): void => {
        io.stdin.off("data", onData);
        io.stdin.pause();
        then();
      };
      io.stdin.on("data", onData);
      io.stdin.resume();
    });
  } finally {
    io.stdin.setRawMode?.(false);
    io.stderr.write("\n");
  }
}

/** The first line of standard input, at most 4 KiB. */
export async function firstLine(io: Io): Promise<string> {
  let text = "";
  for await (const chunk of io.stdin) {
    text += String(chunk);
    if (text.includes("\n") || text.length > 4096) break;
  }
  return text.split(/\r?\n/, 1)[0]!.slice(0, 4096);
}
