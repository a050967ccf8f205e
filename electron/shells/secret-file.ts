import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import type { SecretKeeper } from "../fleet/index.js";

/** Encrypts with a key that lies in the system's keychain; desktop.ts gives Electron's. */
export interface Sealer {
  /** Name of the keychain, kept beside the secrets: another one cannot open them. */
  backend: string;
  seal(text: string): Promise<Buffer>;
  open(sealed: Buffer): Promise<string>;
}

const FileShape = z.object({ backend: z.string(), secrets: z.record(z.string(), z.string()) });

/** Secrets by node, each sealed, in one file of the data folder. One that cannot be opened any more counts as forgotten. */
export class SecretFile implements SecretKeeper {
  #writing: Promise<void> = Promise.resolve();
  constructor(private readonly path: string, private readonly sealer: Sealer) {}

  async get(nodeId: string): Promise<string | null> {
    await this.#writing;
    const sealed = (await this.#read()).get(nodeId);
    return sealed === undefined ? null : this.sealer.open(Buffer.from(sealed, "base64"));
  }

  set(nodeId: string, secret: string | null): Promise<void> {
    const next = this.#writing.then(async () => {
      const all = await this.#read();
      if (secret === null) {
        if (!all.delete(nodeId)) return;
      } else all.set(nodeId, (await this.sealer.seal(secret)).toString("base64"));
      await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
      await writeFile(`${this.path}.part`, JSON.stringify({ backend: this.sealer.backend, secrets: Object.fromEntries(all) }), { mode: 0o600, flush: true });
      await rename(`${this.path}.part`, this.path);
    });
    this.#writing = next.catch(() => undefined);
    return next;
  }

  async #read(): Promise<Map<string, string>> {
    let text: string;
    try {
      text = await readFile(this.path, "utf8");
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return new Map();
      throw error;
    }
    const parsed = FileShape.safeParse(JSON.parse(text));
    return parsed.success && parsed.data.backend === this.sealer.backend ? new Map(Object.entries(parsed.data.secrets)) : new Map();
  }
}
