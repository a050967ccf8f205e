import type { HostKeyView } from "../../electron/contract/index.js";
import type { Client } from "../client/client.js";
import { isCancelled, toShownError, type ShownError } from "../client/page-error.js";

export type KeyCheck = { state: "checking" } | { state: "done"; key: HostKeyView } | { state: "failed"; error: ShownError };

/** Dials in flight; a bastion in front of the nodes may drop more than ten unauthenticated ones. */
const IN_FLIGHT = 8;

/** Asks each node for its key and reports each answer as it comes; ends when all have, or when `signal` aborts. */
export async function checkHostKeys(client: Client, ids: readonly string[], report: (id: string, check: KeyCheck) => void, signal: AbortSignal): Promise<void> {
  const queue = [...ids];
  const worker = async () => {
    for (let id = queue.shift(); id !== undefined && !signal.aborted; id = queue.shift()) {
      try {
        report(id, { state: "done", key: await client.request("nodes.checkHostKey", { nodeId: id }, { signal }) });
      } catch (thrown) {
        if (isCancelled(thrown)) return;
        report(id, { state: "failed", error: toShownError(thrown) });
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(IN_FLIGHT, ids.length) }, worker));
}

/** For each node, how many of the nodes asked offer the very same key: above one they were cloned, or one answers for all. */
export function sharedFingerprints(checks: ReadonlyMap<string, KeyCheck>): Map<string, number> {
  const counts = new Map<string, number>();
  const offered = (check: KeyCheck): string | null => (check.state === "done" ? check.key.offered : null);
  for (const check of checks.values()) {
    const key = offered(check);
    if (key !== null) counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return new Map([...checks].map(([id, check]) => [id, counts.get(offered(check) ?? "") ?? 0]));
}

/** The middle of `/etc/ssh/ssh_host_<…>_key.pub` for a key's algorithm, as OpenSSH names its files. */
export function hostKeyFile(algorithm: string | null): "ed25519" | "ecdsa" | "rsa" {
  if (algorithm?.startsWith("ecdsa-")) return "ecdsa";
  return algorithm === "ssh-rsa" || algorithm?.startsWith("rsa-sha2-") ? "rsa" : "ed25519";
}
