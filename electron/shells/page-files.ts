import { randomBytes } from "node:crypto";
import { readFile, realpath } from "node:fs/promises";
import { extname, join, sep } from "node:path";

/** The built page, as both shells serve it. */

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
  ".json": "application/json", ".map": "application/json", ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".woff": "font/woff",
  ".txt": "text/plain; charset=utf-8", ".wasm": "application/wasm", ".webmanifest": "application/manifest+json",
};

export const newNonce = (): string => randomBytes(18).toString("base64");

/** The policy of every document: nothing but our own files; styles that the widgets make carry the nonce. */
export function contentSecurityPolicy(nonce: string, connect: readonly string[]): string {
  return [
    "default-src 'none'", "script-src 'self'", `style-src 'self' 'nonce-${nonce}'`, "img-src 'self' data:", "font-src 'self'",
    `connect-src ${connect.join(" ")}`, "worker-src 'self'", "manifest-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "object-src 'none'",
  ].join("; ");
}

/** Headers of every answer, whatever it is. */
export const SAFE_HEADERS: Record<string, string> = {
  "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store", "x-frame-options": "DENY",
  "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), microphone=(), geolocation=(), usb=(), serial=(), payment=()",
};

export interface PageFile {
  type: string;
  bytes: Buffer;
}

/**
 * The file of the page at `pathname` (percent-encoded, as in an address), or null. Nothing outside `pageDir` is reached:
 * neither by `..`, nor by an encoded one, nor by a symbolic link.
 */
export async function readPageFile(pageDir: string, pathname: string): Promise<PageFile | null> {
  let path: string;
  try {
    path = decodeURIComponent(pathname);
  } catch {
    return null;
  }
  if (path === "/") path = "/index.html";
  if (!path.startsWith("/") || path.includes("\0") || path.includes("\\")) return null;
  if (path.split("/").slice(1).some((part) => part === "" || part.startsWith("."))) return null;
  const type = TYPES[extname(path).toLowerCase()];
  if (!type) return null;
  try {
    const root = await realpath(pageDir);
    const real = await realpath(join(root, path));
    if (!real.startsWith(root + sep)) return null;
    return { type, bytes: await readFile(real) };
  } catch (error) {
    if (isAbsence(error)) return null;
    throw error;
  }
}

/** Puts the nonce where the page's widgets find it: `<meta name="csp-nonce" content="…">`. */
export function withNonce(html: Buffer, nonce: string): Buffer {
  return Buffer.from(html.toString("utf8").replace(/<head(?=[\s>])[^>]{0,200}>/i, (head) => `${head}<meta name="csp-nonce" content="${nonce}">`));
}

const isAbsence = (error: unknown): boolean =>
  error instanceof Error && "code" in error && ["ENOENT", "ENOTDIR", "EISDIR", "ENAMETOOLONG", "ELOOP"].includes(String(error.code));
