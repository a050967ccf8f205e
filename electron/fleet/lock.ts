import { hostname, userInfo } from "node:os";
import { ConsoleError } from "../contract/index.js";
import type { NodeSession } from "../ssh/types.js";
import { runScript } from "./remote.js";
import { LOCK_KEEP, LOCK_TAKE } from "./scripts/preflight.js";

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
      const since = fields.number("held_since");
      throw ConsoleError.of("H314", {
        host, owner: fields.one("held_owner") || "an unknown console", since: since === null ? "an unknown time" : new Date(since * 1000).toISOString(), ageSeconds: fields.number("age") ?? -1,
      });
    }
    const lock = new NodeLock(session, host, token);
    lock.#timer = setInterval(() => void lock.#refresh(), HEARTBEAT_MS);
    return lock;
  }

  async #refresh(): Promise<void> {
    // A heartbeat that does not get through is no reason to stop: the link's own failure will say so.
    const fields = await runScript(this.session, this.host, "the lock's heartbeat", LOCK_KEEP, [LOCK_PATH, this.token, "refresh"], { root: true }).catch(() => null);
    if (fields?.one("lost") === "yes") this.#lost = true;
  }

  /** @throws ConsoleError H314 when another console broke the lock */
  assertHeld(): void {
    if (this.#lost) throw ConsoleError.of("H314", { host: this.host, owner: "another console, which broke this one's lock", since: "just now" });
  }

  async release(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await runScript(this.session, this.host, "releasing the lock", LOCK_KEEP, [LOCK_PATH, this.token, "release"], { root: true });
  }
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
