import { chmodSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Operations } from "./operations.js";
import { openStore, type NodeRecord } from "./store.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "stepccl-store-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const record: NodeRecord = {
  id: "n1", name: "it's \"n1\"", host: "h", port: 22, user: "u", authKind: "key", keyPath: "/k", jump: ["a@b:1"], dataAddress: null, up: true, member: 0,
  sshAddress: "10.0.0.1", lastSeenMs: 5, addedAtMs: 1,
};

describe("the store", () => {
  it("keeps nodes, trust, cluster and its own identity over a restart, readable by its owner alone", () => {
    const first = openStore(dir);
    first.nodes.save(record);
    first.nodes.save({ ...record, lastSeenMs: 6 });
    first.trust.trust({ name: "h", type: "ssh-ed25519", key: Buffer.from([1, 2, 255]), addedAtMs: 3, source: "operator" });
    first.trust.trust({ name: "h", type: "ssh-rsa", key: Buffer.from([9]), addedAtMs: 4, source: "operator" });
    first.saveCluster({ clusterId: "c", epoch: 7, members: [] });
    first.close();
    const second = openStore(dir);
    expect(second.nodes.list()).toEqual([{ ...record, lastSeenMs: 6 }]);
    expect(second.trust.keysOf("h")).toEqual([{ name: "h", type: "ssh-rsa", key: Buffer.from([9]), addedAtMs: 4, source: "operator" }]);
    expect(second.loadCluster()).toEqual({ clusterId: "c", epoch: 7, members: [] });
    expect(second.consoleId).toBe(first.consoleId);
    second.nodes.remove("n1");
    expect(second.nodes.list()).toEqual([]);
    second.close();
    expect(statSync(join(dir, "console.db")).mode & 0o077).toBe(0);
    expect(() => chmodSync(dir, 0o700)).not.toThrow();
  });

  it("refuses a database of a newer console and leaves it as it is", () => {
    openStore(dir).close();
    const db = new Database(join(dir, "console.db"));
    db.exec("PRAGMA user_version = 99");
    db.close();
    expect(() => openStore(dir)).toThrow(/newer console/);
  });

  it("gives an operation that was cut off as failed", async () => {
    const store = openStore(dir);
    const operations = new Operations(store.operations);
    const { id } = operations.start("bring_up", ["n1"], ["connect"], (_node, task) => task.step("connect", () => new Promise(() => {})));
    store.close();
    const later = openStore(dir);
    expect(new Operations(later.operations).list()).toMatchObject([{ id, state: "failed", nodes: [{ state: "failed", error: { code: "H105" } }] }]);
    later.close();
  });
});

describe("operations", () => {
  it("let one node fail without the others, and say how each step went", async () => {
    const store = openStore(dir);
    const operations = new Operations(store.operations);
    const { id, over } = operations.start("bring_up", ["a", "b"], ["connect", "verify"], async (nodeId, task) => {
      await task.step("connect", async (report) => {
        report.progress(1, 2, "items");
        report.detail("hos\u001b[31mtile");
        if (nodeId === "b") throw new Error("broken");
      });
      await task.step("verify", async () => "skipped");
    });
    await over;
    const view = operations.list().find((o) => o.id === id);
    expect(view?.state).toBe("failed");
    expect(view?.nodes.map((n) => [n.nodeId, n.state, n.steps.map((s) => s.state)])).toEqual([["a", "succeeded", ["done", "skipped"]], ["b", "failed", ["failed", "pending"]]]);
    expect(view?.nodes[0]?.steps[0]).toMatchObject({ detail: "hostile", progress: { done: 1, total: 2, unit: "items" } });
    store.close();
  });

  it("stop before the next step when they are cancelled", async () => {
    const store = openStore(dir);
    const operations = new Operations(store.operations);
    const { id, over } = operations.start("remove", ["a"], ["one", "two"], async (_nodeId, task) => {
      await task.step("one", async () => operations.cancel(id));
      await task.step("two", async () => {
        throw new Error("never");
      });
    });
    await over;
    expect(operations.list()[0]).toMatchObject({ state: "cancelled", nodes: [{ state: "cancelled", steps: [{ state: "done" }, { state: "pending" }] }] });
    operations.cancel(id);
    expect(() => operations.cancel("nothing")).toThrow();
    store.close();
  });
});
