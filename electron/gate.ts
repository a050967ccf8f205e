import type { z } from "zod";
import {
  ConsoleError, METHODS, STREAMS, toErrorView, type CheckedParams, type Method, type Params, type Result, type Stream, type StreamEvent,
} from "./contract/index.js";
import { issueText } from "./link/client.js";
import type { SubscribeOptions, Topic } from "./streams.js";

/** The console host as the shells, the CLI and the demo know it. */
export interface Host {
  /** Checked like a request of the page, and answered as one. @throws ConsoleError */
  request<M extends Method>(method: M, params: Params<M>, signal?: AbortSignal): Promise<Result<M>>;
  /** A snapshot first, then what changes, at most 10 events a second. Gives the function that unsubscribes. */
  subscribe<S extends Stream>(stream: S, listener: (event: StreamEvent<S>) => void, options?: SubscribeOptions): () => void;
  /** The same for what comes over a wire, with names that may be anything. */
  readonly wire: Dispatcher;
  /** Stops the runs of this console and closes every connection. */
  close(): Promise<void>;
}

/** The host as a wire sees it: names and values may be anything. */
export interface Dispatcher {
  /** Checks `method` and `params` against the contract: H102, H101. */
  dispatch(method: string, params: unknown, signal: AbortSignal): Promise<unknown>;
  /** @throws ConsoleError H102 for a stream that the contract does not have */
  subscribe(stream: string, listener: (event: unknown) => void, options?: SubscribeOptions): () => void;
}

/** What does the work behind each method. Parameters have been checked; a result is cut to the contract before it leaves. */
export type Handlers = { [M in Method]: (params: CheckedParams<M>, signal: AbortSignal) => Promise<Result<M>> | Result<M> };
export type Topics = Record<Stream, Topic>;

const isMethod = (name: string): name is Method => Object.hasOwn(METHODS, name);
const isStream = (name: string): name is Stream => Object.hasOwn(STREAMS, name);
const shorten = (name: string): string => name.slice(0, 64);

/** The gate between whoever asks and the rooms: nothing unchecked goes in, nothing outside the contract comes out. */
export function hostOf(handlers: Handlers, topics: Topics, close: () => Promise<void>, onError: (error: unknown) => void = () => {}): Host {
  async function dispatch(method: string, params: unknown, signal: AbortSignal): Promise<unknown> {
    if (!isMethod(method)) throw ConsoleError.of("H102", { method: shorten(method) });
    const checked = METHODS[method].params.safeParse(params);
    if (!checked.success) throw ConsoleError.of("H101", { detail: `${method}: ${issueText(checked.error)}` });
    if (signal.aborted) throw ConsoleError.of("H104");
    const handler = handlers[method] as (params: unknown, signal: AbortSignal) => Promise<unknown>;
    const answer = await (async () => handler(checked.data, signal))().catch((error: unknown) => {
      // What has no code of its own becomes H105 for the asker; the log has the whole of it.
      if (toErrorView(error).code === "H105") onError(error);
      throw error;
    });
    const result = (METHODS[method].result as z.ZodType).safeParse(answer);
    if (!result.success) throw ConsoleError.of("H105", { detail: `the result of ${method}: ${issueText(result.error)}` });
    return result.data;
  }
  function subscribe(stream: string, listener: (event: unknown) => void, options: SubscribeOptions = {}): () => void {
    if (!isStream(stream)) throw ConsoleError.of("H102", { method: shorten(stream) });
    return topics[stream].subscribe(listener, options);
  }
  return {
    request: (method, params, signal) => dispatch(method, params, signal ?? new AbortController().signal) as never,
    subscribe: (stream, listener, options) => subscribe(stream, listener as (event: unknown) => void, options),
    wire: { dispatch, subscribe },
    close,
  };
}
