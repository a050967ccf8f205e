import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, vi } from "vitest";
import { ConsoleError, type NodeInput, type OperationView } from "../../contract/index.js";
import { Fleet, type FleetOptions } from "../fleet.js";
import { MemorySecretKeeper } from "../secrets.js";
import { openStore, type Store } from "../store.js";
import { FakeNode, type Answer } from "./fakes.js";

/** Fleets over nodes that are made as they are named, on a store in a folder of their own; made anew for each test. */
export class World {
  dir = "";
  store!: Store;
  nodes = new Map<string, FakeNode>();
  secrets = new MemorySecretKeeper();
  readonly #fleets: Fleet[] = [];

  /** Call it at the top of a test file. */
  static forEachTest(): World {
    const world = new World();
    beforeEach(() => {
      world.dir = mkdtempSync(join(tmpdir(), "stepccl-fleet-"));
      world.store = openStore(join(world.dir, "data"));
      world.nodes = new Map();
      world.secrets = new MemorySecretKeeper();
    });
    afterEach(async () => {
      for (const fleet of world.#fleets.splice(0)) await fleet.close();
      world.store.close();
      rmSync(world.dir, { recursive: true, force: true });
    });
    return world;
  }

  node = (id: string): FakeNode => {
    let fake = this.nodes.get(id);
    if (!fake) this.nodes.set(id, (fake = new FakeNode(id)));
    return fake;
  };

  open = (options: Partial<FleetOptions> = {}): Fleet => {
    const fleet = new Fleet({
      store: this.store, secrets: this.secrets, bundleDir: join(this.dir, "bundle"), sshConfig: join(this.dir, "no-config"), ssh: { knownHostsFiles: [] }, factsIntervalMs: 50, openSession: (id) => this.node(id),
      connectAgent: async (stream) => {
        const owner = [...this.nodes.values()].find((n) => n.agent && !n.agent.closed && n.lastStream === stream);
        if (!owner?.agent) throw ConsoleError.of("H401", { host: "?", detail: "nobody" });
        return owner.agent;
      },
      ...options,
    });
    this.#fleets.push(fleet);
    return fleet;
  };
}

export const input = (name: string, more: Partial<NodeInput> = {}): NodeInput => ({ name, host: `${name}.lab`, port: 22, user: "ops", auth: { kind: "agent" }, jump: [], ...more });
const ANSWERS: Record<string, string> = {
  preflight: "system=Linux\nmachine=x86_64\nkernel=6.1.0\nos=Debian\nsystemd=yes\nuser=ops\nfree_opt=9999999\nfree_tmp=9999999\nfree_modules=9999999\ntime=1\nssh_address=10.0.2.15\n",
  "taking the lock": "taken=yes\n", "opening the transaction": "wrong=it is not there\n", "making a folder": "dir=/var/tmp/stepccl-upload.abc123\n",
  "unpacking the bundle": "unpacked=yes\n", installing: "changed=yes\n", "loading the module": "loaded=new\nversion=1.0.0\ndevice=660:stepccl:character special file\n",
  "starting stepccld": "service=started\npid=7\n", "closing the transaction": "committed=yes\n", "rolling back": "undone=yes\n",
  "reading the node's address": "ssh_address=10.0.2.15\n", "removing the service": "removed=yes\n", "removing the driver": "removed=yes\n", "removing the files": "removed=yes\n",
};
/** The name of the script that was sent (see runScript). */
export const nameOf = (stdin: unknown): string => /^# StepCCL: (.*)$/m.exec(String(stdin))?.[1] ?? "";
/** What a healthy node answers to the scripts of a bring-up; `spoil` answers some otherwise. */
export const healthy = (spoil: Record<string, string> = {}): Answer => (_command, options) => {
  const name = nameOf(options.stdin);
  return { stdout: spoil[name] ?? ANSWERS[name] ?? "" };
};
export async function ended(fleet: Fleet, id: string): Promise<OperationView> {
  return await vi.waitFor(() => {
    const view = fleet.listOperations().find((o) => o.id === id);
    if (!view || view.state === "running") throw new Error("still running");
    return view;
  }, { timeout: 10_000 });
}
export const phase = (fleet: Fleet, id: string): string | undefined => fleet.get(id)?.phase;
