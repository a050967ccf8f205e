import { HostMessage, type Carrier, type ClientMessage } from "../../electron/contract/index.js";

type State = "connecting" | "open" | "closed";

export interface WsCarrierOptions {
  url: string;
  /** First and longest wait before the next dial, in ms. */
  minDelayMs?: number;
  maxDelayMs?: number;
  /** For tests. */
  makeSocket?: (url: string) => WebSocket;
  random?: () => number;
}

/**
 * The carrier of the browser shell: one WebSocket to the host that served the page, dialled again with growing pauses.
 * It keeps no messages: what the connection did not take is the client's to repeat or to give up.
 */
export class WsCarrier implements Carrier {
  readonly #url: string;
  readonly #minDelayMs: number;
  readonly #maxDelayMs: number;
  readonly #makeSocket: (url: string) => WebSocket;
  readonly #random: () => number;
  readonly #messageListeners = new Set<(message: HostMessage) => void>();
  readonly #stateListeners = new Set<(state: State) => void>();
  #socket: WebSocket | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #failures = 0;
  #state: State = "connecting";
  #ended = false;

  constructor(options: WsCarrierOptions) {
    this.#url = options.url;
    this.#minDelayMs = options.minDelayMs ?? 250;
    this.#maxDelayMs = options.maxDelayMs ?? 5000;
    this.#makeSocket = options.makeSocket ?? ((url) => new WebSocket(url));
    this.#random = options.random ?? Math.random;
    this.#dial();
  }

  send(message: ClientMessage): void {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  onMessage(listener: (message: HostMessage) => void): () => void {
    this.#messageListeners.add(listener);
    return () => this.#messageListeners.delete(listener);
  }

  /** Calls back with the present state at once, then with each change. */
  onState(listener: (state: State) => void): () => void {
    this.#stateListeners.add(listener);
    listener(this.#state);
    return () => this.#stateListeners.delete(listener);
  }

  /** Dials now instead of after the pause; for the banner's button. */
  reconnectNow(): void {
    if (this.#ended || this.#state === "open" || this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#dial();
  }

  close(): void {
    this.#ended = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#socket?.close();
    this.#socket = null;
    this.#setState("closed");
  }

  #setState(state: State): void {
    if (state === this.#state) return;
    this.#state = state;
    for (const listener of [...this.#stateListeners]) listener(state);
  }

  #dial(): void {
    this.#setState("connecting");
    const socket = this.#makeSocket(this.#url);
    this.#socket = socket;
    socket.addEventListener("open", () => {
      if (this.#socket !== socket) return;
      this.#failures = 0;
      this.#setState("open");
    });
    socket.addEventListener("message", (event: MessageEvent) => {
      if (this.#socket !== socket) return;
      this.#receive(event.data);
    });
    socket.addEventListener("close", () => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      this.#setState("closed");
      if (!this.#ended) this.#dialLater();
    });
  }

  #dialLater(): void {
    const ceiling = Math.min(this.#maxDelayMs, this.#minDelayMs * 2 ** this.#failures);
    this.#failures = Math.min(this.#failures + 1, 16);
    const delay = ceiling / 2 + (ceiling / 2) * this.#random();
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#dial();
    }, delay);
  }

  #receive(data: unknown): void {
    let value: unknown;
    try {
      value = JSON.parse(String(data));
    } catch (error) {
      console.error("The host sent text that is no JSON", error);
      return;
    }
    const message = HostMessage.safeParse(value);
    if (!message.success) {
      console.error("A message of the host does not match the contract", message.error.issues);
      return;
    }
    for (const listener of [...this.#messageListeners]) listener(message.data);
  }
}
