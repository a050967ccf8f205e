/**
 * Resident memory of the idle daemon on a real node: `npm run bench:agent`.
 *
 * Uses the lab that is up, or starts one with a single node and takes it down again. Copies the stripped daemon to the
 * node, tells it of a cluster of three members, waits until it has been idle for five seconds and reads what the kernel
 * says. The last line is `VmRSS_kB N`.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, copyFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { down, status, up, type LabNode, type LabState } from '../e2e/lab/lab.js';

const LIMIT_KB = 5 * 1024;
const IDLE_MS = 5_000;
const daemon = fileURLToPath(new URL('../build/out/agent/stepccld', import.meta.url));

interface Sizes { vmRssKb: number; rssKb: number; pssKb: number; privateDirtyKb: number; threads: number }

/** ssh to the node, with the lab's own record of its host key; `input` goes to the command's standard input. */
function onNode(lab: LabState, node: LabNode, command: string, input?: Buffer | string, timeoutMs = 60_000): Promise<string> {
  const args = [
    '-p', String(node.sshPort), '-i', node.keyPath, '-o', 'IdentitiesOnly=yes', '-o', `UserKnownHostsFile=${join(lab.dir, 'known_hosts')}`,
    '-o', 'StrictHostKeyChecking=yes', '-o', 'BatchMode=yes', '-o', 'LogLevel=ERROR', `${node.user}@${node.sshHost}`, command,
  ];
  return new Promise((resolve, reject) => {
    const child = spawn('ssh', args, { stdio: ['pipe', 'pipe', 'pipe'], timeout: timeoutMs });
    let out = '';
    let err = '';
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve(out) : reject(new Error(`"${command}" ended with ${code} on ${node.name}: ${err.trim()}`))));
    child.stdin.on('error', () => undefined); // the command may end before it has read everything; its status tells
    child.stdin.end(input ?? '');
  });
}

/** The daemon without symbols, as the bundle carries it. */
function strippedDaemon(folder: string): string {
  const copy = join(folder, 'stepccld');
  copyFileSync(daemon, copy);
  execFileSync('strip', [copy]);
  return copy;
}

function kb(text: string, name: string): number {
  const value = new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1];
  if (value === undefined) throw new Error(`the node does not say ${name}`);
  return Number(value);
}

async function sizesOf(lab: LabState, node: LabNode, pid: number): Promise<Sizes> {
  const processStatus = await onNode(lab, node, `cat /proc/${pid}/status`);
  const rollup = await onNode(lab, node, `sudo cat /proc/${pid}/smaps_rollup`);
  return {
    vmRssKb: kb(processStatus, 'VmRSS'), rssKb: kb(rollup, 'Rss'), pssKb: kb(rollup, 'Pss'), privateDirtyKb: kb(rollup, 'Private_Dirty'), threads: kb(processStatus, 'Threads'),
  };
}

/** One request through `stepccld proxy`, as a console does where it can't forward the socket. */
async function call(lab: LabState, node: LabNode, method: string, params: object): Promise<Record<string, unknown>> {
  const request = `${JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })}\n`;
  const answer = JSON.parse(await onNode(lab, node, '/tmp/bench-stepccld/stepccld proxy --socket /tmp/bench-stepccld/run/agent.sock', request)) as { result?: Record<string, unknown>; error?: { message: string } };
  if (answer.result === undefined) throw new Error(`${method}: ${answer.error?.message ?? 'no answer'}`);
  return answer.result;
}

async function measure(lab: LabState, node: LabNode, binary: string): Promise<Sizes> {
  const stop = '[ ! -f /tmp/bench-stepccld/pid ] || kill $(cat /tmp/bench-stepccld/pid) 2>/dev/null; rm -rf /tmp/bench-stepccld';
  await onNode(lab, node, `${stop}; mkdir -m 0700 /tmp/bench-stepccld`);
  try {
    await onNode(lab, node, 'cat > /tmp/bench-stepccld/stepccld && chmod 0755 /tmp/bench-stepccld/stepccld', readFileSync(binary));
    await onNode(lab, node, 'cd /tmp/bench-stepccld && ./stepccld --run-dir run --state-dir state');
    const pid = (await call(lab, node, 'hello', { protocol: 1, client: 'bench-rss' })).pid as number;
    await onNode(lab, node, `echo ${pid} > /tmp/bench-stepccld/pid`);
    const members = [1, 2, 3].map((index) => ({
      node: index, name: `node${index}`, addresses: [{ address: `10.77.0.${index}`, netdev: 'eth1', rdma_device: 'rxe0', gid_index: 1 }],
    }));
    await call(lab, node, 'cluster.set', { cluster_id: 'bench', epoch: 1, self: node.index, members });
    // What a console asks once at its start: the memory that it takes must be given back.
    await call(lab, node, 'facts.get', {});
    await call(lab, node, 'routes.probe', {});
    await sleep(IDLE_MS);
    return await sizesOf(lab, node, pid);
  } finally {
    await onNode(lab, node, stop);
  }
}

async function main(): Promise<void> {
  if (!existsSync(daemon)) throw new Error('the daemon is not built: run build/setup.sh first');
  const running = await status();
  const ownLab = running.phase !== 'up';
  const lab = ownLab ? await up({ nodes: 1, onProgress: (message) => process.stderr.write(`${message}\n`) }) : running.lab;
  const node = lab?.nodes[0];
  if (lab === undefined || node === undefined) throw new Error('the lab has no node');
  const folder = mkdtempSync(join(tmpdir(), 'stepccl-bench-'));
  try {
    const binary = strippedDaemon(folder);
    const sizes = await measure(lab, node, binary);
    // Before Linux 6.2 the kernel adds a thread's pages to VmRSS in batches of 64, so a process this small may show next
    // to nothing there; smaps_rollup counts the page tables.
    const believable = sizes.vmRssKb >= sizes.rssKb - 256;
    const figure = believable ? Math.max(sizes.vmRssKb, sizes.rssKb) : sizes.rssKb;
    const rows: [string, number | string][] = [
      ['node', `${node.name}, Linux ${lab.kernelRelease}`],
      ['executable, stripped (kB)', Math.ceil(statSync(binary).size / 1024)],
      ['VmRSS, /proc/PID/status (kB)', sizes.vmRssKb],
      ['Rss, smaps_rollup (kB)', sizes.rssKb],
      ['Pss (kB)', sizes.pssKb],
      ['Private_Dirty (kB)', sizes.privateDirtyKb],
      ['threads', sizes.threads],
      ['limit (kB)', LIMIT_KB],
    ];
    for (const [name, value] of rows) process.stdout.write(`${name.padEnd(32)}${value}\n`);
    if (!believable) process.stdout.write('VmRSS lags behind the page tables on this kernel: the figure is Rss of smaps_rollup.\n');
    process.stdout.write(`VmRSS_kB ${figure}\n`);
    if (figure > LIMIT_KB) process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
    if (ownLab) await down();
  }
}

main().catch((error: unknown) => {
  process.stderr.write(`bench:agent: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
