import { z } from 'zod';

/** Requests on the hub's control socket: one JSON object a line, answered by one line each. */
const port = z.number().int().min(1).max(32);

export const hubRequest = z.discriminatedUnion('op', [
  z.strictObject({
    op: z.literal('link'),
    port,
    dropPercent: z.number().min(0).max(100).optional(),
    delayMs: z.number().min(0).max(10_000).optional(),
    cut: z.boolean().optional(),
  }),
  z.strictObject({ op: z.literal('pair'), a: port, b: port, cut: z.boolean() }),
  /** Makes the links of one node, or of all, whole again. */
  z.strictObject({ op: z.literal('restore'), port: port.optional() }),
  z.strictObject({ op: z.literal('status') }),
]);
export type HubRequest = z.infer<typeof hubRequest>;

const counters = z.object({
  rxFrames: z.number(),
  rxBytes: z.number(),
  txFrames: z.number(),
  txBytes: z.number(),
  lost: z.number(),
  cut: z.number(),
  overrun: z.number(),
});

export const hubReply = z.union([
  z.object({
    ok: z.literal(true),
    ports: z.array(
      z.object({
        port: z.number(),
        attached: z.boolean(),
        link: z.object({ dropPercent: z.number(), delayMs: z.number(), cut: z.boolean() }),
        counters: counters.optional(),
      }),
    ),
    cutPairs: z.array(z.tuple([z.number(), z.number()])),
  }),
  z.object({ ok: z.literal(false), error: z.string() }),
]);
export type HubReply = z.infer<typeof hubReply>;
export type HubStatus = Extract<HubReply, { ok: true }>;
