import { z } from "zod";

/**
 * What a rank says: the lines of `stepccl-perf --json` (native/README.md) and the daemon's own words about the rank
 * (agent/PROTOCOL.md). Every number is the rank's; a line that is none of these is ignored, since a newer runtime may say more.
 */
const short = z.string().max(256);
const finite = z.number();

const TimingLine = z.object({ time_us: finite, algbw_GBps: finite, busbw_GBps: finite, wrong: z.number().nullable() });

export const RankLine = z.discriminatedUnion("event", [
  z.object({ event: z.literal("spawned"), pid: z.number().optional() }),
  z.object({ event: z.literal("start"), encryption: z.enum(["off", "tls"]).optional().catch(undefined) }),
  z.object({
    event: z.literal("row"), bytes: z.number().nonnegative(), count: z.number().nonnegative(), datatype: short, redop: short, root: z.number(), algorithm: short,
    transport: short, iterations: z.number().nonnegative(), out_of_place: TimingLine, in_place: TimingLine.nullish(),
  }),
  z.object({
    event: z.literal("error"), code: z.string().regex(/^(R|DE|A)\d{3}$/), message: z.string().max(4096), next: z.string().max(4096).optional(),
    peer: z.number().int().nullish(), detail: z.object({ signal: short.nullish(), status: z.number().nullish() }).optional().catch(undefined),
  }),
  z.object({ event: z.literal("exited"), status: z.number().int().nullish(), signal: z.union([short, z.number()]).nullish() }),
  z.object({ event: z.literal("stderr"), line: z.string().max(65_536) }),
  z.object({ event: z.literal("run_end"), state: z.enum(["succeeded", "failed", "stopped"]) }),
]);
export type RankLine = z.output<typeof RankLine>;
export type RowLine = Extract<RankLine, { event: "row" }>;
