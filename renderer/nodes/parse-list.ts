import { NodeInput } from "../../electron/contract/index.js";

export interface ParsedLine {
  /** 1-based, as an editor counts. */
  line: number;
  text: string;
  /** Null where the line is no node; `problem` then says which part. */
  input: { host: string; port: number; user: string } | null;
}

/**
 * Nodes from pasted text: one `user@host[:port]` a line, IPv6 in brackets. Blank lines and `#` comments are skipped; repeated
 * nodes are taken once. The user may be left out where `defaultUser` is given.
 */
export function parseNodeList(text: string, defaultUser: string): ParsedLine[] {
  const seen = new Set<string>();
  const lines: ParsedLine[] = [];
  text.split(/\r?\n/).forEach((raw, index) => {
    const line = raw.replace(/(^|\s)#.*$/, "").trim();
    if (line === "") return;
    const match = /^(?:([^@\s]+)@)?(\[[0-9A-Fa-f:.%a-z]+\]|[^:\s[\]]+)(?::(\d{1,5}))?$/.exec(line);
    const candidate = match && { host: match[2]!.replace(/^\[|\]$/g, ""), port: match[3] === undefined ? 22 : Number(match[3]), user: match[1] ?? defaultUser };
    const valid = candidate !== null && NodeInput.safeParse(candidate).success;
    const key = valid ? `${candidate.user}@${candidate.host}:${candidate.port}` : null;
    if (key !== null) {
      if (seen.has(key)) return;
      seen.add(key);
    }
    lines.push({ line: index + 1, text: line, input: valid ? candidate : null });
  });
  return lines;
}
