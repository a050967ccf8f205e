import { describe, expect, it } from "vitest";
import { fakeBigFleet, fakeFleet } from "../dev/fake-data.js";
import { filterNodes, sortNodes } from "./filter.js";
import { hostKeyFile, sharedFingerprints, type KeyCheck } from "./host-key-check.js";
import { parseNodeList } from "./parse-list.js";

describe("a pasted list", () => {
  it("takes user@host:port, IPv6 in brackets, comments, CRLF and repeats", () => {
    const lines = parseNodeList("ops@gpu-01\r\n# rack two\n\nroot@gpu-02:2222 # spare\nops@[fd00::3]:22\n10.0.0.9\nops@gpu-01:22\n", "admin");
    expect(lines.map((line) => line.input)).toEqual([
      { user: "ops", host: "gpu-01", port: 22 }, { user: "root", host: "gpu-02", port: 2222 }, { user: "ops", host: "fd00::3", port: 22 }, { user: "admin", host: "10.0.0.9", port: 22 },
    ]);
  });
  it("names the line that is none", () => {
    const bad = parseNodeList("ops@gpu-01\n-oProxyCommand=x\nops@host:99999\nops@ho st\nhost-without-user\nops@$(id)\nops@host:0", "");
    expect(bad.filter((line) => line.input === null).map((line) => line.line)).toEqual([2, 3, 4, 5, 6, 7]);
  });
});

describe("filter and order", () => {
  const nodes = fakeFleet(0);
  it("finds by every word in name, address, state, kernel and error code", () => {
    const found = (text: string) => filterNodes(nodes, text).map((node) => node.id);
    expect(found("gpu-0 h207")).toEqual(["n6"]);
    expect(found("confirm")).toEqual([]);
    expect(found("needs host")).toEqual(["n7", "n8"]);
    expect(found("6.1.0-57 unreachable")).toEqual(["n6"]);
    expect(found("  ")).toHaveLength(nodes.length);
  });
  it("orders numbers as numbers, trouble first, and ties always alike", () => {
    expect(sortNodes([...nodes].reverse(), { key: "name", descending: false }).slice(1, 3).map((node) => node.name)).toEqual(["gpu-01", "gpu-02"]);
    expect(sortNodes(nodes, { key: "phase", descending: false }).slice(0, 3).map((node) => node.phase)).toEqual(["failed", "unreachable", "degraded"]);
    const many = fakeBigFleet(50, 0);
    expect(sortNodes([...many].reverse(), { key: "kernel", descending: true })).toEqual(sortNodes(many, { key: "kernel", descending: true }));
  });
});

describe("host keys", () => {
  it("counts who offers the same key", () => {
    const key = (offered: string | null) => ({ state: "done" as const, key: { status: "unconfirmed" as const, algorithm: null, offered, trusted: null, source: null } });
    const counts = sharedFingerprints(new Map<string, KeyCheck>([["a", key("x")], ["b", key("x")], ["c", key("y")], ["d", key(null)], ["e", { state: "checking" }]]));
    expect([...counts.values()]).toEqual([2, 2, 1, 0, 0]);
  });
  it("names the node's own key file", () => {
    expect(["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "ssh-rsa", null].map(hostKeyFile)).toEqual(["ed25519", "ecdsa", "rsa", "rsa", "ed25519"]);
  });
});
