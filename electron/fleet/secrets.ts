/**
 * Where passphrases and passwords are between two uses. The desktop shell keeps them in the system's keychain, the browser
 * shell for the session; the store on disk never sees them.
 */
export interface SecretKeeper {
  get(nodeId: string): Promise<string | null>;
  /** `null` forgets. */
  set(nodeId: string, secret: string | null): Promise<void>;
}

/** Forgets everything when the process ends. */
export class MemorySecretKeeper implements SecretKeeper {
  readonly #secrets = new Map<string, string>();
  async get(nodeId: string): Promise<string | null> {
    return this.#secrets.get(nodeId) ?? null;
  }
  async set(nodeId: string, secret: string | null): Promise<void> {
    if (secret === null) this.#secrets.delete(nodeId);
    else this.#secrets.set(nodeId, secret);
  }
}
