import { RequestError, type ShownError } from "./page-error.js";

const TOKEN = /^[A-Za-z0-9_-]{16,512}$/;

/** The one-time token in a fragment: `#token=…`, or the bare token. Null where the fragment is a route or empty. */
export function tokenOf(hash: string): string | null {
  const body = hash.replace(/^#/, "");
  if (body.startsWith("/") || body === "") return null;
  const named = /(?:^|[?&])token=([^&]*)/.exec(body)?.[1];
  // A token has no character that a fragment would escape; one that is escaped is none of ours.
  const token = named ?? body;
  return TOKEN.test(token) ? token : null;
}

/**
 * Trades the token of the address for a session cookie and takes it out of the address and of the history, so that it stands
 * in no bookmark, screenshot or Referer. Null when all is well (or when an earlier visit left a cookie).
 */
export async function openSession(
  location: Pick<Location, "hash" | "pathname" | "search">, history: Pick<History, "replaceState">, fetcher: typeof fetch = fetch,
): Promise<ShownError | null> {
  const token = tokenOf(location.hash);
  if (token === null) return null;
  history.replaceState(null, "", `${location.pathname}${location.search}#/nodes`);
  try {
    const response = await fetcher("/session", {
      method: "POST", headers: { "content-type": "application/json" }, credentials: "same-origin", body: JSON.stringify({ token }),
    });
    return response.ok ? null : RequestError.of("P104").view;
  } catch {
    // The host is not there at all: the carrier's banner says so and keeps dialling.
    return null;
  }
}
