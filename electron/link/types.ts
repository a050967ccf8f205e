import type { TelemetryFrame } from "../../native/addon/index.js";
import type { ConsoleError } from "../contract/index.js";
import type { AgentMethod, AgentParams, AgentResult, RunEvent } from "./schemas.js";

/** One JSON-RPC conversation with one daemon (agent/PROTOCOL.md). What comes back is checked against the schema: H404 when it fails. */
export interface AgentClient {
  readonly closed: boolean;
  call<M extends AgentMethod>(method: M, params: AgentParams<M>, options?: { signal?: AbortSignal; timeoutMs?: number }): Promise<AgentResult<M>>;
  /** Each returns the function that unsubscribes. */
  onRunEvent(listener: (event: RunEvent) => void): () => void;
  onFrame(listener: (frame: TelemetryFrame) => void): () => void;
  /** Called once, with the reason. */
  onClose(listener: (reason: ConsoleError) => void): () => void;
  close(): void;
}
