import { describe, expect, it } from "vitest";
import { analyse } from "./engine.js";
import { cleanLine } from "./logs/clean.js";
import { parsePrefix } from "./logs/prefix.js";
import { AGAINST } from "./rules/against.js";
import { RULES } from "./rules/index.js";
import { WATCHERS } from "./watch/index.js";

/** Fillers that make careless expressions try many ways: repeats of what their parts may match. */
const FILLERS = ["a", "0", " ", ":", "((", "x1 ", "0000:", "1.2.3.4 ", "aaaa:bb:cc.0 ", "status 12 ", "error ", "[", "= ", "failed with ", "\t", "Link ", "dead ", "192.168.122.1 "];

/** Below this a clock on a busy machine tells nothing. */
const FLOOR_MS = 15;

function best(run: () => void, rounds: number): number {
  let min = Number.POSITIVE_INFINITY;
  for (let i = 0; i < rounds; i++) { const t = performance.now(); run(); min = Math.min(min, performance.now() - t); }
  return min;
}

/** Twice the text takes at most three times as long, give or take what a clock can tell. */
function expectLinear(run: (text: string) => void, make: (chars: number) => string, what: string, attempts: readonly number[] = [1, 3, 9, 27]): void {
  const small = make(8_192);
  const large = make(16_384);
  // A quadratic one takes hundreds of ms here: what a busy machine adds is tried away.
  let one = 0;
  let two = 0;
  for (const rounds of attempts) {
    one = best(() => { run(small); }, rounds);
    two = best(() => { run(large); }, rounds);
    if (two <= Math.max(FLOOR_MS, 3 * one)) return;
  }
  expect(two, `${what}: ${one.toFixed(2)} ms, then ${two.toFixed(2)} ms`).toBeLessThanOrEqual(Math.max(FLOOR_MS, 3 * one));
}

describe("time grows no faster than the input", () => {
  const signatures = RULES.flatMap((rule) => (rule.sig ?? []).flatMap((sig, i) => (sig.re ? [[`${rule.id} ${i}`, sig.any, sig.re] as const] : [])));
  const contrary = AGAINST.flatMap((a) => (a.re ? [[`against ${a.classes[0]!} ${a.any[0]!}`, a.any, a.re] as const] : []));
  it("the measure finds an expression that is not linear", () => {
    // Cubic, so that twice the text takes eight times as long: far from the bound of three, however busy the machine is.
    const bad = /a+a+[^a]*?c/;
    // The first runs of an expression are interpreted and slow, which would hide how the compiled ones grow.
    for (let i = 0; i < 5; i++) bad.exec("a".repeat(200));
    expect(() => { expectLinear((t) => { bad.exec(t); }, (n) => "a".repeat(n / 32), "bad", [3, 5]); }).toThrow();
  }, 60_000);
  it.each([...signatures, ...contrary])("expression of %s", (name, literals, re) => {
    const start = `${literals[0]} `;
    for (const filler of FILLERS) {
      // The literal over and over as well, so that every start of a match is tried.
      expectLinear((t) => { re.exec(t); }, (n) => start + filler.repeat(Math.ceil(n / filler.length)).slice(0, n), `${name} with ${JSON.stringify(filler)}`);
      expectLinear((t) => { re.exec(t); }, (n) => (start + filler).repeat(Math.ceil(n / (start.length + filler.length))).slice(0, n), `${name} with ${JSON.stringify(start + filler)}`);
    }
  }, 180_000);

  it.each(WATCHERS.filter((w) => w.triggers.length > 0).map((w) => [w.id, w] as const))("lines that call the watcher %s", (name, watcher) => {
    for (const filler of ["a", "0", " : ", "0000:00:00.0 ", "(12) ", "| mlx5_0 ", "[", "x=1 "]) {
      const body = (n: number): string => watcher.triggers.slice(0, 4).map((t) => (`${t} ${filler}`).repeat(Math.ceil(n / 4 / (t.length + 1 + filler.length)))).join("\n");
      expectLinear((t) => { analyse([{ name: "x", data: t }]); }, body, `${name} with ${JSON.stringify(filler)}`);
    }
  }, 180_000);

  it.each(["\u001b[", "\u001b]", "[1;", "Jan 1 ", "[  ", "node1: ", "<6>", "2025-01-01T", "kern :err : ", "1,1,1,-;", "[1,1]<stderr>:", "\u202e"])("prefix and escapes of %j", (part) => {
    expectLinear((t) => { parsePrefix(cleanLine(t)); }, (n) => part.repeat(Math.ceil(n / part.length)), part);
  });
});
