import { describe, expect, it } from "vitest";
import { SOURCE_PIECE_CHARS, type ConsoleError, type DiagnosisView, type NodeView } from "../contract/index.js";
import { Operations } from "../fleet/operations.js";
import type { NodeDirectory } from "../link/directory.js";
import type { ExecOptions, NodeSession } from "../ssh/types.js";
import { Diagnosis } from "./service.js";

const LOG = `[    0.000000] first\n${"[   12.000000] a line of the kernel\n".repeat(6000)}[  900.000000] last\n`;

/** Nodes n1, n2, ... at 10.77.0.11, 12, ... that answer each source of a batch with nothing, but for the texts given here. */
function world(count = 1, text: (nodeId: string, source: string) => string = (_node, source) => (source === "kernel_log" ? LOG : "")) {
  const asked: { nodeId: string; root: boolean; script: string }[] = [];
  const answer = (nodeId: string, script: string): string => {
    const mark = /@@[0-9a-f]{24}/.exec(script)![0];
    return [...script.matchAll(/^(?:if .*; else )?(?:run|light|beside) (\w+) /gm)].map(([, id]) => `${text(nodeId, id!)}\n${mark} ${id} 0 900.00 900.10\n\n${mark}\n`).join("");
  };
  const session = (nodeId: string): NodeSession => ({
    nodeId, execLines: async (_command: string, onLine: (stream: "stdout", line: string) => void, options: ExecOptions) => {
      asked.push({ nodeId, root: options.root === true, script: String(options.stdin) });
      const stdout = answer(nodeId, String(options.stdin));
      for (const line of stdout.split("\n")) onLine("stdout", line);
      return { status: 0, signal: null, stdout, stderr: "", droppedBytes: 0, durationMs: 1 };
    },
  }) as unknown as NodeSession;
  const list = Array.from({ length: count }, (_, i) => ({ id: `n${i + 1}`, name: `node${i + 1}`, member: i, agent: { state: "stopped" }, dataAddress: count > 1 ? `10.77.0.${11 + i}` : null, facts: null }) as unknown as NodeView);
  const nodes = { get: (id: string) => list.find((n) => n.id === id), list: () => list, session: async (id: string) => session(id), onChange: () => () => {} } as unknown as NodeDirectory;
  const operations = new Operations({ list: () => [], put: () => {}, remove: () => {} } as never);
  const stored: DiagnosisView[] = [];
  const member = (number: number, last: number) => ({ node: number, name: `node${number}`, addresses: [{ address: `10.77.0.${last}`, netdev: "eth1", rdma_device: "rxe0", gid_index: 1 }] });
  const diagnosis = new Diagnosis({
    nodes, operations, members: () => [member(0, 11), member(1, 12)] as never,
    documents: { list: () => [], put: (_id, _at, view) => { stored.push(view); }, remove: () => {} },
  });
  return { diagnosis, operations, asked, stored };
}
const code = (work: () => unknown): string => { try { work(); } catch (error) { return (error as ConsoleError).view.code; } return "none"; };

describe("a diagnosis", () => {
  it("takes one channel for each privilege level, tells its progress, and knows the peers of a node whose daemon is down", async () => {
    const w = world();
    const { operationId, over } = w.diagnosis.run(["n1"]);
    const of = () => w.operations.list().find((op) => op.id === operationId)!.nodes[0]!.steps[0]!.progress;
    await over;
    expect(w.asked.map((a) => a.root)).toEqual([false, true]);
    expect(w.asked[0]!.script).toContain("for p in 10.77.0.12; do");
    expect(of()).toMatchObject({ done: of()!.total });
    expect(w.stored.at(-1)!.sources.map((s) => s.id)).toContain("peers");
  });
  it("gives a long source piece by piece, and says what it does not have", async () => {
    const w = world();
    expect(code(() => w.diagnosis.source("n1", "kernel_log", 0))).toBe("H609");
    await w.diagnosis.run(["n1"]).over;
    const view = w.diagnosis.view("n1")!.sources.find((s) => s.id === "kernel_log")!;
    expect(view.text.length + view.truncatedBytes).toBe(LOG.length);
    let text = "";
    for (let total = 1; text.length < total; ) {
      const piece = w.diagnosis.source("n1", "kernel_log", text.length);
      expect(piece.text.length).toBeLessThanOrEqual(SOURCE_PIECE_CHARS);
      text += piece.text;
      total = piece.totalChars;
    }
    expect(text).toBe(LOG);
    expect(w.diagnosis.source("n1", "kernel_log", 1e9).text).toBe("");
    expect(code(() => w.diagnosis.source("n2", "kernel_log", 0))).toBe("H301");
    expect(code(() => w.diagnosis.source("n1", "no\u001b[31m source", 0))).toBe("H609");
  });
});

describe("a re-test", () => {
  it("asks those again who did not get through to the node, and no longer goes by what they said before", async () => {
    let filtered = true;
    const w = world(2, (nodeId, source) => (source === "peers" ? `peer 10.77.0.${nodeId === "n1" ? 12 : 11}\n60 packets transmitted, 60 received, 0% packet loss, time 1213ms\ntcp status ${nodeId === "n2" && filtered ? 124 : 0}\n` : ""));
    const firewall = (id: string): boolean => w.diagnosis.view(id)!.findings.some((f) => f.class === "host.firewall");
    await w.diagnosis.run(["n1", "n2"]).over;
    expect([firewall("n1"), firewall("n2")]).toEqual([true, true]);
    await w.diagnosis.retest("n1", ["peers"], new AbortController().signal);
    expect([firewall("n1"), firewall("n2")]).toEqual([true, true]);
    filtered = false;
    w.asked.length = 0;
    await w.diagnosis.retest("n1", ["peers"], new AbortController().signal);
    expect([firewall("n1"), firewall("n2")]).toEqual([false, false]);
    expect(w.asked.filter((a) => a.nodeId === "n2")).toHaveLength(1);
  });
});
