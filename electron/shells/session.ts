import { ClientMessage, ConsoleError, MAX_MESSAGE_BYTES, toErrorView, type HostMessage } from "../contract/index.js";
import type { Dispatcher } from "../gate.js";
import { issueText } from "../link/client.js";

/** One connected page, as a carrier gives it. */
export interface Peer {
  send(text: string): void;
  /** Bytes handed to `send` that have not left yet. */
  backlogBytes(): number;
  close(reason: string): void;
}

const MAX_REQUESTS = 128;
const MAX_SUBSCRIPTIONS = 64;
const MAX_BAD_IN_A_ROW = 64;
/** Above this no event is made for the page; above the second it is cut off. */
const BACKLOG_PAUSE_BYTES = 1 << 20;
const BACKLOG_LIMIT_BYTES = 64 << 20;

/**
 * The wire envelope (contract/wire.ts) for one page, whatever carries it. Every message is answered or is a cancel;
 * a malformed one is answered with H101 and does nothing. Nothing here throws at the carrier.
 */
export class Session {
  readonly #requests = new Map<number, AbortController>();
  readonly #subscriptions = new Map<number, () => void>();
  #badInARow = 0;
  #closed = false;

  constructor(private readonly host: Dispatcher, private readonly peer: Peer) {}

  /** Takes one message as the carrier got it: JSON text, or, from a carrier that copies objects, its JSON text too. */
  receive(text: string): void {
    if (this.#closed) return;
    const message = this.#parse(text);
    if (!message) return;
    this.#badInARow = 0;
    if (message.type === "request") void this.#request(message.id, message.method, message.params);
    else if (message.type === "subscribe") this.#subscribe(message.id, message.stream);
    else this.#cancel(message.id);
  }

  /** Ends all that the page asked for. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const abort of this.#requests.values()) abort.abort();
    for (const leave of this.#subscriptions.values()) leave();
    this.#requests.clear();
    this.#subscriptions.clear();
  }

  /** Answers what the carrier itself could not read. */
  refuse(detail: string): void {
    this.#send({ type: "error", id: null, error: ConsoleError.of("H101", { detail }).view });
    if (++this.#badInARow >= MAX_BAD_IN_A_ROW) {
      this.close();
      this.peer.close("too many malformed messages");
    }
  }

  #parse(text: string): ClientMessage | null {
    if (Buffer.byteLength(text) > MAX_MESSAGE_BYTES) {
      this.refuse(`the message is larger than ${MAX_MESSAGE_BYTES} bytes`);
      return null;
    }
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      this.refuse("the message is no JSON");
      return null;
    }
    const message = ClientMessage.safeParse(value);
    if (!message.success) {
      this.refuse(issueText(message.error));
      return null;
    }
    const { id, type } = message.data;
    if (type !== "cancel" && (this.#requests.has(id) || this.#subscriptions.has(id))) {
      this.refuse(`id ${id} is in use`);
      return null;
    }
    return message.data;
  }

  async #request(id: number, method: string, params: unknown): Promise<void> {
    if (this.#requests.size >= MAX_REQUESTS) {
      return this.#send({ type: "error", id, error: ConsoleError.of("H101", { detail: `more than ${MAX_REQUESTS} requests at a time` }).view });
    }
    const abort = new AbortController();
    this.#requests.set(id, abort);
    const answer = await this.host.dispatch(method, params, abort.signal).then(
      (result): HostMessage => ({ type: "result", id, result }),
      (error: unknown): HostMessage => ({ type: "error", id, error: toErrorView(error) }),
    );
    // A cancelled request was answered already.
    if (this.#requests.get(id) !== abort) return;
    this.#requests.delete(id);
    this.#send(answer);
  }

  #subscribe(id: number, stream: string): void {
    if (this.#subscriptions.size >= MAX_SUBSCRIPTIONS) {
      return this.#send({ type: "error", id, error: ConsoleError.of("H101", { detail: `more than ${MAX_SUBSCRIPTIONS} subscriptions` }).view });
    }
    let seq = 0;
    try {
      // The first event may come before subscribe returns, so the id is taken first.
      this.#subscriptions.set(id, () => {});
      const leave = this.host.subscribe(
        stream,
        (data) => this.#send({ type: "event", id, seq: ++seq, data }),
        { ready: () => this.peer.backlogBytes() < BACKLOG_PAUSE_BYTES },
      );
      if (this.#closed) leave();
      else this.#subscriptions.set(id, leave);
    } catch (error) {
      this.#subscriptions.delete(id);
      this.#send({ type: "error", id, error: toErrorView(error) });
    }
  }

  #cancel(id: number): void {
    const abort = this.#requests.get(id);
    if (abort) {
      this.#requests.delete(id);
      abort.abort();
      this.#send({ type: "error", id, error: ConsoleError.of("H104").view });
    }
    this.#subscriptions.get(id)?.();
    this.#subscriptions.delete(id);
  }

  #send(message: HostMessage): void {
    if (this.#closed) return;
    this.peer.send(JSON.stringify(message));
    if (this.peer.backlogBytes() > BACKLOG_LIMIT_BYTES) {
      this.close();
      this.peer.close("the page does not read");
    }
  }
}
