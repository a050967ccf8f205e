import type { ErrorView } from "../../electron/contract/index.js";

/**
 * Errors that arise in the page itself, where no host can name them: `P…`, in the same form as the host's.
 * The texts are the last resort; the page shows `errors.<code>` of the chosen language.
 */
export const PAGE_ERRORS = {
  P101: ["The connection to the console was lost before it answered.", "The page reconnects by itself; look at the state before you try again."],
  P102: ["The console did not answer within {seconds} s.", "Check that the console still runs, then try again."],
  P103: ["This page met an internal error: {detail}.", "Reload the page; report this with the text above if it repeats."],
  P104: ["This browser tab has no session with the console.", "Open the address that the console printed when it started."],
  P105: ["The list has a line that cannot be read: {line}.", "Write one node a line: user@host or user@host:port."],
} as const satisfies Record<string, readonly [string, string]>;
export type PageErrorCode = keyof typeof PAGE_ERRORS;

/** What the page can show: the host's errors and its own. */
export type ShownError = Omit<ErrorView, "code"> & { code: string };

const fill = (text: string, params: Record<string, string | number | boolean>): string =>
  text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in params ? String(params[name]) : whole));

/** A rejected request: carries what ErrorNote shows. */
export class RequestError extends Error {
  readonly view: ShownError;
  constructor(view: ShownError) {
    super(`${view.code}: ${view.message}`);
    this.name = "RequestError";
    this.view = view;
  }
  static of(code: PageErrorCode, params: Record<string, string | number | boolean> = {}): RequestError {
    const [message, next] = PAGE_ERRORS[code];
    return new RequestError({ code, message: fill(message, params), next: fill(next, params), params });
  }
}

/** Whatever was thrown, as something that can be shown. */
export function toShownError(thrown: unknown): ShownError {
  if (thrown instanceof RequestError) return thrown.view;
  const detail = thrown instanceof Error ? thrown.message : String(thrown);
  return RequestError.of("P103", { detail }).view;
}

/** True for an error that only says that the person cancelled: nothing to show. */
export const isCancelled = (thrown: unknown): boolean => thrown instanceof RequestError && thrown.view.code === "H104";
