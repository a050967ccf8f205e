export { memberChecks } from "./members.js";
export { droppingRules, peerAnswers, TIMED_OUT } from "./network.js";
export { nodeChecks } from "./node.js";
export { dataInterfaceOf, interfaces, largeFiles, lines, rdmaNamesOf, text, type LiveNode } from "./read.js";
export { settleHistory, type Settled } from "./history.js";
