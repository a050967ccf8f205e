/**
 * StepCCL beside Open MPI and Gloo on this machine: `npm run bench:collectives [-- OPTIONS]`.
 *
 * Contestants take turns within each repeat, so that a slow moment of the machine meets all of them. A time is the mean of a block of
 * calls on the slowest rank; a figure is the median over the blocks of all repeats.
 */
import { writeFileSync } from 'node:fs';
import { cpus, loadavg, release } from 'node:os';
import { setTimeout } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import { describe, prepare, run, telemetryNs, type Contestant } from './contestants.js';
import { rowsOf, summaryOf, tableOf, type Sample } from './summary.js';

const SIZES = [8, 32, 128, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 64 << 20];
const COLLECTIVES = ['all_reduce', 'all_gather', 'all_to_all', 'broadcast'];

const whole = (text: string): number => {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('It must be a whole number above 0.');
  return value;
};
const wholes = (text: string): number[] => text.split(',').map(whole);
const words = (text: string): string[] => text.split(',');

interface Options { json?: string; repeats: number; ranks: number[]; sizes: number[]; collectives: string[]; scale: number; only?: string[]; under: string[]; pauseMs: number }

async function main(): Promise<void> {
  const program = new Command('bench:collectives')
    .description('Compares the time of collectives with Open MPI and Gloo. It only means something on an otherwise idle machine.')
    .option('--json <file>', 'write every sample, the rows and the summary')
    .option('--repeats <n>', 'interleaved repeats', whole, 3)
    .option('--ranks <list>', 'numbers of ranks', wholes, [2, 4])
    .option('--sizes <list>', 'bytes of the full array', wholes, SIZES)
    .option('--collectives <list>', 'of all_reduce, all_gather, all_to_all, broadcast', words, COLLECTIVES)
    .option('--scale <percent>', 'of the iterations of each size', whole, 100)
    .option('--only <list>', 'contestants by name ("stepccl", "stepccl tls", "openmpi", "gloo") or transport', words)
    .option('--under <command>', 'start every contestant under a command, as "chrt -f 20" on a machine that is not idle', (text: string) => text.split(' ').filter((word) => word !== ''), [])
    .option('--pause-ms <n>', 'between two runs', whole, 1);
  const options = program.parse().opts<Options>();
  const cores = cpus().length;
  const field = prepare();
  const chosen = (who: Contestant): boolean => !options.only || options.only.some((word) => word === `${who.library} ${who.variant}`.trim() || word === who.transport);
  const contestants = field.contestants.filter(chosen);
  for (const sentence of field.missing) process.stdout.write(`${sentence}\n`);

  const load = loadavg()[0] ?? 0;
  if (load > 0.5) process.stdout.write(`The load of this machine is ${load.toFixed(2)} before the start: expect noise.\n`);
  const samples: Sample[] = [];
  for (let repeat = 0; repeat < options.repeats; repeat++) {
    for (const ranks of options.ranks) {
      for (const who of contestants) {
        const work = { ranks, collectives: options.collectives, sizes: options.sizes, scalePercent: options.scale, under: options.under };
        samples.push(...(await run(who, work, cores, repeat)));
        await setTimeout(options.pauseMs);
        process.stderr.write(`repeat ${repeat + 1}/${options.repeats}: ${ranks} ranks, ${who.library} ${who.transport} ${who.variant}\n`);
      }
    }
  }

  const rows = rowsOf(samples);
  const summary = { ...summaryOf(rows), telemetry_ns_per_operation: telemetryNs() };
  process.stdout.write(`${tableOf(rows)}\n\n`);
  for (const [name, value] of Object.entries(summary)) process.stdout.write(`${name.padEnd(28)}${value}\n`);
  if (options.json) {
    const ranks = options.ranks[0] ?? 2;
    const report = {
      date: new Date().toISOString(),
      command: ['npm', 'run', 'bench:collectives', '--', ...process.argv.slice(2)].join(' '),
      machine: { cpu: cpus()[0]?.model ?? 'unknown', cores, kernel: release(), load_before: load },
      versions: field.versions,
      commands: contestants.map((who) => describe(who, { ranks, collectives: options.collectives, sizes: options.sizes, scalePercent: options.scale, under: options.under }, cores)),
      summary, rows, samples,
    };
    writeFileSync(options.json, `${JSON.stringify(report, null, 1)}\n`);
  }
}

main().catch((error: unknown) => {
  process.stderr.write(`bench:collectives: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
