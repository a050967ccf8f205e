import { randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { ConsoleError, toErrorView, type EvidenceView, type NodeView, type PairResult, type Words } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import { shellCommand, shellQuote } from "../../ssh/quote.js";

/** What one end of ibv_rc_pingpong needs. */
interface End { node: NodeView; device: string; port: number; gidIndex: number | null; address: string }

const ITERATIONS = 200;
const BYTES = 4096;
const END_MS = 30_000;
const READY_MS = 15_000;

/** The RDMA device of the data interface, and the index of its GID for the data address. */
function endOf(node: NodeView): End | Words {
  const facts = node.facts;
  if (!facts) return { en: `The facts of ${node.name} are not known.`, zh: `${node.name} 的信息未知。` };
  const plain = (a: string): string => a.replace(/\/\d+$/, "");
  const nic = facts.nics.find((n) => node.dataAddress !== null && n.addresses.map(plain).includes(node.dataAddress)) ?? facts.nics.find((n) => n.rdmaDevice !== null);
  const address = node.dataAddress ?? nic?.addresses.map(plain).find((a) => /^\d+\.\d+\.\d+\.\d+$/.test(a));
  const rdma = facts.rdma.find((r) => r.netdev !== null && r.netdev === nic?.name) ?? facts.rdma.find((r) => r.linkLayer === "infiniband");
  if (!rdma || address === undefined) return { en: `${node.name} has no RDMA device on its data address.`, zh: `${node.name} 的数据地址没有 RDMA 设备。` };
  const mapped = address.split(".").map((b) => Number(b).toString(16).padStart(2, "0")).join("");
  const gid = rdma.gids.find((g) => g.type === "roce_v2" && g.gid.replace(/[^0-9a-fA-F]/g, "").toLowerCase().endsWith(`ffff${mapped}`)) ?? (rdma.linkLayer === "infiniband" ? undefined : rdma.gids.find((g) => g.type === "roce_v2"));
  if (!gid && rdma.linkLayer !== "infiniband") return { en: `${rdma.name} of ${node.name} has no GID of RoCE v2.`, zh: `${node.name} 的 ${rdma.name} 没有 RoCE v2 的 GID。` };
  return { node, device: rdma.name, port: rdma.port, gidIndex: gid?.index ?? null, address };
}

const command = (end: End, tcpPort: number, peer: string | null): string => shellCommand([
  "timeout", "-k", "2", String(END_MS / 1000), "ibv_rc_pingpong", "-d", end.device, "-i", String(end.port), ...(end.gidIndex === null ? [] : ["-g", String(end.gidIndex)]),
  "-p", String(tcpPort), "-n", String(ITERATIONS), "-s", String(BYTES), ...(peer === null ? [] : [peer]),
]);

/** What the far end's shell says once the program listens. The program's own words come when it ends: its output is a pipe. */
const LISTENS = "@@listens";
const AMONG_LISTENING = "/proc/net/tcp /proc/net/tcp6";

function serverCommand(end: End, tcpPort: number): string {
  const hex = tcpPort.toString(16).toUpperCase().padStart(4, "0");
  return `/bin/sh -c ${shellQuote([
    `${command(end, tcpPort, null)} & p=$!`, "trap 'kill $p' HUP INT TERM",
    `until grep -qs ':${hex} [0-9A-F]*:0000 0A ' ${AMONG_LISTENING}; do kill -0 $p 2>/dev/null || break; sleep 0.1; done`,
    `if kill -0 $p 2>/dev/null; then echo ${LISTENS}; fi`, "wait $p",
  ].join("\n"))}`;
}

/** "8192000 bytes in 0.05 seconds = 1310.72 Mbit/sec" and "1000 iters in 0.05 seconds = 50.00 usec/iter"; one iteration is there and back. */
export function readPingpong(text: string): { latencyUs: number; bandwidthGBps: number } | null {
  const rate = /=\s{1,4}([\d.]{1,20}) Mbit\/sec/.exec(text);
  const time = /=\s{1,4}([\d.]{1,20}) usec\/iter/.exec(text);
  return rate && time ? { latencyUs: Number(time[1]) / 2, bandwidthGBps: Number(rate[1]) / 8000 } : null;
}

/** Which half failed: one that ended by itself before any connection, or none of them, then what lies between. */
export function failingHalf(server: { ready: boolean; text: string; status: number | null }, client: { text: string; status: number | null }): "from" | "to" | "between" {
  const own = /couldn't|failed to|unable to|no ib devices|not found|cannot|can't|invalid/i;
  const afterConnect = /remote address|Failed to modify QP to RTR|Failed to modify QP to RTS|Failed status|poll CQ|Couldn't connect|Couldn't read\/write remote|Couldn't read remote/i;
  if (!server.ready) return "to";
  if (own.test(client.text) && !/local address/.test(client.text) && !afterConnect.test(client.text)) return "from";
  return "between";
}

/** ibv_rc_pingpong from one node to another. Rejects only with H104; what fails is in the result. */
export async function verbsPing(nodes: NodeDirectory, from: NodeView, to: NodeView, signal: AbortSignal): Promise<PairResult> {
  const base: PairResult = { from: from.id, to: to.id, kind: "verbs", state: "running", latencyUs: null, bandwidthGBps: null, failed: null, text: null, evidence: [], error: null, endedAtMs: null };
  const done = (change: Partial<PairResult>): PairResult => ({ ...base, ...change, endedAtMs: Date.now() });
  const [a, b] = [endOf(from), endOf(to)];
  if ("en" in a) return done({ state: "failed", failed: "from", text: a });
  if ("en" in b) return done({ state: "failed", failed: "to", text: b });
  const tcpPort = randomInt(20_000, 32_000);
  const ending = new AbortController();
  const either = AbortSignal.any([signal, ending.signal]);
  const server = { ready: false, text: "", status: null as number | null };
  const client = { text: "", status: null as number | null };
  try {
    const [sessionA, sessionB] = await Promise.all([nodes.session(from.id, signal), nodes.session(to.id, signal)]);
    let isReady: () => void = () => {};
    const ready = new Promise<void>((resolve) => { isReady = resolve; });
    const serving = sessionB.execLines(serverCommand(b, tcpPort), (stream, line) => {
      if (stream === "stdout" && line === LISTENS) { server.ready = true; isReady(); }
      else server.text += `${line.slice(0, 500)}\n`;
    }, { signal: either, timeoutMs: END_MS + 5000, maxBytes: 32 * 1024 }).then((r) => { server.status = r.status; }).finally(isReady);
    serving.catch(() => undefined);
    await Promise.race([ready, delay(READY_MS, undefined, { signal: either })]);
    if (server.ready) {
      const r = await sessionA.exec(command(a, tcpPort, b.address), { signal: either, timeoutMs: END_MS + 5000, maxBytes: 32 * 1024 });
      client.status = r.status;
      client.text = `${r.stdout}${r.stderr}`.slice(0, 8000);
    }
  } catch (error) {
    if (signal.aborted) throw ConsoleError.of("H104");
    return done({ state: "failed", failed: "between", error: toErrorView(error) });
  } finally {
    ending.abort();
  }
  const result = client.status === 0 ? readPingpong(client.text) : null;
  if (result) return done({ state: "ok", ...result });
  const failed = failingHalf(server, client);
  const evidence = [...quote(to.name, server.text), ...quote(from.name, client.text)];
  const missing = [server, client].some((x) => x.status === 127 || /ibv_rc_pingpong.{0,40}(?:not found|No such file)/.test(x.text));
  const text: Words = missing ? { en: "ibv_rc_pingpong is not installed: install ibverbs-utils.", zh: "未安装 ibv_rc_pingpong：请安装 ibverbs-utils。" }
    : failed === "between" ? { en: `Both ends opened their devices; nothing passes between ${from.name} and ${to.name}.`, zh: `两端都打开了设备；${from.name} 与 ${to.name} 之间不通。` }
      : { en: `It fails on ${failed === "from" ? from.name : to.name} before a byte goes between the nodes.`, zh: `在节点间传输之前，${failed === "from" ? from.name : to.name} 上就已失败。` };
  return done({ state: "failed", failed, text, evidence });
}

function quote(name: string, text: string): EvidenceView[] {
  return text.split("\n").filter((l) => l.trim() !== "" && !/^\s*(?:local|remote) address/.test(l)).slice(-3).map((line) => ({ source: `ibv_rc_pingpong on ${name}`, line: line.trim().slice(0, 300), lineNumber: null, meaning: null }));
}
