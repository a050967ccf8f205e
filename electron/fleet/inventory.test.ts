import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { NodeView } from "../contract/index.js";
import { errorOf } from "../ssh/testing/fixture.js";
import { MemorySecretKeeper } from "./secrets.js";
import { openStore } from "./store.js";
import { input, World } from "./testing/world.js";

const world = World.forEachTest();
const { node, open } = world;

describe("the inventory", () => {
  it("adds, refuses the same node twice, finds names for ids and forgets", async () => {
    const fleet = open();
    const changes: string[][] = [];
    fleet.onChange((ids) => changes.push([...ids]));
    const first = await fleet.add(input("GPU node #1"));
    expect(NodeView.parse(first)).toMatchObject({ id: "gpu-node-1", phase: "new", hostKey: { status: "unknown" } });
    expect((await fleet.add(input("gpu node 1", { host: "other" }))).id).toBe("gpu-node-1-2");
    expect(await errorOf(fleet.add(input("x", { host: "GPU node #1.LAB".toLowerCase() })))).toMatchObject({ code: "H302" });
    expect((await errorOf(fleet.add(input("y", { jump: ["-oProxyCommand=x"] })))).code).toBe("H101");
    await fleet.forget(["gpu-node-1"]);
    expect(fleet.list().map((n) => n.id)).toEqual(["gpu-node-1-2"]);
    expect((await errorOf(fleet.connect("gpu-node-1"))).code).toBe("H301");
    expect(changes.flat()).toContain("gpu-node-1");
    expect(open().list()).toEqual([]);
    const later = open();
    await later.start();
    expect(later.list().map((n) => n.id)).toEqual(["gpu-node-1-2"]);
  });

  it("keeps secrets out of the store, and asks again for a password that is gone", async () => {
    const fleet = open();
    await fleet.add(input("n1", { auth: { kind: "password", password: "hunter2-secret" } }));
    expect(node("n1").target?.auth).toEqual({ kind: "password", password: "hunter2-secret" });
    expect(JSON.stringify(fleet.list())).not.toContain("hunter2");
    await fleet.close();
    world.store.close();
    for (const file of ["console.db", "console.db-wal"]) {
      try {
        expect(readFileSync(join(world.dir, "data", file)).includes("hunter2")).toBe(false);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
    }
    world.store = openStore(join(world.dir, "data"));
    world.secrets = new MemorySecretKeeper();
    const later = open();
    await later.start();
    expect(await errorOf(later.connect("n1"))).toMatchObject({ code: "H204", params: { detail: expect.stringContaining("not kept") } });
    expect((await later.setAuth("n1", { kind: "agent" })).authKind).toBe("agent");
    expect((await later.connect("n1")).phase).toBe("reachable");
  });
});
