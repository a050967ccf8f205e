export { loadAddon, type Addon } from "./addon.js";
export { connectAgent, errorViewOf, issueText, type ConnectedAgent, type ConnectOptions } from "./client.js";
export * from "./schemas.js";
export type { NodeDirectory } from "./directory.js";
export type { AgentClient } from "./types.js";
