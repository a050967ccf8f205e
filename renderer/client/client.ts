import {
  HostMessage, METHODS, STREAMS,
  type Carrier, type Method, type Params, type Result, type Stream, type StreamEvent,
} from "../../electron/contract/index.js";
import { RequestError, toShownError, type ShownError } from "./page-error.js";

export type ConnectionState = "connecting" | "open" | "closed";

export interface RequestOptions {
  signal?: AbortSignal;
  /** How long a request may wait, in ms; long work is an operation with its own stream, so no request is long. */
  timeoutMs?: number;
}

interface Pending {
  sent: boolean;
  message: { type: "request"; id: number; method: string; params: unknown };
  settle(outcome: { result: unknown } | { error: RequestError }): void;
}

interface Subscription {
  /** The wire id of the subscription that lives now; it changes with each resubscription. */
  id: number;
  stream: Stream;
  nextSeq: number;
  onEvent(data: unknown): void;
  onError(error: ShownError): void;
}

export interface ClientOptions {
  /** Check every result and event against the contract (development and tests; the host checks what it sends). */
  validate?: boolean;
  defaultTimeoutMs?: number;
}

/**
 * The page's end of the contract over any carrier. A lost connection rejects what was sent and unanswered (P101: it may or may
 * not have been done), keeps what was not sent yet, and subscribes again to every live stream when the carrier is back.
 */
export class Client {
  readonly #carrier: Carrier;
  readonly #validate: boolean;
  readonly #defaultTimeoutMs: number;
  readonly #pending = new Map<number, Pending>();
  readonly #subscriptions = new Map<number, Subscription>();
  readonly #stateListeners = new Set<(state: ConnectionState) => void>();
  readonly #unsubscribe: Array<() => void>;
  #nextId = 1;
  #state: ConnectionState = "connecting";

  /** The shell's own file dialog; null where it has none. */
  get chooseFile(): (() => Promise<string | null>) | null {
    const { chooseFile } = this.#carrier;
    return chooseFile ? () => chooseFile.call(this.#carrier) : null;
  }

  constructor(carrier: Carrier, options: ClientOptions = {}) {
    this.#carrier = carrier;
    this.#validate = options.validate ?? false;
    this.#defaultTimeoutMs = options.defaultTimeoutMs ?? 60_000;
    this.#unsubscribe = [
      carrier.onMessage((message) => this.#receive(message)),
      carrier.onState((state) => this.#changeState(state)),
    ];
  }

  get state(): ConnectionState {
    return this.#state;
  }

  onState(listener: (state: ConnectionState) => void): () => void {
    this.#stateListeners.add(listener);
    return () => this.#stateListeners.delete(listener);
  }

  /** Rejects with RequestError. Aborting the signal sends `cancel` to the host and rejects at once with H104. */
  request<M extends Method>(method: M, params: Params<M>, options: RequestOptions = {}): Promise<Result<M>> {
    const id = this.#nextId++;
    const timeoutMs = options.timeoutMs ?? this.#defaultTimeoutMs;
    return new Promise<Result<M>>((resolve, reject) => {
      const { signal } = options;
      if (signal?.aborted) {
        reject(cancelled());
        return;
      }
      const onAbort = () => {
        if (this.#pending.get(id)?.sent) this.#send({ type: "cancel", id });
        pending.settle({ error: cancelled() });
      };
      const timer = setTimeout(() => {
        if (this.#pending.get(id)?.sent) this.#send({ type: "cancel", id });
        pending.settle({ error: RequestError.of("P102", { seconds: Math.round(timeoutMs / 1000) }) });
      }, timeoutMs);
      const pending: Pending = {
        sent: false,
        message: { type: "request", id, method, params },
        settle: (outcome) => {
          if (!this.#pending.delete(id)) return;
          clearTimeout(timer);
          signal?.removeEventListener("abort", onAbort);
          if ("error" in outcome) {
            reject(outcome.error);
            return;
          }
          if (this.#validate) {
            const parsed = METHODS[method].result.safeParse(outcome.result);
            if (!parsed.success) {
              reject(RequestError.of("P103", { detail: `${method}: ${parsed.error.message}` }));
              return;
            }
          }
          resolve(outcome.result as Result<M>);
        },
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#pending.set(id, pending);
      if (this.#state === "open") {
        pending.sent = true;
        this.#send(pending.message);
      }
    });
  }

  /** Events until the returned function is called; after each reconnection and each lost event a new snapshot comes. */
  subscribe<S extends Stream>(
    stream: S, onEvent: (event: StreamEvent<S>) => void, onError: (error: ShownError) => void = () => undefined,
  ): () => void {
    const subscription: Subscription = { id: this.#nextId++, stream, nextSeq: 1, onEvent: onEvent as (data: unknown) => void, onError };
    this.#subscriptions.set(subscription.id, subscription);
    if (this.#state === "open") this.#send({ type: "subscribe", id: subscription.id, stream });
    return () => {
      if (!this.#subscriptions.delete(subscription.id)) return;
      if (this.#state === "open") this.#send({ type: "cancel", id: subscription.id });
    };
  }

  close(): void {
    for (const stop of this.#unsubscribe) stop();
    this.#carrier.close();
    this.#changeState("closed");
  }

  #send(message: Parameters<Carrier["send"]>[0]): void {
    this.#carrier.send(message);
  }

  #changeState(state: ConnectionState): void {
    if (state === this.#state) return;
    const before = this.#state;
    this.#state = state;
    if (state === "open") this.#resume();
    else if (before === "open") {
      for (const pending of [...this.#pending.values()]) {
        if (pending.sent) pending.settle({ error: RequestError.of("P101") });
      }
    }
    for (const listener of [...this.#stateListeners]) listener(state);
  }

  #resume(): void {
    for (const subscription of [...this.#subscriptions.values()]) this.#resubscribe(subscription);
    for (const pending of this.#pending.values()) {
      if (pending.sent) continue;
      pending.sent = true;
      this.#send(pending.message);
    }
  }

  #resubscribe(subscription: Subscription): void {
    this.#subscriptions.delete(subscription.id);
    subscription.id = this.#nextId++;
    subscription.nextSeq = 1;
    this.#subscriptions.set(subscription.id, subscription);
    this.#send({ type: "subscribe", id: subscription.id, stream: subscription.stream });
  }

  #receive(raw: HostMessage): void {
    const parsed = HostMessage.safeParse(raw);
    if (!parsed.success) {
      console.error("A message of the host does not match the contract", parsed.error.issues);
      return;
    }
    const message = parsed.data;
    switch (message.type) {
      case "result":
        this.#pending.get(message.id)?.settle({ result: message.result });
        return;
      case "error": {
        if (message.id === null) {
          console.error("The host refused a message", message.error);
          return;
        }
        this.#pending.get(message.id)?.settle({ error: new RequestError(message.error) });
        this.#subscriptions.get(message.id)?.onError(message.error);
        return;
      }
      case "event": {
        const subscription = this.#subscriptions.get(message.id);
        if (!subscription) return;
        if (message.seq !== subscription.nextSeq) {
          this.#send({ type: "cancel", id: subscription.id });
          this.#resubscribe(subscription);
          return;
        }
        subscription.nextSeq++;
        this.#deliver(subscription, message.data);
      }
    }
  }

  #deliver(subscription: Subscription, data: unknown): void {
    if (this.#validate) {
      const parsed = STREAMS[subscription.stream].event.safeParse(data);
      if (!parsed.success) {
        subscription.onError(RequestError.of("P103", { detail: `${subscription.stream}: ${parsed.error.message}` }).view);
        return;
      }
    }
    try {
      subscription.onEvent(data);
    } catch (thrown) {
      console.error(`A listener of ${subscription.stream} failed`, thrown);
      subscription.onError(toShownError(thrown));
    }
  }
}

const cancelled = (): RequestError =>
  new RequestError({ code: "H104", message: "The request was cancelled.", next: "Start it again when you are ready." });
