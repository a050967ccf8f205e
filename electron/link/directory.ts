import type { NodeView } from "../contract/index.js";
import type { NodeSession } from "../ssh/types.js";
import type { AgentClient } from "./types.js";

/** What telemetry, collectives and diagnosis need of the fleet. Every method rejects with a ConsoleError. */
export interface NodeDirectory {
  list(): readonly NodeView[];
  get(nodeId: string): NodeView | undefined;
  /** The node's SSH connection, dialled when it is not open. H301 for an unknown node. */
  session(nodeId: string, signal?: AbortSignal): Promise<NodeSession>;
  /** The conversation with the node's daemon, shared by all that ask; opened when it is not. Never close it: it is not yours. */
  agent(nodeId: string, signal?: AbortSignal): Promise<AgentClient>;
  /**
   * Whether the node's own network stack answers: a new TCP connection to its SSH port, without a word over it. Tells a node
   * that is gone from one whose daemon is slow. Rejects with H301 or H104 alone.
   */
  reachable(nodeId: string, signal: AbortSignal): Promise<boolean>;
  /** Called after changes with the ids that were added, changed or removed; gives the function that unsubscribes. */
  onChange(listener: (nodeIds: readonly string[]) => void): () => void;
}
