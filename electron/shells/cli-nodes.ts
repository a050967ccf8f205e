import { ConsoleError, type HostKeyView, type NodeInput, type NodeView } from "../contract/index.js";
import type { Host } from "../gate.js";
import { ask, askSecret, canAsk, clean, type Io } from "./terminal.js";

/** What several commands of the CLI do with nodes. */

export class UsageError extends Error {}
/** A host key waits for a person. */
export class NeedsConfirmation extends Error {}

/** `[user@]host[:port]`; IPv6 addresses in brackets. @throws UsageError */
export function parseTarget(target: string): { user?: string; host: string; port?: number } {
  const match = /^(?:([^@\s]{1,64})@)?(?:\[([0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,20})?)\]|([^@:\s[\]]{1,255}))(?::(\d{1,5}))?$/.exec(target);
  const host = match?.[2] ?? match?.[3];
  if (!match || !host) throw new UsageError(`"${clean(target)}" is no node: write [user@]host[:port].`);
  const port = match[4] === undefined ? undefined : Number(match[4]);
  return { host, ...(match[1] === undefined ? {} : { user: match[1] }), ...(port === undefined ? {} : { port }) };
}

/** Nodes by name, id or host; all of them where none is named. @throws UsageError */
export async function pickNodes(host: Host, wanted: readonly string[]): Promise<NodeView[]> {
  const nodes = await host.request("nodes.list", {});
  if (nodes.length === 0) throw new UsageError("There is no node yet: add one with stepccl nodes add.");
  if (wanted.length === 0) return nodes;
  return wanted.map((name) => {
    const found = nodes.filter((node) => node.id === name || node.name === name || node.host === name || `${node.host}:${node.port}` === name);
    if (found.length === 0) throw new UsageError(`There is no node ${clean(name)}. Known: ${nodes.map((node) => node.name).join(", ")}.`);
    if (found.length > 1) throw new UsageError(`${clean(name)} means ${found.length} nodes (${found.map((node) => node.id).join(", ")}): name one by its id.`);
    return found[0]!;
  });
}

/**
 * Has the node's host key confirmed: by the fingerprint given, or by a person at the terminal, never by itself.
 * A key that the system's known_hosts vouches for needs no answer.
 * @throws NeedsConfirmation with what to do next
 */
export async function confirmHostKey(host: Host, node: NodeView, io: Io, accepted: string | undefined): Promise<NodeView> {
  const key = await host.request("nodes.checkHostKey", { nodeId: node.id });
  if (key.status === "trusted") return current(host, node.id);
  if (key.status === "revoked") throw ConsoleError.of("H203", { host: node.host, expected: "no key: this one is marked @revoked", offered: key.offered ?? "none" });
  if (key.offered === null) throw new NeedsConfirmation(`${node.name} offered no host key.`);
  if (accepted !== undefined) return host.request("nodes.trustHostKey", { nodeId: node.id, fingerprint: accepted });
  if (!canAsk(io)) {
    throw new NeedsConfirmation(`${describeKey(node, key)}\nCompare it with the node and run: stepccl nodes trust ${node.id} --accept-fingerprint ${key.offered}`);
  }
  io.stderr.write(`${describeKey(node, key)}\n`);
  const answer = await ask(io, key.status === "changed" ? 'Type "replace" to trust the new key, anything else to stop: ' : 'Type "yes" to trust it, anything else to stop: ');
  if (answer !== (key.status === "changed" ? "replace" : "yes")) throw new NeedsConfirmation(`The host key of ${node.name} was not confirmed.`);
  return host.request("nodes.trustHostKey", { nodeId: node.id, fingerprint: key.offered });
}

function describeKey(node: NodeView, key: HostKeyView): string {
  const where = `${node.name} (${node.host}:${node.port})`;
  const offered = `  offers   ${key.algorithm ?? ""} ${key.offered ?? ""}`;
  if (key.status !== "changed") return `The host key of ${where} is not known yet.\n${offered}`;
  return `The host key of ${where} CHANGED. Either the node was reinstalled, or somebody is between you and it.\n  expected ${key.trusted ?? "?"}\n${offered}`;
}

/** Secrets are kept for a session only: asks again for what a node needs, where a person is there to answer. */
export async function provideSecrets(host: Host, nodes: readonly NodeView[], io: Io): Promise<void> {
  for (const node of nodes) {
    if (node.authKind !== "password" || !canAsk(io)) continue;
    const { capabilities } = await host.request("hello", {});
    if (capabilities.keepsSecrets) return;
    const password = await askSecret(io, `Password of ${node.user}@${node.host}: `);
    await host.request("nodes.setAuth", { nodeId: node.id, auth: { kind: "password", password } });
  }
}

export interface AddOptions {
  user?: string;
  port?: number;
  name?: string;
  key?: string;
  askPassphrase?: boolean;
  passwordStdin?: boolean;
  jump?: string[];
  dataAddress?: string;
}

/** @throws UsageError */
export async function inputOf(target: string, options: AddOptions, secret: () => Promise<string>): Promise<NodeInput> {
  const parsed = parseTarget(target);
  const user = parsed.user ?? options.user;
  if (user === undefined) throw new UsageError(`Which user of ${clean(target)}? Write user@host, or give --user.`);
  const auth: NodeInput["auth"] = options.passwordStdin
    ? { kind: "password", password: await secret() }
    : options.key !== undefined
      ? { kind: "key", keyPath: options.key, ...(options.askPassphrase ? { passphrase: await secret() } : {}) }
      : { kind: "agent" };
  return {
    host: parsed.host, port: parsed.port ?? options.port ?? 22, user, auth, jump: options.jump ?? [],
    ...(options.name === undefined ? {} : { name: options.name }), ...(options.dataAddress === undefined ? {} : { dataAddress: options.dataAddress }),
  };
}

async function current(host: Host, nodeId: string): Promise<NodeView> {
  const node = (await host.request("nodes.list", {})).find((candidate) => candidate.id === nodeId);
  if (!node) throw ConsoleError.of("H301", { nodeId });
  return node;
}
