import { z } from "zod";
import { ErrorView } from "./errors.js";

/**
 * The envelope that both carriers (Electron IPC, loopback WebSocket) carry, one JSON text each way.
 * `id` is chosen by the client and unique while its request or subscription lives.
 */
export const MAX_MESSAGE_BYTES = 1 << 20;
const Id = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

export const ClientMessage = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("request"), id: Id, method: z.string().max(64), params: z.unknown() }),
  /** Ends a running request (the host aborts its work; the answer is H104) or a subscription. */
  z.strictObject({ type: z.literal("cancel"), id: Id }),
  z.strictObject({ type: z.literal("subscribe"), id: Id, stream: z.string().max(64) }),
]);
export type ClientMessage = z.infer<typeof ClientMessage>;

export const HostMessage = z.discriminatedUnion("type", [
  z.object({ type: z.literal("result"), id: Id, result: z.unknown() }),
  z.object({ type: z.literal("error"), id: Id.nullable(), error: ErrorView }),
  /** `seq` counts from 1 for each subscription; a gap means lost events: subscribe again. */
  z.object({ type: z.literal("event"), id: Id, seq: z.number(), data: z.unknown() }),
]);
export type HostMessage = z.infer<typeof HostMessage>;

/** What a carrier gives the client; `preload.ts` exposes it as `window.stepccl`, the browser shell builds it over WebSocket. */
export interface Carrier {
  send(message: ClientMessage): void;
  /** Returns the function that unsubscribes. */
  onMessage(listener: (message: HostMessage) => void): () => void;
  onState(listener: (state: "connecting" | "open" | "closed") => void): () => void;
  close(): void;
  /** The desktop's own file dialog: a path, or null when it was closed. Absent where the shell has none (see hello's capabilities). */
  chooseFile?(): Promise<string | null>;
}
