import { describe, expect, it } from "vitest";
import { factsView, memberAddresses } from "./facts.js";
import { factsOf } from "./testing/fakes.js";

describe("the data address of a member", () => {
  it("is that of the interface with an RDMA device, with the RoCE v2 GID that carries it", () => {
    expect(memberAddresses(factsOf("10.77.0.1"), null, "10.0.2.15", "h")).toEqual([{ address: "10.77.0.1", netdev: "eth1", rdma_device: "rxe0", gid_index: 1 }]);
  });
  it("stays the one that the cluster knows, where the interface has another one before it", () => {
    const facts = factsOf("10.77.0.1");
    const eth1 = facts.nics.find((nic) => nic.name === "eth1")!;
    eth1.addresses.unshift({ family: 4, address: "10.88.0.1", prefix: 24 });
    expect(memberAddresses(facts, null, "10.0.2.15", "h")[0]?.address).toBe("10.88.0.1");
    expect(memberAddresses(facts, null, "10.0.2.15", "h", "10.77.0.1")[0]).toMatchObject({ address: "10.77.0.1", gid_index: 1 });
    // An address of SSH's interface gives way to that of an RDMA device all the same.
    expect(memberAddresses(facts, null, "10.0.2.15", "h", "10.0.2.15")[0]?.address).toBe("10.88.0.1");
  });
  it("is else one of another interface than SSH's, and SSH's only where there is no other", () => {
    expect(memberAddresses(factsOf("10.77.0.1", null), null, "10.0.2.15", "h")[0]?.address).toBe("10.77.0.1");
    expect(memberAddresses(factsOf("10.77.0.1", null), null, "10.77.0.1", "h")[0]?.address).toBe("10.0.2.15");
    const one = factsOf("10.77.0.1", null);
    one.nics = one.nics.slice(0, 1);
    expect(memberAddresses(one, null, "10.0.2.15", "h")).toEqual([{ address: "10.0.2.15", netdev: "eth0", rdma_device: null, gid_index: null }]);
  });
  it("is the operator's where one was given, known to the node or not", () => {
    expect(memberAddresses(factsOf("10.77.0.1"), "10.77.0.1", null, "h")).toEqual([{ address: "10.77.0.1", netdev: "eth1", rdma_device: "rxe0", gid_index: 1 }]);
    expect(memberAddresses(factsOf("10.77.0.1"), "192.0.2.9", null, "h")).toEqual([{ address: "192.0.2.9", netdev: null, rdma_device: null, gid_index: null }]);
  });
  it("is never loopback, link-local, a bridge of containers or a port that is down", () => {
    const facts = factsOf("169.254.1.1", null);
    facts.nics = [
      { ...facts.nics[0]!, name: "lo", addresses: [{ family: 4, address: "127.0.0.1", prefix: 8 }] },
      { ...facts.nics[0]!, name: "docker0", addresses: [{ family: 4, address: "172.17.0.1", prefix: 16 }] },
      { ...facts.nics[0]!, name: "eth2", state: "down", addresses: [{ family: 4, address: "10.5.0.1", prefix: 24 }] },
      { ...facts.nics[0]!, name: "eth3", addresses: [{ family: 6, address: "fe80::1", prefix: 64 }, { family: 4, address: "169.254.1.1", prefix: 16 }] },
    ];
    expect(memberAddresses(facts, null, "203.0.113.1", "h")[0]?.address).toBe("203.0.113.1");
    expect(memberAddresses(facts, null, null, "gpu1")[0]?.address).toBe("gpu1");
  });
});

describe("facts for the page", () => {
  it("carry no control characters of a hostile node", () => {
    const facts = factsOf("10.77.0.1");
    facts.os.pretty_name = "Debian\u001b[31m\u202Eevil";
    expect(factsView(facts, "host\u0007name")).toMatchObject({ os: "Debian evil", hostname: "host name", rdma: [{ name: "rxe0", port: 1, rateGbps: 1 }] });
  });
  it("say null for what the node could not read", () => {
    const facts = factsOf("10.77.0.1");
    facts.os = { id: null, version_id: null, pretty_name: null };
    facts.kernel.release = null;
    facts.cpu = { ...facts.cpu, model: null, threads: null };
    facts.nics[0]!.mac = null;
    facts.nics[0]!.mtu = null;
    expect(factsView(facts, "h")).toMatchObject({ os: null, kernel: null, cpuModel: null, cpuThreads: null });
    expect(factsView(facts, "h").nics[0]).toMatchObject({ mac: null, mtuBytes: null });
  });
});
