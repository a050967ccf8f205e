import type { Duplex } from "node:stream";
import type { ConsoleError } from "../contract/index.js";
import type { ConnectionState, SshTarget } from "../ssh/index.js";
import type { NodeSession } from "../ssh/types.js";

/** What the fleet needs of a node's connection beyond NodeSession; SshSession is the real one. */
export interface NodeTransport extends NodeSession {
  readonly state: ConnectionState;
  readonly sinceMs: number;
  connect(signal?: AbortSignal): Promise<void>;
  close(): void;
  retarget(target: SshTarget): void;
  canForwardTo(path: string, signal?: AbortSignal): Promise<boolean>;
  openAgentStream(signal?: AbortSignal): Promise<Duplex>;
  on(event: "state", listener: (state: ConnectionState) => void): unknown;
  on(event: "lost", listener: (error: ConsoleError) => void): unknown;
  on(event: "seen", listener: () => void): unknown;
}
