export { diagnoseFiles, diagnoseStreams, judgeNode } from "./diagnose.js";
export { analyse, analyseStreams, type Analysis, type Source } from "./engine.js";
export { RULES, ruleOf } from "./rules/index.js";
export { Diagnosis, type DiagnosisDocuments, type DiagnosisOptions } from "./service.js";

import { Diagnosis, type DiagnosisOptions } from "./service.js";

/** Diagnoses of the fleet's nodes: `start(nodeIds)`, `list()`, `topic` by node id, `close()`. */
export function createDiagnosis(options: DiagnosisOptions): Diagnosis {
  return new Diagnosis(options);
}
