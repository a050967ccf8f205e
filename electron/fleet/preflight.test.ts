import { describe, expect, it } from "vitest";
import { ConsoleError } from "../contract/index.js";
import type { Bundle } from "./bundle.js";
import { judgePreflight } from "./preflight.js";
import { Fields } from "./remote.js";

const bundle = { kernels: { "6.1.0": "driver/6.1.0/dma_engine.ko" }, unpackedBytes: 1_000_000, sizeBytes: 500_000 } as unknown as Bundle;
const good = { system: "Linux", machine: "x86_64", kernel: "6.1.0", os: "Debian 12", systemd: "yes", user: "ops", free_opt: "1000000", free_tmp: "1000000", free_modules: "1000000", time: "1000", build: "no", ssh_address: "10.0.2.15", probe_socket: "/run/dbus/system_bus_socket", rdma: "rxe0" };
const judge = (changes: Record<string, string | undefined>) => {
  const all: Record<string, string | undefined> = { ...good, ...changes };
  return judgePreflight(new Fields(Object.entries(all).filter(([, v]) => v !== undefined).map(([k, v]) => `${k}=${v}`).join("\n")), "h", bundle, { nowMs: 1_000_000, uncertaintyMs: 500 });
};
const codeOf = (changes: Record<string, string | undefined>): unknown => {
  try {
    judge(changes);
    return null;
  } catch (error) {
    return error instanceof ConsoleError ? [error.view.code, error.view.params] : error;
  }
};

describe("preflight", () => {
  it("takes a good node and says what it found", () => {
    expect(judge({ time: "1090", secureboot: "1" })).toMatchObject({ user: "ops", kernel: "6.1.0", sshAddress: "10.0.2.15", skewSeconds: 90, summary: expect.stringMatching(/Secure Boot is on.*clock ahead by 90 s/) });
  });
  it.each([
    [{ machine: "aarch64" }, "H304", { found: "Debian 12 on aarch64" }],
    [{ system: "Darwin" }, "H304", {}],
    [{ systemd: "no" }, "H304", { found: "Debian 12 without systemd" }],
    [{ system: undefined, machine: undefined }, "H304", {}],
    [{ missing: "modprobe" }, "H310", { command: "modprobe" }],
    [{ free_opt: "100" }, "H305", { path: "/opt", available: 102_400 }],
    [{ free_tmp: "0" }, "H305", { path: "/var/tmp" }],
    [{ kernel: "6.9.9-new" }, "H306", { release: "6.9.9-new" }],
    [{ kernel: "6.1.0;reboot" }, "H304", {}],
    [{ user: "a b" }, "H304", {}],
  ])("refuses %j with %s", (changes, code, params) => {
    expect(codeOf(changes as Record<string, string>)).toEqual([code, expect.objectContaining(params)]);
  });
  it("takes an unknown kernel where the module can be built on the node", () => {
    expect(judge({ kernel: "6.9.9", build: "yes" }).summary).toContain("built on the node");
  });
  it("does not believe hostile paths and addresses", () => {
    expect(judge({ probe_socket: "/run/$(reboot)", ssh_address: "1.2.3.4; x" })).toMatchObject({ probeSocket: null, sshAddress: null });
  });
});
