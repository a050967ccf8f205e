import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { evaluate, formatTable, readCases } from "./fault-report.js";

/** Reads cases, names each one's fault, and says how often that was right. Ends with 1 when the goal is missed. */
const { values } = parseArgs({ options: { cases: { type: "string" }, json: { type: "string" }, quiet: { type: "boolean" }, write: { type: "boolean" } }, allowPositionals: true });
const folder = values.cases ?? join(dirname(fileURLToPath(import.meta.url)), "cases");
const cases = readCases(folder, { readdirSync, readFileSync, statSync });
if (cases.length === 0) {
  console.error(`no case.json under ${folder}`);
  process.exit(2);
}
const report = evaluate(cases);
if (!values.quiet) console.log(formatTable(report));
// The table of the own cases is kept beside them; engine.test.ts holds it to the truth.
if (values.write && values.cases === undefined) writeFileSync(join(folder, "results.txt"), `${formatTable(report)}\n`);
if (values.json) writeFileSync(values.json, `${JSON.stringify(report, null, 1)}\n`);
const { summary } = report;
// Not exit(): what is still on its way into a pipe would be lost.
process.exitCode = summary.expected_first / summary.cases >= 0.95 && summary.false_alarms === 0 ? 0 : 1;
