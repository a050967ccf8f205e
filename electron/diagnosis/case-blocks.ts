import { Severity } from "../contract/index.js";

/**
 * Short cases, many in one file: `== class|class severity :: name :: where it was found`, then the input. The first class is what must stand
 * first, the others are accepted; `info` means that nothing above "info" may be reported. Severity and origin may be left out. A line
 * `-- name` begins another file of the same case.
 */
export interface CaseBlock { name: string; wanted: string[]; severity: Severity | null; origin: string | null; inputs: { name: string; text: string }[] }

/** @throws Error naming the header that is not of this form */
export function parseBlocks(text: string): CaseBlock[] {
  return text.split(/^== /m).slice(1).map((block) => {
    const end = block.indexOf("\n");
    const [head, name, origin] = block.slice(0, end).split(" :: ").map((s) => s.trim());
    const [classes, severity] = (head ?? "").split(" ");
    if (!classes || !name) throw new Error(`no case header: ${block.slice(0, end)}`);
    const [first, ...rest] = block.slice(end + 1).split(/^-- (.+)\n/m);
    const inputs = first!.trim() === "" ? [] : [{ name: "pasted.txt", text: first! }];
    for (let i = 0; i + 1 < rest.length; i += 2) inputs.push({ name: rest[i]!.trim(), text: rest[i + 1]! });
    return { name, wanted: classes.split("|"), severity: severity === undefined ? null : Severity.parse(severity), origin: origin ?? null, inputs };
  });
}
