export * from "./api.js";
export * from "./diagnosis.js";
export * from "./errors.js";
export * from "./nodes.js";
export * from "./runs.js";
export * from "./topology.js";
export * from "./wire.js";
