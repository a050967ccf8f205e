import { createHash } from "node:crypto";

/** A public key in SSH's wire form (RFC 4253 section 6.6), as it stands base64-encoded in known_hosts. */
export type KeyBlob = Buffer;

/** "SHA256:…" without padding, as `ssh-keygen -l` prints it. */
export function fingerprintOf(key: KeyBlob): string {
  return `SHA256:${createHash("sha256").update(key).digest("base64").replace(/=+$/, "")}`;
}

/** The type named inside the blob, such as "ssh-ed25519"; null when the blob is none. */
export function keyTypeOf(key: KeyBlob): string | null {
  if (key.length < 4) return null;
  const length = key.readUInt32BE(0);
  if (length === 0 || length > 64 || key.length < 4 + length) return null;
  const type = key.toString("latin1", 4, 4 + length);
  return /^[A-Za-z0-9@._-]+$/.test(type) ? type : null;
}
