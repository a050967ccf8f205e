import type { EvidenceView, GuideRunView, GuideStepView, GuideView, PathView, Words } from "../../electron/contract/index.js";
import type { FakeContext } from "./fake-context.js";
import { fakeDiagnosis } from "./fake-diagnosis.js";
import { FAKE_MARK } from "./fake-data.js";

const words = (en: string, zh = `[zh] ${en}`): Words => ({ en, zh });
const guide = (id: GuideView["id"], title: string, symptom: string, takes: GuideView["takes"]): GuideView => ({ id, title: words(title), symptom: words(symptom), takes });

export const FAKE_GUIDES: GuideView[] = [
  guide("node_wont_come_up", "A node won’t come up", "Bring-up fails, or the node is degraded.", "node"),
  guide("dma_init_fails", "DMA initialisation fails", "The driver or /dev/dma_device cannot be used.", "node"),
  guide("rdma_connection_fails", "An RDMA connection fails", "Two nodes do not connect over RDMA.", "pair"),
  guide("job_hangs", "A job hangs", "A collective does not end.", "nodes"),
  guide("slow", "It is slow", "Bandwidth is below what the links can do.", "nodes"),
  guide("out_of_memory", "Out of memory", "HBM or locked memory runs out.", "node"),
  guide("gpudirect_off", "Why is GPUDirect off here?", "Transfers go through host memory.", "node"),
  guide("ring_slow", "Why is this ring slow?", "One part of a ring holds the others up.", "nodes"),
];

const QUESTIONS = ["Does the node answer?", "Is the driver loaded?", "May ranks open /dev/dma_device?", "Is the RDMA port active?", "Does the GID table hold the data address?", "Do both ends have the same MTU?"];
const line = (source: string, text: string, meaning: string): EvidenceView => ({ source, line: text, lineNumber: null, meaning: words(meaning) });

function fakePath(from: string, to: string): PathView {
  const ok = (ref: PathView["elements"][number]["ref"], label: string, rule: string) => ({ ref, label, state: "ok" as const, rule: words(rule), evidence: [], class: null });
  return {
    from, to, firstBroken: 3,
    elements: [
      ok({ kind: "gpu", nodeId: from, pci: "0000:17:00.0" }, "GPU 0 17:00.0", "16 lanes at 32 GT/s, as the slot can do."),
      ok({ kind: "pcie", nodeId: from, pci: "0000:15:00.0" }, "switch 15:00.0", "ACS redirect is off: peers reach each other."),
      ok({ kind: "nic", nodeId: from, name: "eth1" }, "eth1", "Up with an MTU of 9000."),
      { ref: { kind: "link", from, to, transport: "rdma" }, label: "rxe0 → rxe0", state: "broken", rule: words("Both ends need the same MTU: 9000 here, 1500 there."), evidence: [line("ip_link", "3: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq_codel state UP", "1500 on the peer")], class: "link.mtu_mismatch" },
      { ref: { kind: "nic", nodeId: to, name: "eth1" }, label: "eth1", state: "not_reached", rule: words("Not looked at: the path breaks before it."), evidence: [], class: null },
    ],
  };
}

export class FakeGuides {
  readonly runs = new Map<string, GuideRunView>();
  #serial = 0;
  constructor(private readonly context: FakeContext) {}

  start(params: { guideId: GuideView["id"]; nodeIds: string[] }): GuideRunView {
    const now = this.context.now();
    const steps = QUESTIONS.map((question, index): GuideStepView => ({ id: `step-${index}`, question: words(question), state: "pending", nodeId: params.nodeIds[0]!, answer: null, evidence: [], startedAtMs: null, endedAtMs: null }));
    let run: GuideRunView = { id: `guide-${++this.#serial}`, guideId: params.guideId, nodeIds: params.nodeIds, state: "running", startedAtMs: now, endedAtMs: null, steps, paths: [], conclusion: null, error: null };
    const show = (change: Partial<GuideRunView>) => {
      run = { ...run, ...change };
      this.runs.set(run.id, run);
      this.context.patch("guides", [run]);
    };
    show({});
    this.context.every((stop) => {
      const latest = this.runs.get(run.id)!;
      if (latest.state !== "running") return stop();
      const at = run.steps.findIndex((step) => step.state === "running" || step.state === "pending");
      if (at >= 0 && at < 3) {
        const step = run.steps[at]!;
        const fault = at === 2;
        const next: GuideStepView = step.state === "pending"
          ? { ...step, state: "running", startedAtMs: this.context.now() }
          : { ...step, state: fault ? "fault" : "ok", endedAtMs: this.context.now(), answer: words(fault ? "No: its mode keeps everybody but root out." : `Yes (${FAKE_MARK}).`), evidence: [fault ? line("device", "root:root 600 /dev/dma_device", "expected root:stepccl 660") : line("modules", "dma_engine 45056 1", "loaded, one user")] };
        show({ steps: run.steps.map((each, index) => (index === at ? next : each)) });
        return;
      }
      stop();
      const finding = fakeDiagnosis("n2", this.context.now()).findings[0]!;
      show({
        state: "done", endedAtMs: this.context.now(), steps: run.steps.map((each) => (each.state === "pending" ? { ...each, state: "skipped" } : each)),
        paths: params.nodeIds.length > 1 || params.guideId === "ring_slow" ? [fakePath(params.nodeIds[0]!, params.nodeIds[1] ?? "n2")] : [],
        conclusion: { verdict: "cause_found", text: words("Ranks cannot open the device of this node."), cards: [{ nodeId: params.nodeIds[0]!, finding }] },
      });
    });
    return run;
  }
  cancel(id: string): void {
    const run = this.runs.get(id);
    if (!run || run.state !== "running") return;
    const ended: GuideRunView = { ...run, state: "cancelled", endedAtMs: this.context.now() };
    this.runs.set(id, ended);
    this.context.patch("guides", [ended]);
  }
}
