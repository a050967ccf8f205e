import { spawn } from 'node:child_process';
import { Command, InvalidArgumentError } from 'commander';
import { describeError, LabError } from './errors.js';
import { faults } from './faults.js';
import { ensureImage } from './image/build.js';
import { down, fault, powerOff, powerOn, reset, status, up, type LabState } from './lab.js';
import type { FaultName } from './faults.js';
import { runSmoke } from './smoke.js';

const say = (message: string): void => void process.stderr.write(`${message}\n`);
const print = (text: string): void => void process.stdout.write(`${text}\n`);

// Who reads our output may stop reading; what we do is finished all the same.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

function wholeNumber(text: string): number {
  if (!/^\d{1,4}$/.test(text)) throw new InvalidArgumentError('Give a whole number.');
  return Number(text);
}

function table(lab: LabState): string {
  return lab.nodes.map((node) => `${node.name}  ssh -p ${node.sshPort} -i ${node.keyPath} ${node.user}@${node.sshHost}  ${node.dataAddress}  ${node.hostKeySha256}`).join('\n');
}

const program = new Command('lab').description('Nodes of a cluster as small virtual machines on this host').enablePositionalOptions().showHelpAfterError();

program
  .command('up')
  .description('start the nodes and wait until SSH lets in')
  .requiredOption('--nodes <n>', 'how many', wholeNumber)
  .option('--cold', 'boot in place of restoring the snapshots')
  .option('--json', 'print the nodes as JSON')
  .action(async (options: { nodes: number; cold?: boolean; json?: boolean }) => {
    const stop = new AbortController();
    const interrupt = (): void => stop.abort(new LabError('LAB_NOT_READY', 'the start was interrupted', 'Nothing was left running; run `up` again when you like.'));
    process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
    const lab = await up({ nodes: options.nodes, cold: options.cold, onProgress: say, signal: stop.signal });
    print(options.json === true ? JSON.stringify(lab) : table(lab));
  });

program
  .command('down')
  .description('end all nodes and remove what they left')
  .action(async () => {
    await down();
    say('the lab is down');
  });

program
  .command('status')
  .option('--json', 'print everything as JSON')
  .action(async (options: { json?: boolean }) => {
    const now = await status();
    if (options.json === true) return print(JSON.stringify(now));
    print(`lab: ${now.phase}`);
    for (const node of now.nodes) {
      const active = node.faults.map(({ name, peer }) => (peer === undefined ? name : `${name} (node${peer})`)).join(', ');
      const port = now.hub?.ports.find((candidate) => candidate.port === node.index)?.counters;
      print(`node${node.index}: ${node.power}${active === '' ? '' : `, faults: ${active}`}${port === undefined ? '' : `, eth1 sent ${port.rxFrames} and received ${port.txFrames} frames`}`);
    }
    if (now.lab !== undefined) print(table(now.lab));
  });

program
  .command('ssh <node> [command...]')
  .description('log in on a node, or run a command there')
  .passThroughOptions()
  .action(async (node: string, command: string[]) => {
    const { lab } = await status();
    const target = lab?.nodes.find((candidate) => String(candidate.index) === node);
    if (target === undefined) throw new LabError('LAB_NOT_UP', `there is no running node ${node}`, 'Run `npm run lab -- up --nodes 3`.');
    // The host key is held against the lab's own record, not against the user's known_hosts.
    const args = ['-p', String(target.sshPort), '-i', target.keyPath, '-o', 'IdentitiesOnly=yes', '-o', `UserKnownHostsFile=${lab?.dir}/known_hosts`, '-o', 'StrictHostKeyChecking=yes', '-o', 'LogLevel=ERROR', `${target.user}@${target.sshHost}`, ...command];
    process.exitCode = await new Promise<number>((resolve, reject) => {
      spawn('ssh', args, { stdio: 'inherit' }).once('error', reject).once('exit', (code) => resolve(code ?? 255));
    });
  });

program
  .command('fault [node] [name]')
  .description('make a fault on a node, or take it back')
  .option('--off', 'take it back')
  .option('--peer <n>', 'the other node of a fault between two', wholeNumber)
  .option('--list', 'name all faults')
  .action(async (node: string | undefined, name: string | undefined, options: { off?: boolean; peer?: number; list?: boolean }) => {
    if (options.list === true || node === undefined || name === undefined) {
      for (const entry of faults) print(`${entry.name.padEnd(20)} ${entry.description}`);
      if (options.list !== true) process.exitCode = 2;
      return;
    }
    await fault(wholeNumber(node), name as FaultName, options.off !== true, { peer: options.peer });
    say(`node${node}: ${name} is ${options.off === true ? 'off' : 'on'}`);
  });

for (const [name, what, action] of [
  ['reset', 'put a node back to the state in which it came up', reset],
  ['poweroff', 'take the power from a node', powerOff],
  ['poweron', 'boot a node that is off', powerOn],
] as const) {
  program
    .command(`${name} <node>`)
    .description(what)
    .action(async (node: string) => {
      const began = performance.now();
      await action(wholeNumber(node));
      say(`node${node}: ${name} done in ${((performance.now() - began) / 1000).toFixed(1)} s`);
    });
}

program
  .command('image')
  .description('build the image of the nodes when the cache has none')
  .action(async () => print((await ensureImage(say)).dir));

program
  .command('smoke')
  .description('boot one machine without network, run a script in it as root and end with its status')
  .requiredOption('--share <dir>', 'folder that the script finds at /mnt/host, read-only')
  .requiredOption('--script <file>', 'bash script')
  .option('--append <args>', 'added to the kernel command line, for instance slub_debug=FZPU', '')
  .option('--iommu', 'with an Intel IOMMU')
  .option('--device <spec>', 'a further QEMU device, for instance edu; may be repeated', (spec: string, all: string[]) => [...all, spec], [] as string[])
  .option('--memory <MiB>', 'memory of the machine', wholeNumber, 512)
  .option('--timeout <s>', 'longest run time', wholeNumber, 300)
  .action(async (options: { share: string; script: string; append: string; iommu?: boolean; device: string[]; memory: number; timeout: number }) => {
    process.exitCode = await runSmoke({
      shareDir: options.share,
      script: options.script,
      append: options.append,
      iommu: options.iommu === true,
      devices: options.device,
      memoryMiB: options.memory,
      timeoutMs: options.timeout * 1000,
      onOutput: (text) => process.stdout.write(text),
      onProgress: say,
    });
  });

program.parseAsync().catch((error: unknown) => {
  say(describeError(error));
  process.exitCode = 1;
});
