import { ConsoleError, type DiagnosisView, type MendOffer, type MendRunView } from "../../electron/contract/index.js";
import { FAKE_MARK } from "./fake-data.js";
import type { FakeContext } from "./fake-context.js";

/** Offers and applications of mends over the scripted diagnoses: the finding goes when its mend is applied, unless its id says `stays`. */
export class FakeMends {
  readonly runs = new Map<string, MendRunView>();
  readonly #offers = new Map<string, MendOffer>();
  #serial = 0;

  constructor(private readonly context: FakeContext, private readonly diagnoses: Map<string, DiagnosisView>, private readonly changed: (diagnosis: DiagnosisView) => void) {}

  offer(params: { nodeId: string; findingId: string; mendIds: string[] }): MendOffer {
    const finding = this.diagnoses.get(params.nodeId)?.findings.find((each) => each.id === params.findingId);
    if (!finding) throw ConsoleError.of("H301", { nodeId: params.nodeId });
    const commands = finding.mend.flatMap((mend) => (mend.id !== null && params.mendIds.includes(mend.id) ? [{ mendId: mend.id, command: mend.command, explanation: mend.explanation, risk: mend.risk }] : []));
    const ranks = ["none", "restarts_service", "interrupts_jobs", "destructive"] as const;
    const risk = ranks[Math.max(...commands.map((command) => ranks.indexOf(command.risk)))]!;
    const offer: MendOffer = {
      offerId: `offer-${++this.#serial}`, nodeId: params.nodeId, findingId: finding.id, class: finding.class, commands, risk,
      secondConsent: risk === "destructive" ? (this.context.nodeName(params.nodeId)) : null, retest: finding.retest, expiresAtMs: this.context.now() + 300_000,
    };
    this.#offers.set(offer.offerId, offer);
    return offer;
  }

  apply(params: { offerId: string; commands: string[] }): MendRunView {
    const offer = this.#offers.get(params.offerId);
    const diagnosis = offer && this.diagnoses.get(offer.nodeId);
    const finding = diagnosis?.findings.find((each) => each.id === offer?.findingId);
    if (!offer || !diagnosis || !finding) throw ConsoleError.of("H104");
    this.#offers.delete(params.offerId);
    const now = this.context.now();
    const reading = { class: finding.class, severity: finding.severity, title: finding.title, evidence: finding.evidence };
    let run: MendRunView = {
      id: `mend-${++this.#serial}`, nodeId: offer.nodeId, findingId: finding.id, class: finding.class, title: finding.title, startedAtMs: now, endedAtMs: null, state: "applying", error: null,
      steps: offer.commands.map((command) => ({ ...command, state: "pending", startedAtMs: null, endedAtMs: null, status: null, output: "" })),
      before: { atMs: diagnosis.startedAtMs, finding: reading, others: [], readings: [{ source: "device", text: "root:root 600 /dev/dma_device" }] }, after: null, historyUntil: null,
    };
    const show = (change: Partial<MendRunView>) => {
      run = { ...run, ...change };
      this.runs.set(run.id, run);
      this.context.patch("mends", [run]);
    };
    show({});
    let beat = 0;
    const stays = finding.id.endsWith("stays");
    this.context.every((stop) => {
      const at = Math.floor(beat / 3);
      const phase = beat % 3;
      beat++;
      if (at < run.steps.length) {
        show({ steps: run.steps.map((step, index) => (index !== at ? step : phase === 0 ? { ...step, state: "running", startedAtMs: this.context.now() } : phase === 1 ? { ...step, output: `${FAKE_MARK}\nreading rules\n` } : { ...step, state: "done", status: 0, endedAtMs: this.context.now(), output: `${step.output}done\n` })) });
        return;
      }
      if (run.state === "applying") {
        show({ state: "retesting" });
        return;
      }
      stop();
      if (!stays) {
        const next = { ...diagnosis, findings: diagnosis.findings.filter((each) => each.id !== finding.id) };
        this.diagnoses.set(diagnosis.nodeId, next);
        this.changed(next);
      }
      show({
        state: stays ? "not_mended" : "mended", endedAtMs: this.context.now(),
        after: { atMs: this.context.now(), finding: stays ? reading : null, others: diagnosis.findings.filter((each) => each !== finding && each.severity !== "info"), readings: [{ source: "device", text: stays ? "root:root 600 /dev/dma_device" : "root:stepccl 660 /dev/dma_device" }] },
      });
    });
    return run;
  }

}
