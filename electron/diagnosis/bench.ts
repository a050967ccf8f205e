import { Scan } from "./scan.js";
import { conclude } from "./engine.js";

/** Prints how long a log of a million lines takes: `tsx electron/diagnosis/bench.ts [lines]`. The mix is that of a busy node. */
const lines = Number(process.argv[2] ?? 1_000_000);

const KINDS: readonly ((i: number) => string)[] = [
  (i) => `[${(i * 0.013).toFixed(6).padStart(12)}] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing`,
  (i) => `Apr 22 18:${String(i % 60).padStart(2, "0")}:16 node${i % 900} systemd[1]: Started session-${i}.scope - Session ${i} of User ops.`,
  (i) => `[${(i * 0.013).toFixed(6).padStart(12)}] pcieport 0000:00:1c.5: AER: Corrected error message received from 0000:${(i % 64).toString(16).padStart(2, "0")}:00.0`,
  (i) => `[Fri Mar  3 04:44:${String(i % 60).padStart(2, "0")} 2023] DMAR: [DMA Write NO_PASID] Request device [06:00.0] fault addr 0x${i.toString(16)}000 [fault reason 0x05] PTE Write access is not set`,
  (i) => `gpu02:353236:353423 [${i % 8}] NCCL INFO Channel ${i % 16}/0 : ${i % 8}[${i % 8}] -> ${(i + 1) % 8}[${(i + 1) % 8}] [send] via NET/IB/${i % 8}/GDRDMA`,
  (i) => `2025-01-25T10:34:${String(i % 60).padStart(2, "0")}.859532+00:00 node${i % 900} kernel: audit: type=1400 audit(${i}.1:2): apparmor="STATUS" operation="profile_load" name="snap.x" pid=${i}`,
  (i) => `[${(i * 0.013).toFixed(6).padStart(12)}] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ${i % 2 ? "ACTIVE" : "INIT"}`,
  (i) => `[${(i * 0.013).toFixed(6).padStart(12)}] IPv6: ADDRCONF(NETDEV_CHANGE): veth${i.toString(16)}: link becomes ready, something long enough to be a usual line of a log`,
];
const chunks: Buffer[] = [];
let part: string[] = [];
let bytes = 0;
for (let i = 0; i < lines; i++) {
  part.push(KINDS[i % KINDS.length]!(i));
  if (part.length === 2000 || i === lines - 1) { const b = Buffer.from(`${part.join("\n")}\n`); bytes += b.length; chunks.push(b); part = []; }
}
const cpuBefore = process.cpuUsage();
const began = performance.now();
const scan = new Scan();
scan.read("bench.log", chunks);
const read = performance.now();
const analysis = conclude(scan);
const ended = performance.now();
const cpu = process.cpuUsage(cpuBefore);
console.log(`lines ${analysis.lines}, ${(bytes / 1e6).toFixed(1)} MB, read in ${((read - began) / 1000).toFixed(2)} s, judged in ${((ended - read) / 1000).toFixed(2)} s, ${((cpu.user + cpu.system) / 1e6).toFixed(2)} s of CPU, ${Math.round(analysis.lines / ((ended - began) / 1000))} lines/s, ${analysis.findings.length} findings, rss ${Math.round(process.memoryUsage().rss / 1e6)} MB`);
