import { readdir, readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, isAbsolute, join } from "node:path";
import SSHConfig from "ssh-config";
import type { Line } from "ssh-config";
import { expandHome } from "./auth.js";
import { globMatches } from "./known_hosts.js";

const MAX_DEPTH = 8;
const MAX_FILES = 256;
const MAX_FILE_BYTES = 1 << 20;

/** The words of a directive's value. */
export function wordsOf(line: Line): string[] {
  if (!("value" in line)) return [];
  return typeof line.value === "string" ? line.value.split(/[ \t]+/).filter(Boolean) : line.value.map((v) => v.val);
}

export interface ConfigText {
  /** The file with each Include replaced by what it names. */
  readonly text: string;
  /** Aliases of Host lines that name one host: no pattern, no negation. In the order of the files. */
  readonly aliases: string[];
  /** Whether a `Match exec` stands somewhere: evaluating it would run a command. */
  readonly matchExec: boolean;
  /** Files that could not be read, and why. */
  readonly problems: string[];
}

/** Reads a client configuration and what it includes. No command is run, nothing but plain files is opened. */
export async function readConfigFiles(path: string): Promise<ConfigText> {
  const problems: string[] = [];
  let files = 0;

  const visit = async (file: string, depth: number, stack: readonly string[]): Promise<string> => {
    if (stack.includes(file)) problems.push(`${file} includes itself`);
    else if (depth > MAX_DEPTH || ++files > MAX_FILES) problems.push(`${file}: too many included files`);
    else return await expand(await readPlain(file), file, depth, stack);
    return "";
  };
  const expand = async (text: string, file: string, depth: number, stack: readonly string[]): Promise<string> => {
    const lines: string[] = [];
    for (const line of text.split(/\r?\n/)) {
      const include = /^\s*include(?:\s+|\s*=\s*)(.+)$/i.exec(line);
      if (!include) {
        lines.push(line);
        continue;
      }
      for (const pattern of (include[1] ?? "").match(/"[^"]*"|\S+/g) ?? []) {
        for (const included of await matching(pattern.replaceAll('"', ""))) lines.push(await visit(included, depth + 1, [...stack, file]));
      }
    }
    return lines.join("\n");
  };
  const readPlain = async (file: string): Promise<string> => {
    try {
      const info = await stat(file);
      if (!info.isFile() || info.size > MAX_FILE_BYTES) throw new Error(info.isFile() ? "too large" : "no plain file");
      return await readFile(file, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") problems.push(`${file}: ${(error as Error).message.slice(0, 200)}`);
      return "";
    }
  };
  const text = await visit(path, 0, []);
  return { text, problems, ...namesOf(text, path, problems) };
}

function namesOf(text: string, path: string, problems: string[]): { aliases: string[]; matchExec: boolean } {
  const aliases = new Set<string>();
  let matchExec = /^\s*match\b.*\bexec\b/im.test(text);
  try {
    for (const line of SSHConfig.parse(text)) {
      if (!("param" in line)) continue;
      if ("criteria" in line) matchExec ||= Object.keys(line.criteria).some((name) => /exec/i.test(name));
      if (line.param.toLowerCase() === "host") for (const word of wordsOf(line)) if (!/[*?!]/.test(word)) aliases.add(word);
    }
  } catch (error) {
    problems.push(`${path}: ${error instanceof Error ? error.message.slice(0, 200) : "not understood"}`);
  }
  return { aliases: [...aliases], matchExec };
}

/** The files that one pattern of an Include names, in lexical order; relative ones live in ~/.ssh (ssh_config(5)). */
async function matching(pattern: string): Promise<string[]> {
  const expanded = expandHome(pattern);
  const path = isAbsolute(expanded) ? expanded : join(homedir(), ".ssh", expanded);
  if (!/[*?]/.test(path)) return [path];
  const dir = dirname(path);
  if (/[*?]/.test(dir)) return [];
  const names = await readdir(dir).catch(() => [] as string[]);
  return names.filter((name) => !name.startsWith(".") && globMatches(basename(path), name)).sort().map((name) => join(dir, name));
}
