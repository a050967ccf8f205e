import { ConsoleError, type HostKeyView, type LockHolder, type NodeInput, type NodeView } from "../contract/index.js";
import type { Host } from "../gate.js";
import { readKeyFile } from "../ssh/index.js";
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
  if (key.status === "revoked") throw ConsoleError.of("H213", { host: node.host, fingerprint: key.offered ?? "none", source: key.source ?? "known_hosts" });
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

/**
 * Breaks another console's hold on a node: the one named, or, by a person at the terminal, the one that is shown.
 * @throws NeedsConfirmation with who holds it and what to do next
 */
export async function unlock(host: Host, node: NodeView, io: Io, heldBy: string | undefined): Promise<{ holder: LockHolder | null; broken: boolean }> {
  const holder = await host.request("nodes.lockHolder", { nodeId: node.id });
  if (holder === null) return { holder, broken: false };
  const about = `${node.name} is held by ${clean(holder.owner)}, since ${holder.sinceMs === null ? "an unknown time" : new Date(holder.sinceMs).toISOString()}, last sign of life ${holder.heartbeatAgeSeconds ?? "?"} s ago.`;
  if (heldBy === undefined) {
    if (!canAsk(io)) throw new NeedsConfirmation(`${about}\nTo break exactly this lock: stepccl nodes unlock ${node.id} --held-by ${holder.token}`);
    io.stderr.write(`${about}\nIts work on the node ends before its next step.\n`);
    if ((await ask(io, 'Type "break" to break the lock, anything else to stop: ')) !== "break") throw new NeedsConfirmation("The lock was not broken.");
  }
  return { holder, ...(await host.request("nodes.breakLock", { nodeId: node.id, token: heldBy ?? holder.token })) };
}

const PASSPHRASE_TRIES = 3;

/**
 * The passphrase of a private key, asked for on the terminal without echo and tried at once; undefined for a key that needs
 * none, or where nobody can be asked (the dial then says what is missing).
 * @throws ConsoleError H205 the key cannot be used, or three wrong passphrases
 */
export async function passphraseOf(keyPath: string, io: Io): Promise<string | undefined> {
  let passphrase: string | undefined;
  for (let tries = 0; ; tries++) {
    try {
      await readKeyFile(keyPath, passphrase);
      return passphrase;
    } catch (error) {
      if (!(error instanceof ConsoleError) || error.view.params?.["wantsPassphrase"] !== true || tries >= PASSPHRASE_TRIES) throw error;
      if (!canAsk(io)) return undefined;
      if (tries > 0) io.stderr.write("The passphrase is wrong.\n");
      passphrase = await askSecret(io, `Passphrase of ${clean(keyPath)}: `);
    }
  }
}

/** Secrets are kept for a session only: asks again for what a node needs, where a person is there to answer. */
export async function provideSecrets(host: Host, nodes: readonly NodeView[], io: Io): Promise<void> {
  if (!canAsk(io) || nodes.every((node) => node.authKind === "agent") || (await host.request("hello", {})).capabilities.keepsSecrets) return;
  const passphrases = new Map<string, string | undefined>();
  for (const node of nodes) {
    if (node.authKind === "key" && node.keyPath !== null) {
      if (!passphrases.has(node.keyPath)) passphrases.set(node.keyPath, await passphraseOf(node.keyPath, io));
      const passphrase = passphrases.get(node.keyPath);
      if (passphrase !== undefined) await host.request("nodes.setAuth", { nodeId: node.id, auth: { kind: "key", keyPath: node.keyPath, passphrase } });
    }
    if (node.authKind !== "password") continue;
    const password = await askSecret(io, `Password of ${node.user}@${node.host}: `);
    await host.request("nodes.setAuth", { nodeId: node.id, auth: { kind: "password", password } });
  }
}

export interface AddOptions {
  user?: string;
  port?: number;
  name?: string;
  key?: string;
  passwordStdin?: boolean;
  jump?: string[];
  dataAddress?: string;
}

/** @throws UsageError */
export async function inputOf(target: string, options: AddOptions, secrets: { password(): Promise<string>; passphrase(keyPath: string): Promise<string | undefined> }): Promise<NodeInput> {
  const parsed = parseTarget(target);
  const user = parsed.user ?? options.user;
  if (user === undefined) throw new UsageError(`Which user of ${clean(target)}? Write user@host, or give --user.`);
  const auth: NodeInput["auth"] = options.passwordStdin
    ? { kind: "password", password: await secrets.password() }
    : options.key !== undefined
      ? keyAuth(options.key, await secrets.passphrase(options.key))
      : { kind: "agent" };
  return {
    host: parsed.host, port: parsed.port ?? options.port ?? 22, user, auth, jump: options.jump ?? [],
    ...(options.name === undefined ? {} : { name: options.name }), ...(options.dataAddress === undefined ? {} : { dataAddress: options.dataAddress }),
  };
}

const keyAuth = (keyPath: string, passphrase: string | undefined): NonNullable<NodeInput["auth"]> => ({ kind: "key", keyPath, ...(passphrase === undefined ? {} : { passphrase }) });

async function current(host: Host, nodeId: string): Promise<NodeView> {
  const node = (await host.request("nodes.list", {})).find((candidate) => candidate.id === nodeId);
  if (!node) throw ConsoleError.of("H301", { nodeId });
  return node;
}
