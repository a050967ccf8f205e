import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/** Who may talk to the loopback server: one-time tokens and the cookies that they are traded for. */

const newSecret = (): string => randomBytes(32).toString("base64url");
/** Equal length for any input, so that the comparison takes equal time for any input. */
const digest = (secret: string): Buffer => createHash("sha256").update(secret, "utf8").digest();
const MAX_TOKENS = 16;
const MAX_COOKIES = 256;

export class Access {
  #tokens: Buffer[] = [];
  #cookies: Buffer[] = [];

  /** A fresh 256-bit token; good for one exchange. Only the newest few are kept. */
  mint(): string {
    const token = newSecret();
    this.#tokens.push(digest(token));
    this.#tokens = this.#tokens.slice(-MAX_TOKENS);
    return token;
  }

  /** Trades a token for the value of a session cookie; null when the token is wrong or was used. */
  exchange(token: string): string | null {
    const at = indexOf(this.#tokens, token);
    if (at < 0) return null;
    this.#tokens.splice(at, 1);
    const cookie = newSecret();
    this.#cookies.push(digest(cookie));
    this.#cookies = this.#cookies.slice(-MAX_COOKIES);
    return cookie;
  }

  accepts(cookie: string | null): boolean {
    return cookie !== null && indexOf(this.#cookies, cookie) >= 0;
  }
}

/** Looks at every entry, so that the time tells nothing about which one it was. */
function indexOf(secrets: readonly Buffer[], candidate: string): number {
  const given = digest(candidate);
  let found = -1;
  secrets.forEach((secret, i) => {
    if (timingSafeEqual(secret, given)) found = i;
  });
  return found;
}

/** The value of cookie `name` in a Cookie header, or null. */
export function cookieOf(header: string | undefined, name: string): string | null {
  if (header === undefined || header.length > 8192) return null;
  for (const part of header.split(";")) {
    const at = part.indexOf("=");
    if (at > 0 && part.slice(0, at).trim() === name) return part.slice(at + 1).trim();
  }
  return null;
}
