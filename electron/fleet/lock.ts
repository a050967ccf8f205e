import { hostname, userInfo } from "node:os";
import { ConsoleError, type LockHolder } from "../contract/index.js";
import type { NodeSession } from "../ssh/types.js";
import { runScript, type Fields } from "./remote.js";
import { LOCK_KEEP, LOCK_SHOW, LOCK_TAKE } from "./scripts/preflight.js";

const LOCK_PATH = "/run/lock/stepccl-console.lock";
/** A lock without a heartbeat for this long belongs to nobody. */
const STALE_SECONDS = 120;
const HEARTBEAT_MS = 30_000;

/** The hold of one console on one node: who, since when, kept alive by a heartbeat. */
export class NodeLock {
  #timer: NodeJS.Timeout | null = null;
  #lost = false;

  private constructor(private readonly session: NodeSession, private readonly host: string, private readonly token: string) {}

  /**
   * Takes the node for this console. A lock that this installation left behind (its process is gone) or that has no heartbeat
   * is broken.
   * @throws ConsoleError H314 another console holds it
   */
  static async take(session: NodeSession, host: string, consoleId: string): Promise<NodeLock> {
    const token = `${consoleId}:${process.pid}`;
    const owner = `${userInfo().username}@${hostname()}, pid ${process.pid}`;
    let dead = "";
    for (let attempt = 0; ; attempt++) {
      const fields = await runScript(session, host, "taking the lock", LOCK_TAKE, [LOCK_PATH, token, owner, String(STALE_SECONDS), dead], { root: true });
      if (fields.one("taken") === "yes") break;
      const held = fields.one("held_token") ?? "";
      const [heldBy, pid] = held.split(":");
      if (attempt === 0 && heldBy === consoleId && !isAlive(Number(pid))) {
        dead = held;
        continue;
      }
      const holder = holderOf(fields);
      throw ConsoleError.of("H314", { host, owner: holder.owner, since: sinceText(holder.sinceMs), ageSeconds: holder.heartbeatAgeSeconds ?? -1 });
    }
    const lock = new NodeLock(session, host, token);
    // A heartbeat that does not get through is no reason to stop: the link's own failure will say so.
    lock.#timer = setInterval(() => void lock.#refresh().catch(() => undefined), HEARTBEAT_MS);
    return lock;
  }

  async #refresh(): Promise<void> {
    const fields = await runScript(this.session, this.host, "the lock's heartbeat", LOCK_KEEP, [LOCK_PATH, this.token, "refresh"], { root: true });
    if (fields.one("lost") === "yes") this.#lost = true;
  }

  get lost(): boolean {
    return this.#lost;
  }

  /** Asks the node whether the lock is still this console's: before each act that changes the node. @throws ConsoleError H314 it was broken */
  async assertHeld(): Promise<void> {
    if (!this.#lost) await this.#refresh();
    if (this.#lost) throw ConsoleError.of("H314", { host: this.host, owner: "another console, which broke this one's lock", since: "just now" });
  }

  async release(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await runScript(this.session, this.host, "releasing the lock", LOCK_KEEP, [LOCK_PATH, this.token, "release"], { root: true });
  }
}

const TOKEN = /^[A-Za-z0-9:-]{1,80}$/;

function holderOf(fields: Fields): LockHolder {
  const token = fields.one("held_token") ?? "";
  const since = fields.number("held_since");
  return {
    token: TOKEN.test(token) ? token : "", owner: fields.one("held_owner") || "an unknown console", sinceMs: since === null ? null : since * 1000, heartbeatAgeSeconds: fields.number("age"),
  };
}

const sinceText = (sinceMs: number | null): string => (sinceMs === null ? "an unknown time" : new Date(sinceMs).toISOString());

/** Who holds the node now; null for nobody. */
export async function lockHolder(session: NodeSession, host: string, signal?: AbortSignal): Promise<LockHolder | null> {
  const fields = await runScript(session, host, "looking at the lock", LOCK_SHOW, [LOCK_PATH], { root: true, ...(signal ? { signal } : {}) });
  if (!fields.has("held_token")) return null;
  return holderOf(fields);
}

/**
 * Breaks exactly the lock with `token`: its holder finds that out before its next act and stops there. False when that lock is
 * not there any more.
 */
export async function breakLock(session: NodeSession, host: string, token: string, signal?: AbortSignal): Promise<boolean> {
  const fields = await runScript(session, host, "breaking the lock", LOCK_KEEP, [LOCK_PATH, token, "release"], { root: true, ...(signal ? { signal } : {}) });
  return fields.one("lost") !== "yes";
}

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
