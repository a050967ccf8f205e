export { diagnoseFiles, diagnoseStreams, judgeNode } from "./diagnose.js";
export { analyse, analyseStreams, type Analysis, type Finding, type Source, type Verdict } from "./engine.js";
export { RULES, ruleOf } from "./rules/index.js";
export { Diagnosis, type DiagnosisDocuments, type DiagnosisOptions } from "./service.js";
export { findingTexts, type FindingTexts } from "./texts.js";
export type { Language } from "./types.js";

import { Diagnosis, type DiagnosisOptions } from "./service.js";

/** Diagnoses of the fleet's nodes: `start(nodeIds)`, `list()`, `topic` by node id, `close()`. */
export function createDiagnosis(options: DiagnosisOptions): Diagnosis {
  return new Diagnosis(options);
}
