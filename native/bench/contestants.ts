/** Who runs in the benchmark, with which command line, and what is missing on this machine. */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Sample, Transport } from './summary.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const out = join(root, 'build/out/native-bench');
const PYTHON = '/usr/bin/python3'; // Debian's torch is for Debian's interpreter alone
const RUN_LIMIT_MS = 300_000;

/** Without it a large message of a peer costs page faults at every call, and the comparison would flatter us. */
const WARM_MALLOC = { MALLOC_MMAP_THRESHOLD_: '1073741824', MALLOC_TRIM_THRESHOLD_: '4294967296' };

export interface Contestant {
  library: Sample['library'];
  transport: Transport;
  /** What differs from the library as users run it; '' = nothing. */
  variant: string;
}

export interface Work {
  ranks: number;
  collectives: string[];
  sizes: number[];
  scalePercent: number;
  /** A command that starts each contestant, such as chrt -f 20; empty: none. */
  under: string[];
}

export const OURS: Contestant[] = [
  { library: 'stepccl', transport: 'shm', variant: '' },
  { library: 'stepccl', transport: 'tcp', variant: '' },
];
export const VARIANTS: Contestant[] = [
  { library: 'stepccl', transport: 'shm', variant: 'telemetry off' },
  { library: 'stepccl', transport: 'tcp', variant: 'tls' },
];
const OPENMPI: Contestant[] = [
  { library: 'openmpi', transport: 'shm', variant: '' },
  { library: 'openmpi', transport: 'tcp', variant: '' },
];
const GLOO: Contestant[] = [{ library: 'gloo', transport: 'tcp', variant: '' }];

export interface Field { contestants: Contestant[]; missing: string[]; versions: Record<string, string> }

function versionOf(command: string, args: string[]): string | null {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim().split('\n')[0] ?? '';
  } catch {
    return null; // not installed: the caller says so
  }
}

/** Builds the programs, and finds the peers of this machine. */
export function prepare(): Field {
  const flags = ['-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Release', '-DUSE_CUDA=OFF', '-DSTEPCCL_TESTS=OFF', '-DSTEPCCL_BENCH=ON'];
  execFileSync('cmake', ['-S', join(root, 'native'), '-B', out, ...flags], { stdio: ['ignore', 'ignore', 'inherit'] });
  execFileSync('cmake', ['--build', out, '-j2', '--target', 'bench_stepccl', 'bench_telemetry'], { stdio: ['ignore', 'ignore', 'inherit'] });
  const field: Field = { contestants: [...OURS, ...VARIANTS], missing: [], versions: {} };
  field.versions.stepccl = versionOf('git', ['-C', root, 'describe', '--always', '--dirty']) ?? 'unknown';

  const openmpi = versionOf('mpirun', ['--version']);
  const built = openmpi !== null && existsSync(join(out, 'CMakeCache.txt')) && buildsOpenMpi();
  if (built && openmpi !== null) {
    field.contestants.push(...OPENMPI);
    field.versions.openmpi = openmpi;
  } else {
    field.missing.push('Open MPI is not compared: install openmpi-bin and libopenmpi-dev.');
  }
  const torch = versionOf(PYTHON, [join(root, 'native/bench/src/bench_gloo.py'), '--version']);
  if (torch !== null) {
    field.contestants.push(...GLOO);
    field.versions.gloo = `torch ${torch}`;
  } else {
    field.missing.push(`Gloo is not compared: install python3-torch, which ${PYTHON} loads.`);
  }
  return field;
}

/** Nanoseconds that telemetry adds to an operation, the best of five rounds. */
export function telemetryNs(): number {
  return Number(/([\d.]+)\s*$/.exec(execFileSync(join(out, 'bench/bench_telemetry'), { encoding: 'utf8' }).trim())?.[1] ?? Number.NaN);
}

function buildsOpenMpi(): boolean {
  try {
    execFileSync('cmake', ['--build', out, '-j2', '--target', 'bench_openmpi'], { stdio: ['ignore', 'pipe', 'pipe'] });
    return true;
  } catch {
    return false; // CMake found no MPI, so there is no such target
  }
}

function commandOf(who: Contestant, work: Work, folder: string, cores: number): { command: string; args: string[]; env: Record<string, string> } {
  const loop = ['--collectives', work.collectives.join(','), '--sizes', work.sizes.join(','), '--scale', String(work.scalePercent)];
  if (who.library === 'stepccl') {
    const telemetry = who.variant === 'telemetry off' ? [] : ['--telemetry', folder];
    return {
      command: join(out, 'bench/bench_stepccl'),
      args: ['--ranks', String(work.ranks), '--transport', who.transport, ...telemetry, ...loop],
      env: who.variant === 'tls' ? { STEPCCL_ENCRYPTION: 'tls' } : {},
    };
  }
  if (who.library === 'gloo') {
    return {
      command: PYTHON,
      args: [join(root, 'native/bench/src/bench_gloo.py'), '--ranks', String(work.ranks), '--store', join(folder, 'store'), ...loop],
      env: { ...WARM_MALLOC, GLOO_SOCKET_IFNAME: 'lo', OMP_NUM_THREADS: '1' },
    };
  }
  const transport = who.transport === 'shm' ? ['--mca', 'btl', 'self,vader'] : ['--mca', 'btl', 'self,tcp', '--mca', 'btl_tcp_if_include', 'lo'];
  const crowded = work.ranks > cores ? ['--oversubscribe', '--mca', 'mpi_yield_when_idle', '1'] : [];
  const root_ = process.getuid?.() === 0 ? ['--allow-run-as-root'] : [];
  const malloc = Object.entries(WARM_MALLOC).flatMap(([name, value]) => ['-x', `${name}=${value}`]);
  return {
    command: 'mpirun',
    args: [...root_, '-np', String(work.ranks), ...crowded, '--mca', 'pml', 'ob1', ...transport, ...malloc, join(out, 'bench/bench_openmpi'), ...loop],
    env: { OMPI_MCA_btl_base_warn_component_unused: '0' },
  };
}

function startOf(who: Contestant, work: Work, folder: string, cores: number): { command: string; args: string[]; env: Record<string, string> } {
  const plain = commandOf(who, work, folder, cores);
  const [first, ...rest] = work.under;
  return first === undefined ? plain : { command: first, args: [...rest, plain.command, ...plain.args], env: plain.env };
}

/** The command as a person would type it, for the report. */
export function describe(who: Contestant, work: Work, cores: number): string {
  const { command, args, env } = startOf(who, work, '<folder>', cores);
  const short = (text: string): string => text.replace(`${out}/bench/`, '').replace(root, '');
  return [...Object.entries(env).map(([name, value]) => `${name}=${value}`), short(command), ...args.map(short)].join(' ');
}

/** Runs one contestant once through all sizes. Fails with its own last words. */
export async function run(who: Contestant, work: Work, cores: number, repeat: number): Promise<Sample[]> {
  // Memory, as the daemon's folder on a node is: on a disk, publishing would wait for the disk's pages.
  const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'stepccl-bench-'));
  try {
    const { command, args, env } = startOf(who, work, folder, cores);
    const text = await new Promise<string>((done, refuse) => {
      const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'], timeout: RUN_LIMIT_MS });
      let stdout = '';
      let stderr = '';
      child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
      child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
      child.on('error', refuse);
      child.on('close', (status, signal) =>
        status === 0 ? done(stdout) : refuse(new Error(`${who.library} over ${who.transport}, ${work.ranks} ranks, ended with ${signal ?? status}: ${stderr.trim().slice(-1000)}`)));
    });
    return text.split('\n').filter((line) => line.startsWith('{')).map((line) => {
      const row = JSON.parse(line) as Pick<Sample, 'collective' | 'bytes' | 'times_us'>;
      return { library: who.library, transport: who.transport, variant: who.variant, ranks: work.ranks, repeat, ...row };
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
