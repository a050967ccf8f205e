import { contentSecurityPolicy } from "./page-files.js";

/** What the desktop window may do, without Electron, so that it can be tested. */

export const SCHEME = "stepccl";
export const PAGE_ORIGIN = `${SCHEME}://console`;
export const PAGE_URL = `${PAGE_ORIGIN}/index.html`;

/** The only address that a page of ours has: parsed and compared whole, never by its beginning. */
export function isOurPage(address: string): boolean {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return false;
  }
  return url.protocol === `${SCHEME}:` && url.host === "console" && url.username === "" && url.password === "";
}

/** Whether a message comes from our page's main frame in our window. */
export function isTrustedSender(frame: { url: string; parent: unknown } | null, sameWindow: boolean): boolean {
  return sameWindow && frame !== null && frame.parent === null && isOurPage(frame.url);
}

/** Permissions that a page of ours may use. */
export const mayUse = (permission: string, requestingUrl: string): boolean => permission === "clipboard-sanitized-write" && isOurPage(requestingUrl);

export const desktopPolicy = (nonce: string): string => contentSecurityPolicy(nonce, ["'self'"]);

/** Keychains that keep a secret; `basic_text` is a text file with a fixed password. */
export const keepsSecrets = (backend: string): boolean => backend !== "basic_text" && backend !== "unknown";
