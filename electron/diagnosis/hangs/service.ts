import { ConsoleError, toErrorView, type HangView, type NodeView } from "../../contract/index.js";
import type { NodeDirectory } from "../../link/directory.js";
import type { OpenFile } from "../uploads.js";
import { mergeRecordings } from "./merge.js";
import { readRecorders, readRecordingFile, type Recording } from "./recording.js";

/** A recording of a thousand operations is some 400 KB. */
const MAX_FILE_BYTES = 256 * 1024 ** 2;
const CALL_MS = 15_000;
const OPERATIONS = 128;

/** Reads the recorders of these nodes' ranks (of all whose daemon runs, where none is named) and merges them. @throws ConsoleError H301, H104 */
export async function checkHangs(nodes: NodeDirectory, nodeIds: readonly string[], signal: AbortSignal): Promise<HangView> {
  const chosen = nodeIds.length > 0 ? nodeIds.map((nodeId) => nodes.get(nodeId) ?? fail(nodeId)) : nodes.list().filter((n) => n.agent.state === "running");
  const owner = new Map<Recording, NodeView>();
  const stopped = new Set<Recording>();
  const unread: HangView["unread"] = [];
  await Promise.all(chosen.map(async (node) => {
    try {
      const agent = await nodes.agent(node.id, signal);
      const { recorders } = await agent.call("recorder.get", { operations: OPERATIONS }, { signal, timeoutMs: CALL_MS });
      const found = readRecorders(recorders, (detail) => unread.push({ what: node.name, error: ConsoleError.of("H404", { host: node.name, detail: `a recording: ${detail}` }).view }));
      for (const r of found) owner.set(r, node);
      for (const r of await stoppedOf(nodes, node.id, found, signal)) stopped.add(r);
    } catch (error) {
      if (signal.aborted) throw ConsoleError.of("H104");
      unread.push({ what: node.name, error: toErrorView(error) });
    }
  }));
  const nowMs = Date.now();
  return { takenAtMs: nowMs, groups: mergeRecordings([...owner.keys()], { nodeOf: (r) => owner.get(r)?.id ?? null, stopped: (r) => stopped.has(r), nowMs }), unread };
}

/** Which of these processes the kernel shows as stopped; none where that cannot be read. */
async function stoppedOf(nodes: NodeDirectory, nodeId: string, found: readonly Recording[], signal: AbortSignal): Promise<Recording[]> {
  const pids = [...new Set(found.flatMap((r) => (r.alive !== false && r.pid !== null && r.pid > 1 ? [r.pid] : [])))].slice(0, 4096);
  if (pids.length === 0) return [];
  const session = await nodes.session(nodeId, signal);
  const { stdout } = await session.exec(`ps -o pid=,stat= -p ${pids.join(",")}`, { signal, timeoutMs: CALL_MS });
  const held = new Set([...stdout.matchAll(/^\s*(\d{1,10})\s+[Tt]/gm)].map((m) => Number(m[1])));
  return found.filter((r) => r.pid !== null && held.has(r.pid));
}

/** The same from files. @throws ConsoleError H104 */
export async function hangsOfFiles(files: readonly OpenFile[], signal: AbortSignal): Promise<HangView> {
  const recordings: Recording[] = [];
  const unread: HangView["unread"] = [];
  for (const file of files) {
    if (signal.aborted) throw ConsoleError.of("H104");
    try {
      recordings.push(...readRecordingFile(file.name, await wholeText(file)));
    } catch (error) {
      unread.push({ what: file.name, error: toErrorView(error) });
    }
  }
  const nowMs = Date.now();
  return { takenAtMs: nowMs, groups: mergeRecordings(recordings, { nowMs }), unread };
}

async function wholeText(file: OpenFile): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of file.stream()) {
    bytes += chunk.length;
    if (bytes > MAX_FILE_BYTES) throw ConsoleError.of("H608", { name: file.name.slice(0, 80), detail: "a recording of more than 256 MiB" });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function fail(nodeId: string): never {
  throw ConsoleError.of("H301", { nodeId });
}
