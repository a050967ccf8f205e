import type { FileDiagnosisView, OpenedBundle, SupportBundleView } from "../../electron/contract/index.js";
import { FAKE_MARK } from "./fake-data.js";
import { fakeDiagnosis } from "./fake-diagnosis.js";

export function fakeFileDiagnosis(text: string): FileDiagnosisView {
  const { findings, cannotTell } = fakeDiagnosis("n2", 0);
  const plain = findings.map((finding) => ({ ...finding, mend: finding.mend.map((mend) => ({ ...mend, id: null })) }));
  const sick = text.includes("dma_device");
  return { verdict: sick ? "cause_found" : text.includes("failed") ? "not_in_this_log" : "healthy", findings: sick ? plain : [], cannotTell: sick ? cannotTell : [], inputs: ["kernel_log"], files: [{ name: "pasted text", sizeBytes: text.length }], lines: text.split("\n").length, droppedChars: 0, durationMs: 12 };
}

const PREVIEW = `host-1 ${FAKE_MARK} 198.18.0.1 reached from 198.18.0.2\n[  812.114207] dma_engine: DE001 loaded\n`;

export const fakePreview = (): { text: string; truncatedBytes: number } => ({ text: PREVIEW, truncatedBytes: 0 });

export function fakeBundle(now: number): SupportBundleView {
  return {
    bundleId: "bundle-1", fileName: "stepccl-support-20261130.tar.gz", sizeBytes: 18, madeAtMs: now, expiresAtMs: now + 3_600_000,
    files: [{ name: "node-1/kernel_log.txt", sizeBytes: 48_112, replaced: 14 }, { name: "node-1/gids.txt", sizeBytes: 812, replaced: 6 }, { name: "diagnoses.json", sizeBytes: 9_204, replaced: 22 }],
    replaced: [{ kind: "host", names: 4, places: 18 }, { kind: "ipv4", names: 8, places: 12 }, { kind: "mac", names: 4, places: 8 }, { kind: "guid", names: 2, places: 4 }],
  };
}

export function fakeOpened(now: number): OpenedBundle {
  return {
    fileName: "stepccl-support-20261130.tar.gz", madeAtMs: now - 86_400_000, version: "0.1.0", nodes: [{ name: "node-1", phase: "up" }, { name: "node-2", phase: "degraded" }],
    diagnoses: [fakeDiagnosis("n1", now - 86_400_000), fakeDiagnosis("n2", now - 86_400_000)], judged: fakeFileDiagnosis("dma_device"), files: [{ name: "node-1/kernel_log.txt", sizeBytes: PREVIEW.length, text: PREVIEW, truncatedBytes: 0 }],
  };
}
