/**
 * The runtime across real nodes: every collective over TCP and RDMA with every result checked, and what a killed rank and
 * a cut link are called. Prints TAP, and last "N passed, N failed, 0 skipped".
 *   npx tsx e2e/lab/collectives.ts [STEPCCL_PERF]
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Lab, type LabNode, type LabState } from './lab.js';
import { repoRoot } from './paths.js';
import { sshExec, type ExecResult } from './ssh.js';

const perf = process.argv[2] ?? join(repoRoot, 'build/out/native/stepccl-perf');
const remote = '/tmp/stepccl-perf';
const collectives = ['all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'reduce', 'scatter', 'gather', 'all_to_all', 'send_recv', 'barrier'];

interface Event {
  event: string;
  rank?: number;
  [member: string]: unknown;
}

let passed = 0;
let failed = 0;

function report(name: string, problem?: string): void {
  if (problem === undefined) passed += 1;
  else failed += 1;
  console.log(`${problem === undefined ? 'ok' : 'not ok'} ${passed + failed} - ${name}`);
  if (problem !== undefined) console.log(problem.split('\n').slice(-30).map((line) => `# ${line}`).join('\n'));
}

async function step(name: string, body: () => Promise<string | undefined>): Promise<void> {
  try {
    report(name, await body());
  } catch (error) {
    report(name, error instanceof Error ? error.message : String(error));
  }
}

function runner(privateKey: string) {
  return async (node: LabNode, command: string, input = '', timeoutMs = 60_000): Promise<ExecResult> =>
    sshExec({ port: node.sshPort, user: node.user, privateKey, hostKeySha256: node.hostKeySha256 }, command, { input, timeoutMs });
}
type Run = ReturnType<typeof runner>;

const events = (output: string): Event[] =>
  output.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line) as Event);

interface Layout {
  /** Ranks of one node, numbered one after another. */
  perNode?: number;
  environment?: string;
}

/** Starts one job over all nodes and gives every rank's events. */
async function job(lab: LabState, run: Run, options: string, during?: () => Promise<void>, { perNode = 1, environment = '' }: Layout = {}): Promise<Event[]> {
  const [first] = lab.nodes;
  if (first === undefined) throw new Error('the lab has no nodes');
  const log = '/tmp/stepccl-rank0.json';
  const common = `STEPCCL_TELEMETRY_DIR= STEPCCL_HEARTBEAT_TIMEOUT_MS=4000 ${environment} ${remote} --json --world-size ${lab.nodes.length * perNode} ${options}`;
  const started = await run(
    first,
    `rm -f ${log}; (ulimit -l unlimited; ${common} --rank 0 --rendezvous-listen --rendezvous-address ${first.dataAddress} > ${log} 2>&1; echo "{\\"event\\":\\"left\\"}" >> ${log}) >/dev/null 2>&1 &
     for i in $(seq 100); do grep -q unique_id ${log} 2>/dev/null && break; sleep 0.05; done; cat ${log}`,
  );
  const id = events(started.stdout).find((event) => event.event === 'unique_id')?.id;
  if (typeof id !== 'string') throw new Error(`rank 0 gave no unique id: ${started.stdout}${started.stderr}`);
  // Each rank through a session of its own, so that their lines do not mix; rank 0 runs already.
  const rest = lab.nodes.flatMap((node, index) => Array.from({ length: perNode }, (_, place) => ({ node, rank: index * perNode + place }))).slice(1)
    .map(({ node, rank }) => run(node, `ulimit -l unlimited; ${common} --rank ${rank} --unique-id-stdin 2>&1`, `${id}\n`));
  await during?.();
  const results = await Promise.all(rest);
  const own = await run(first, `for i in $(seq 400); do grep -q '"left"' ${log} && break; sleep 0.05; done; cat ${log}`);
  return [...events(own.stdout), ...results.flatMap((result) => events(result.stdout))];
}

/** What is wrong with a run that should have measured every collective on all ranks; nothing when all is well. */
function problemOf(all: Event[], world: number): string | undefined {
  const text = (): string => all.filter((event) => event.event !== 'unique_id').map((event) => JSON.stringify(event)).join('\n');
  if (all.some((event) => event.event === 'error')) return text();
  if (all.filter((event) => event.event === 'end' && event.status === 0).length !== world) return text();
  const rows = all.filter((event) => event.event === 'row');
  for (const collective of collectives) {
    const own = rows.filter((row) => row.collective === collective);
    if (own.length === 0) return `no row of ${collective}\n${text()}`;
    for (const row of own) {
      for (const side of ['out_of_place', 'in_place'] as const) {
        if ((row[side] as { wrong: number | null }).wrong !== 0) return `${collective}: ${JSON.stringify(row)}`;
      }
    }
  }
  return undefined;
}

/** Whether the ranks in `tellers` name `culprit` with one of the codes. */
function blames(all: Event[], tellers: number[], culprit: number, codes: string[]): string | undefined {
  for (const rank of tellers) {
    const error = all.find((event) => event.event === 'error' && event.rank === rank);
    if (error === undefined) return `rank ${rank} tells of no error\n${JSON.stringify(all.filter((event) => event.event !== 'row' && event.event !== 'unique_id'))}`;
    if (!codes.includes(String(error.code)) || error.peer !== culprit) return `rank ${rank}: ${JSON.stringify(error)}`;
  }
  return undefined;
}

async function suites(lab: Lab, state: LabState, run: Run): Promise<void> {
  const sizes = '-b 4 -e 256K -f 256 -n 2 -w 1';
  for (const transport of ['tcp', 'rdma']) {
    await step(`every collective over ${transport} on ${state.nodes.length} nodes, nothing wrong`, async () =>
      problemOf(await job(state, run, `--collective all --transport ${transport} ${sizes}`), state.nodes.length));
  }
  for (const transport of ['tcp', 'rdma']) {
    await step(`every collective inside the nodes and across, two ranks on each of ${state.nodes.length}, shm and ${transport}, nothing wrong`, async () => {
      const all = await job(state, run, `--collective all ${sizes}`, undefined, { perNode: 2, environment: `STEPCCL_TRANSPORT=shm,${transport} STEPCCL_ALGO=hierarchical` });
      const other = all.find((event) => event.event === 'row' && event.collective !== 'send_recv' && event.algorithm !== 'hierarchical');
      return problemOf(all, 2 * state.nodes.length) ?? (other === undefined ? undefined : `another algorithm ran: ${JSON.stringify(other)}`);
    });
  }
  const endless = '-b 64K -e 64K -n 1000000 -w 0';
  const third = state.nodes[2];
  if (third === undefined) return;
  await step('a killed rank is named by the others', async () =>
    blames(await job(state, run, `--transport tcp ${endless}`, async () => {
      await run(third, 'sleep 1.5; pkill -9 -x stepccl-perf');
    }), [0, 1], 2, ['R201']));
  await step('a rank behind a cut link is named', async () => {
    const all = await job(state, run, `--transport tcp ${endless}`, async () => {
      await run(third, 'sleep 1.5');
      await lab.fault(3, 'cut', true, { peer: 1 });
    });
    await lab.fault(3, 'cut', false, { peer: 1 });
    return blames(all, [0, 1], 2, ['R207', 'R201']);
  });
}

async function main(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'stepccl-collectives-'));
  const lab = new Lab();
  try {
    // Without its symbols it is small enough to go through a shell's standard input.
    await promisify(execFile)('strip', ['-o', join(folder, 'stepccl-perf'), perf]);
    const program = (await readFile(join(folder, 'stepccl-perf'))).toString('base64');
    const state = await lab.up({ nodes: 3, onProgress: (message) => console.log(`# ${message}`) });
    const privateKey = await readFile(state.nodes[0]?.keyPath ?? '', 'utf8');
    const run = runner(privateKey);
    await step('the runtime is on every node', async () => {
      const copies = await Promise.all(state.nodes.map((node) => run(node, `base64 -d > ${remote} && chmod 755 ${remote} && ${remote} --version`, program)));
      return copies.find((copy) => copy.code !== 0)?.stderr;
    });
    await suites(lab, state, run);
  } catch (error) {
    report('the lab is up', error instanceof Error ? error.message : String(error));
  } finally {
    await lab.down();
    await rm(folder, { recursive: true, force: true });
  }
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exitCode = failed === 0 ? 0 : 1;
}

await main();
