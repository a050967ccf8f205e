/** Ends with status 0 when node_modules holds what package-lock.json says, else with 1 and the first difference. */
import { readFileSync } from "node:fs";

function packages(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8")).packages ?? {};
  } catch {
    return {};
  }
}

const wanted = packages("package-lock.json");
// npm removes this file when it begins to change node_modules and writes it when it has ended.
const present = packages("node_modules/.package-lock.json");
for (const [path, entry] of Object.entries(wanted)) {
  if (path === "" || (entry.optional && !present[path])) continue;
  if (present[path]?.version !== entry.version) {
    console.log(`${path}: ${present[path]?.version ?? "absent"}, wanted ${entry.version}`);
    process.exit(1);
  }
}
for (const path of Object.keys(present)) {
  if (!wanted[path]) {
    console.log(`${path}: not in package-lock.json`);
    process.exit(1);
  }
}
