import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';

const processRefSchema = z.object({ pid: z.number().int().positive(), startTicks: z.number().int().positive() });

const nodeSchema = z.object({
  index: z.number().int().min(1),
  name: z.string(),
  sshPort: z.number().int().min(1).max(65535),
  hostKeySha256: z.string().startsWith('SHA256:'),
  /** Null while the node is off. */
  machine: processRefSchema.nullable(),
  /** Names of the faults that are on, with their peer where they have one. */
  faults: z.array(z.object({ name: z.string(), peer: z.number().int().optional() })),
});

const stateSchema = z.object({
  version: z.literal(1),
  /** `starting` until every node has been reached; an `up` that was killed leaves it so. */
  phase: z.enum(['starting', 'up']),
  imageHash: z.string(),
  imageDir: z.string(),
  kernelRelease: z.string(),
  hub: processRefSchema.nullable(),
  nodes: z.array(nodeSchema),
});

/** What is written down about a running lab; the file build/out/lab/state.json. */
export type RunState = z.infer<typeof stateSchema>;
export type NodeState = z.infer<typeof nodeSchema>;

const fileName = 'state.json';

/** The lab's state, or undefined when there is none. A file that can't be read counts as none: cleaning finds processes by the lab's token. */
export async function readState(dir: string): Promise<RunState | undefined> {
  let text: string;
  try {
    text = await readFile(join(dir, fileName), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return stateSchema.parse(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof z.ZodError) return undefined;
    throw error;
  }
}

/** Replaces the state whole: a reader sees the old one or the new one, and writes keep their order. */
export function writeState(dir: string, state: RunState): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const temporary = join(dir, `.${fileName}.${process.pid}`);
  writeFileSync(temporary, JSON.stringify(state, null, 1), { mode: 0o600 });
  renameSync(temporary, join(dir, fileName));
}
