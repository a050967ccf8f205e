import { describe, expect, it } from "vitest";
import { analyse } from "../engine.js";
import { Redactor } from "./redact.js";

const of = (text: string, hosts: string[] = ["gpu-07", "gpu-07.example.org"], users: string[] = ["alice"]): string => new Redactor(hosts, users).text(text);

describe("what tells who and where", () => {
  it.each([
    ["names of hosts and users", "gpu-07.example.org kernel: alice@gpu-07 logged in, GPU-07 up", "host-1 kernel: user-1@host-2 logged in, host-2 up"],
    ["addresses of one network stay in one", "10.77.0.12 -> 10.77.0.13, 10.78.0.12/24, net 10.77.0.0", "198.18.0.1 -> 198.18.0.2, 198.18.1.1/24, net 198.18.0.0"],
    ["loopback and masks stay", "127.0.0.1 0.0.0.0 255.255.255.0", "127.0.0.1 0.0.0.0 255.255.255.0"],
    ["a GID stays the GID of its address", "10.77.0.12 0000:0000:0000:0000:0000:ffff:0a4d:000c ::ffff:10.77.0.12 ::ffff:0a4d:000c", "198.18.0.1 0000:0000:0000:0000:0000:ffff:c612:0001 ::ffff:198.18.0.1 ::ffff:c612:0001"],
    ["one IPv6 address in two spellings", "fe80::5054:ff:fe6c:16f1 fe80:0000:0000:0000:5054:00ff:fe6c:16f1", "fe80::1 fe80:0000:0000:0000:0000:0000:0000:0001"],
    ["MACs and GUIDs", "52:54:00:76:00:01 node_guid 5054:00ff:fe76:0001 0x5054 00ff 0x505400fffe760001", "02:00:00:00:00:01 node_guid 0200:0000:0000:0001 0x5054 00ff 0x0200000000000001".replace("0x0200000000000001", "0x0200000000000001")],
    ["serials and UUIDs", "Serial Number: 1650920012345\nGPU-6f1cf2a0-1111-2222-3333-444455556666", "Serial Number: serial-1\nGPU-00000000-0000-4000-8000-000000000001"],
    ["home folders", "/home/bob/train.py", "/home/user-1/train.py"],
  ])("%s", (_name, text, expected) => { expect(of(text)).toBe(expected); });
  it("secrets go, whatever they look like", () => {
    const text = "token=abcdefgh123 password: hunter22 unique_id: 00ffee11223344 Authorization: Bearer eyJhbGciOi.x.y AKIAABCDEFGHIJKLMNOP ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx me\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\nSHA256:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ";
    const out = of(text);
    for (const gone of ["abcdefgh123", "hunter22", "00ffee", "eyJ", "AKIAABC", "AAAAC3", "b3Blbn", "abcdefghijkl"]) expect(out, gone).not.toContain(gone);
    expect(out).toContain("token=<secret-");
  });
  it("times, PCI addresses, versions, sizes and codes stay", () => {
    const text = "[Fri Mar  3 04:44:24 2023] 12:34:56.789 mlx5_core 0000:3b:00.0: fw 28.39.1002 PCI:0000:09:00 NVRM: Xid 79, DE301 0x59c8a4 6.1.0-57-amd64 eth1 rxe0 [15b3:101b] 2024-05-07T07:12:11";
    expect(of(text)).toBe(text);
  });
  it("what it did is counted, and an engine finds the same afterwards", () => {
    const r = new Redactor(["gpu-07"], []);
    const log = "gpu-07: [ 10.1] NVRM: Xid (PCI:0000:81:00): 79, pid=1, GPU has fallen off the bus.\ngpu-07: [ 11.0] NCCL WARN NET/IB : Got completion from peer 10.1.2.3<41> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:10.1.2.4 remoteGids::ffff:10.1.2.3\n";
    const out = r.text(log);
    expect(r.counts()).toContainEqual({ kind: "host", names: 1, places: 2 });
    const classes = (data: string): string[] => analyse([{ name: "x", data }]).findings.map((f) => f.class);
    expect(classes(out)).toEqual(classes(log));
  });
  it("is quick on megabytes and on hostile text", () => {
    for (const text of ["10.1.2.3 ".repeat(100_000), "a:".repeat(400_000), "0:".repeat(400_000), "password=".repeat(80_000), "-----BEGIN X-----".repeat(3000), "aa-".repeat(200_000), "1.".repeat(400_000), "f".repeat(800_000)]) {
      const began = performance.now();
      of(text);
      expect(performance.now() - began, text.slice(0, 20)).toBeLessThan(4000);
    }
  });
});
