import { z } from "zod";
import { ConsoleError } from "../../contract/index.js";
import { plainLine } from "../../ssh/quote.js";

/** What one rank's flight recorder holds, whoever wrote it. Texts are cleaned and cut: a recording is hostile. */
export interface Recording {
  format: "stepccl" | "pytorch_nccl";
  job: string;
  communicator: string;
  rank: number;
  worldSize: number;
  host: string;
  pid: number | null;
  alive: boolean | null;
  takenAtMs: number | null;
  operations: Operation[];
}
export interface Operation {
  sequence: bigint;
  collective: string;
  datatype: string;
  redop: string;
  count: string;
  root: number | null;
  state: "queued" | "started" | "completed" | "failed";
  queuedAtMs: number | null;
  startedAtMs: number | null;
  endedAtMs: number | null;
  errorCode: string | null;
  waitingFor: number[];
  /** A send or receive: its number counts those of one pair, and means nothing to the other ranks. */
  pointToPoint: boolean;
  /** The other end of a send or receive, where the recorder names it. */
  peer: number | null;
}

export const MAX_WORLD = 65_536;
const MAX_OPERATIONS = 100_000;
const word = z.string().transform((v) => plainLine(v, 64));
const whole = z.number().int().min(0);
const rank = whole.max(MAX_WORLD - 1);
/** 64-bit numbers: decimal text, or a number that is exact. */
const big = z.union([z.string().regex(/^\d{1,20}$/), whole.max(Number.MAX_SAFE_INTEGER)]).transform((v) => BigInt(v));
/** PyTorch writes them as numbers that JSON can't hold exactly; a millisecond is kept. */
const nanos = z.union([z.string().regex(/^\d{1,20}$/), z.number().min(0)]).nullish().transform((v) => (v === null || v === undefined || Number(v) === 0 ? null : Math.round(Number(v) / 1e6)));
const rootOf = z.number().int().nullish().transform((v) => (v === undefined || v === null || v < 0 ? null : v));

const StepcclOperation = z.object({
  sequence: big, collective: word, datatype: word, redop: word.nullish(), count: big, root: rootOf, peer: rank.nullish(),
  state: z.enum(["queued", "started", "completed", "failed"]), queued_at_unix_ns: nanos, started_at_unix_ns: nanos, ended_at_unix_ns: nanos,
  error_code: word.nullish(), waiting_for: z.array(rank).max(4096).nullish(),
});
const Stepccl = z.object({
  format: z.literal("stepccl-flight-recorder"), version: z.number().int().min(1), job: word, communicator: word, rank, world_size: whole.min(1).max(MAX_WORLD), hostname: word,
  pid: whole.nullish(), alive: z.boolean().nullish(), taken_at_unix_ns: nanos, operations: z.array(StepcclOperation).max(MAX_OPERATIONS),
});

const TorchEntry = z.object({
  process_group: z.array(word).max(8).nullish(), pg_id: z.number().nullish(), collective_seq_id: big.nullish(), p2p_seq_id: big.nullish(), profiling_name: word.nullish(), state: z.string().max(64),
  is_p2p: z.boolean().nullish(), input_sizes: z.array(z.array(z.number()).max(64)).max(1024).nullish(), input_dtypes: z.union([z.array(word).max(1024), word]).nullish(),
  time_created_ns: nanos, time_discovered_started_ns: nanos, time_discovered_completed_ns: nanos, retired: z.boolean().nullish(),
});
const Torch = z.object({ version: z.union([z.string(), z.number()]), pg_config: z.record(z.string().max(128), z.object({ ranks: z.string().max(1_000_000).nullish(), name: word.nullish() })).nullish(), rank: rank.nullish(), entries: z.array(TorchEntry).max(MAX_OPERATIONS) });

function fromStepccl(r: z.output<typeof Stepccl>): Recording {
  return {
    format: "stepccl", job: r.job, communicator: r.communicator, rank: r.rank, worldSize: Math.max(r.world_size, r.rank + 1), host: r.hostname, pid: r.pid ?? null, alive: r.alive ?? null, takenAtMs: r.taken_at_unix_ns,
    operations: r.operations.map((o) => ({
      sequence: o.sequence, collective: o.collective, datatype: o.datatype, redop: o.redop ?? "", count: String(o.count), root: o.root, state: o.state, queuedAtMs: o.queued_at_unix_ns,
      startedAtMs: o.started_at_unix_ns, endedAtMs: o.ended_at_unix_ns, errorCode: o.error_code ?? null, waitingFor: o.waiting_for ?? [], pointToPoint: /^(?:send|recv)$/.test(o.collective), peer: o.peer ?? null,
    })),
  };
}

/** PyTorch writes one file a rank, with all of its process groups; the rank stands in the file's name. */
function fromTorch(t: z.output<typeof Torch>, fileName: string): Recording[] {
  const named = t.rank ?? Number(/(?:rank[_.-]?|trace_)(\d{1,5})(?!\d)/i.exec(fileName)?.[1] ?? /(\d{1,5})(?:\.json)?$/.exec(fileName)?.[1] ?? NaN);
  if (!Number.isInteger(named) || named >= MAX_WORLD) throw new Error("the file's name does not end in its rank");
  const groups = new Map<string, Recording>();
  for (const entry of t.entries) {
    const id = entry.process_group?.[0] ?? String(entry.pg_id ?? 0);
    const members = membersOf(t.pg_config?.[id]?.ranks);
    let r = groups.get(id);
    if (!r) {
      r = { format: "pytorch_nccl", job: "", communicator: entry.process_group?.[1] ? `${id} (${entry.process_group[1]})` : id, rank: members ? Math.max(0, members.indexOf(named)) : named, worldSize: members?.length ?? 0, host: "", pid: null, alive: null, takenAtMs: null, operations: [] };
      groups.set(id, r);
    }
    const p2p = entry.is_p2p === true;
    const done = entry.retired === true && entry.state === "completed" ? true : entry.state === "completed";
    r.operations.push({
      sequence: (p2p ? entry.p2p_seq_id : entry.collective_seq_id) ?? 0n, collective: (entry.profiling_name ?? "").replace(/^nccl:/, ""), datatype: [entry.input_dtypes ?? []].flat().join(","), redop: "",
      count: String((entry.input_sizes ?? []).reduce((sum, dims) => sum + dims.reduce((a, b) => a * b, 1), 0)), root: null, state: done ? "completed" : entry.state === "started" ? "started" : "queued",
      queuedAtMs: entry.time_created_ns, startedAtMs: entry.time_discovered_started_ns, endedAtMs: entry.time_discovered_completed_ns, errorCode: null, waitingFor: [], pointToPoint: p2p, peer: null,
    });
  }
  return [...groups.values()];
}

/** "[0, 1, 2]" as PyTorch writes the members of a group. */
function membersOf(text: string | null | undefined): number[] | null {
  const found = [...(text ?? "").matchAll(/\d{1,6}/g)].map((m) => Number(m[0]));
  return found.length > 0 && found.length <= MAX_WORLD ? found : null;
}

/** Recordings of a daemon's answer; one that does not fit is told by `onBad`, and the others stay. */
export function readRecorders(recorders: readonly unknown[], onBad: (problem: string) => void): Recording[] {
  return recorders.flatMap((each) => {
    const parsed = Stepccl.safeParse(each);
    if (parsed.success) return [fromStepccl(parsed.data)];
    onBad(plainLine(parsed.error.issues[0] ? `${parsed.error.issues[0].path.join(".")}: ${parsed.error.issues[0].message}` : "no recording", 200));
    return [];
  });
}

/** Recordings of one file. @throws ConsoleError H608 when it is none */
export function readRecordingFile(name: string, text: string): Recording[] {
  const bad = (detail: string): ConsoleError => ConsoleError.of("H608", { name: plainLine(name, 80), detail });
  if (text.startsWith("\u0080") || text.startsWith("\ufffd")) throw bad("it is a Python pickle; dump it as JSON (TORCH_NCCL_DEBUG_INFO_TEMP_FILE with _dump_nccl_trace_json)");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw bad("it is no JSON");
  }
  const list = Array.isArray(value) ? value : typeof value === "object" && value !== null && Array.isArray((value as { recorders?: unknown }).recorders) ? (value as { recorders: unknown[] }).recorders : [value];
  if (list.length > MAX_WORLD) throw bad("it holds too many recordings");
  const torch = Torch.safeParse(list[0]);
  try {
    if (torch.success && list.length === 1) return fromTorch(torch.data, name);
  } catch (error) {
    throw bad((error as Error).message);
  }
  let problem = "it holds no recording";
  const found = readRecorders(list, (p) => { problem = p; });
  if (found.length === 0) throw bad(problem);
  return found;
}
