import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { errorOf } from "../ssh/testing/fixture.js";
import type { ExecOptions } from "../ssh/types.js";
import { Fields, runScript } from "./remote.js";
import { DRIVER_BUILD, DRIVER_HOLDERS, DRIVER_LOAD, DRIVER_REMOVE } from "./scripts/driver.js";
import { CHECK_RELEASE, INSTALL, STAGE, UNPACK, UNSTAGE, withCheck } from "./scripts/install.js";
import { LOCK_KEEP, LOCK_SHOW, LOCK_TAKE, PREFLIGHT, SSH_ADDRESS } from "./scripts/preflight.js";
import { FILES_REMOVE, SERVICE_REMOVE, SERVICE_START } from "./scripts/service.js";
import { TX_BEGIN, TX_COMMIT, TX_ROLLBACK } from "./scripts/transaction.js";
import { FakeNode } from "./testing/fakes.js";

/** A node that is this machine: commands run by its own /bin/sh. */
function local(): FakeNode {
  return new FakeNode("here", (command: string, options: ExecOptions) => {
    try {
      return { stdout: execFileSync("/bin/sh", ["-c", command], { input: String(options.stdin ?? ""), encoding: "utf8", stdio: ["pipe", "pipe", "pipe"] }) };
    } catch (error) {
      const failed = error as { status: number; stdout: string; stderr: string };
      return { status: failed.status, stdout: failed.stdout, stderr: failed.stderr };
    }
  });
}

describe("scripts", () => {
  const all = { PREFLIGHT, SSH_ADDRESS, LOCK_TAKE, LOCK_SHOW, LOCK_KEEP, TX_BEGIN, TX_ROLLBACK, TX_COMMIT, STAGE, UNSTAGE, CHECK_RELEASE: withCheck(TX_BEGIN + CHECK_RELEASE, [{ path: "a", sha256: "0" }]), UNPACK: withCheck(UNPACK, [{ path: "a", sha256: "0" }]), INSTALL, DRIVER_BUILD, DRIVER_LOAD, DRIVER_HOLDERS, DRIVER_REMOVE, SERVICE_START, SERVICE_REMOVE, FILES_REMOVE };
  it.each(Object.entries(all))("%s is POSIX sh", (_name, script) => {
    expect(script).not.toContain("@SUMS@");
    expect(() => execFileSync("/bin/sh", ["-n"], { input: `{\n${script}\n}\n`, stdio: ["pipe", "ignore", "pipe"] })).not.toThrow();
  });

  it("give their fields back, arguments whole, and read nothing of their own text", async () => {
    const fields = await runScript(local(), "here", "test", 'say one "$1"; say two "$2"; cat; say lines "a\nb"; say empty ""', ["it's $HOME `x`", "* ; #"]);
    expect(fields.one("one")).toBe("it's $HOME `x`");
    expect(fields.one("two")).toBe("* ; #");
    expect(fields.one("lines")).toBe("a b");
    expect(fields.one("empty")).toBe("");
    expect(fields.has("exit")).toBe(false);
  });

  it("say expected failures by name, and any other end is H310", async () => {
    expect((await runScript(local(), "here", "test", "die disk 4096; say never reached", [])).one("failed")).toBe("disk");
    expect(await errorOf(runScript(local(), "here", "test", "echo broken >&2; exit 9", []))).toMatchObject({ code: "H310", params: { command: "test", status: 9, detail: "broken" } });
    expect((await errorOf(runScript(local(), "here", "test", 'echo "$unset_variable"', []))).code).toBe("H310");
  });

  it("run here: preflight finds what this machine is", async () => {
    const fields = await runScript(local(), "here", "preflight", PREFLIGHT, []);
    expect(fields.one("system")).toBe("Linux");
    expect(fields.one("kernel")).toBe(execFileSync("uname", ["-r"], { encoding: "utf8" }).trim());
    expect(fields.number("free_opt")).toBeGreaterThan(0);
    expect(Math.abs((fields.number("time") ?? 0) - Date.now() / 1000)).toBeLessThan(30);
  });
});

describe("fields", () => {
  it("are bounded and plain, whatever a node prints", () => {
    const fields = new Fields(`ok=1\nBAD=2\n=3\nnoise\n${"x".repeat(100)}=4\ntext=\u001b[31m\u202Eevil\nlong=${"y".repeat(5_000)}\n${"many=z\n".repeat(3_000)}`);
    expect(fields.number("ok")).toBe(1);
    expect(fields.one("text")).toBe("evil");
    expect(fields.one("long")).toHaveLength(1_000);
    expect(fields.all("many")).toHaveLength(1_000);
    expect(fields.number("text")).toBeNull();
    expect(fields.one("constructor")).toBeNull();
  });
});
