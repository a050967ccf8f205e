import type { FileDiagnosisView } from "../../electron/contract/index.js";
import { fakeDiagnosis } from "./fake-diagnosis.js";

/** What the scripted engine makes of a text: it knows one fault by its device. */
export function fakeFileDiagnosis(text: string): FileDiagnosisView {
  const { findings, cannotTell } = fakeDiagnosis("n2", 0);
  const plain = findings.map((finding) => ({ ...finding, mend: finding.mend.map((mend) => ({ ...mend, id: null })) }));
  const sick = text.includes("dma_device");
  return { verdict: sick ? "cause_found" : text.includes("failed") ? "not_in_this_log" : "healthy", findings: sick ? plain : [], cannotTell: sick ? cannotTell : [], inputs: ["kernel_log"], files: [{ name: "pasted text", sizeBytes: text.length }], lines: text.split("\n").length, droppedChars: 0, durationMs: 12 };
}
