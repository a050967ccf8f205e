import { AGAINST } from "./against.js";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { Severity } from "../../contract/index.js";
import { EDGES } from "../blame.js";
import { XID } from "../decode/nvidia.js";
import { DRIVER_CODES } from "../decode/stepccl.js";
import { INPUT_KINDS } from "../types.js";
import { WATCHERS } from "../watch/index.js";
import { RULE_FILES, RULES, ruleOf } from "./index.js";

const English = z.string().min(3).max(400).refine((t) => !/[\u3400-\u9fff\uff00-\uffef]/.test(t), "Chinese in the English text").refine((t) => /^[A-Z0-9'_/a-z(-]/.test(t));
const Chinese = z.string().min(2).max(300).refine((t) => /[\u3400-\u9fff]/.test(t), "no Chinese in the Chinese text");
const Text = z.tuple([English, Chinese]);
const Literal = z.string().min(3).max(90).refine((t) => t === t.toLowerCase() && /^[\x20-\x7e]+$/.test(t) && !/ {2}/.test(t), "a literal is lower-case ASCII with single blanks");
const Signature = z.strictObject({ any: z.array(Literal).min(1), all: z.array(z.string().min(2)).optional(), not: z.array(z.string().min(2)).optional(), re: z.instanceof(RegExp).optional(), severity: Severity.optional() });
const RuleSchema = z.strictObject({
  id: z.string().regex(/^[a-z0-9_]+(\.[a-z0-9_]+)+$/), code: z.string().regex(/^[FS]\d{3}$/), severity: Severity, role: z.enum(["cause", "consequence", "pointer", "note"]).optional(),
  needs: z.array(z.enum(INPUT_KINDS)).min(1), sig: z.array(Signature).optional(), checkedBy: z.array(z.string()).optional(), perNode: z.boolean().optional(), candidates: z.array(z.string()).optional(),
  title: Text, what: Text, causes: z.array(Text).optional(), checks: z.array(Text).optional(),
  mend: z.array(z.tuple([z.string().min(3), z.enum(["none", "restarts_service", "interrupts_jobs", "destructive"]), English, Chinese])).optional(),
});

describe.each(Object.entries(RULE_FILES))("rules of %s", (_name, rules) => {
  it.each(rules.map((r) => [r.id, r] as const))("%s holds the schema, in both languages", (_id, rule) => {
    RuleSchema.parse(rule);
    expect((rule.sig?.length ?? 0) + (rule.checkedBy?.length ?? 0)).toBeGreaterThan(0);
    if (rule.role !== "note") {
      expect(rule.causes?.length ?? 0).toBeGreaterThan(0);
      expect(rule.mend?.length ?? 0).toBeGreaterThan(0);
    }
    for (const other of rule.candidates ?? []) ruleOf(other);
  });
});

describe("the rules together", () => {
  it("157 classes of the catalogue, each with its own name and code", () => {
    expect(RULES.filter((r) => r.code.startsWith("F")).map((r) => r.code).sort()).toEqual(Array.from({ length: 157 }, (_, i) => `F${String(i + 1).padStart(3, "0")}`));
    expect(new Set(RULES.map((r) => r.id)).size).toBe(RULES.length);
    expect(new Set(RULES.map((r) => r.code)).size).toBe(RULES.length);
  });
  it("no expression nests quantifiers over what may match the same text", () => {
    for (const rule of RULES) for (const sig of rule.sig ?? []) if (sig.re) {
      // A group that is repeated without bound and itself holds an unbounded repeat.
      expect(sig.re.source, rule.id).not.toMatch(/\((?:\?:)?[^()]*[^\\][*+][^()]*\)[*+]/);
      expect(sig.re.source, rule.id).not.toMatch(/\{\d+,\}/);
    }
  });
  it("a signature's literal is in the text that its expression describes: the prefilter never hides a match", () => {
    for (const rule of RULES) for (const sig of rule.sig ?? []) expect(sig.any.every((l) => l.length >= 3), rule.id).toBe(true);
  });
  it("blame names only classes that exist", () => {
    for (const [causes, consequences] of EDGES) for (const pattern of [...causes, ...consequences]) {
      const known = pattern.endsWith("*") ? RULES.some((r) => r.id.startsWith(pattern.slice(0, -1))) : RULES.some((r) => r.id === pattern);
      expect(known, pattern).toBe(true);
    }
  });
  it("the driver's codes and the Xid table lead to classes", () => {
    for (const { class: cls } of Object.values(DRIVER_CODES)) if (cls) ruleOf(cls);
    expect(Object.keys(XID).length).toBeGreaterThan(40);
  });
  it("each driver code with a class is found in a kernel line", async () => {
    const { analyse } = await import("../engine.js");
    for (const [code, { class: cls }] of Object.entries(DRIVER_CODES)) {
      if (!cls) continue;
      const found = analyse([{ name: "x", data: `[   10.1] dma_engine: ${code} ${SAMPLE[code] ?? "event"}\n` }]).findings.map((f) => f.class);
      expect(found, code).toContain(cls);
    }
  });
  it("every class has words in both languages", () => {
    for (const rule of RULES) for (const [en, zh] of [rule.title, rule.what, ...(rule.causes ?? []), ...(rule.checks ?? []), ...(rule.mend ?? []).map((m) => [m[2], m[3]])]) {
      expect(en, rule.id).toMatch(/\S/);
      expect(zh, rule.id).toMatch(/[\u4e00-\u9fff]/);
      expect(en, rule.id).not.toMatch(/[\u4e00-\u9fff]/);
    }
  });
  it("what speaks against a class names classes that exist, in literals that the finder takes and both languages", () => {
    for (const { classes, any, text: [en, zh] } of AGAINST) {
      for (const c of classes) ruleOf(c);
      for (const literal of any) expect(literal).toBe(literal.toLowerCase());
      expect(en).toMatch(/\S/);
      expect(zh).toMatch(/[\u4e00-\u9fff]/);
    }
  });
  it("watchers have names of their own", () => {
    expect(new Set(WATCHERS.map((w) => w.id)).size).toBe(WATCHERS.length);
    for (const w of WATCHERS) { expect(w.triggers.length === 0 || w.line !== undefined, w.id).toBe(true); for (const t of w.triggers) expect(t).toBe(t.toLowerCase()); }
  });
});

const SAMPLE: Record<string, string> = {
  DE101: "memlock pid=812 comm=rank0 need=65536 pinned=2048 limit=2048 pages", DE102: "pin failed pid=4 page=265/113749 err=-14 reason=hole", DE104: "map failed chan=dma0chan0 err=-5 mask=28",
  DE105: "quota pid=9 what=mrs", DE203: "node 9 not in routing table (EHOSTUNREACH)", DE301: "engine error chan=dma0chan0 res=WRITE_FAILED len=4", DE302: "timeout chan=dma0chan0 age=30000ms", DE303: "chan=dma0chan0 removed with inflight=3",
};
