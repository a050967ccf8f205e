import { describe, expect, it } from "vitest";
import { analyse } from "./engine.js";

const against = (cls: string, data: string, more: { name: string; data: string }[] = []): string[] => analyse([{ name: "log", data }, ...more]).findings.filter((f) => f.class === cls).flatMap((f) => f.against.map((e) => e.line));

const MEMLOCK = "n1:9:30 [0] misc/ibvwrap.cc:160 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n";

describe("what speaks against a finding", () => {
  it("is quoted from another file of the same input, with its meaning in both languages", () => {
    const { findings } = analyse([{ name: "job.log", data: MEMLOCK }, { name: "limits.txt", data: "max locked memory       (kbytes, -l) unlimited\n" }]);
    const found = findings.find((f) => f.class === "rdma.memlock_limit");
    expect(found?.against).toEqual([{ source: "limits.txt", line: "max locked memory       (kbytes, -l) unlimited", lineNumber: 1, meaning: { en: "This limit is unlimited.", zh: "此处的限制为不受限。" } }]);
  });
  it("is not there when the line says the opposite, or another class was found", () => {
    expect(against("rdma.memlock_limit", MEMLOCK, [{ name: "limits.txt", data: "max locked memory       (kbytes, -l) 64\n" }])).toEqual([]);
    expect(against("gpu.xid_79", "[1.1] NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus.\nmax locked memory       (kbytes, -l) unlimited\n")).toEqual([]);
  });
  it("counts a recovery only after the fault", () => {
    const fault = "[ 100.1] mlx5_core 0000:c1:00.0: wait_func:968:(pid 2): QUERY_VPORT_COUNTER(0x770) timeout. Will cause a leak of a command resource\n";
    const recovery = (t: number): string => `[ ${t}.5] mlx5_core 0000:c1:00.0: mlx5_recover_device: health recovery succeeded\n`;
    expect(against("rdma.fw_cmd_timeout", fault + recovery(130))).toHaveLength(1);
    expect(against("rdma.fw_cmd_timeout", recovery(50) + fault)).toEqual([]);
  });
  it("takes a GPU that is still listed only for the same GPU", () => {
    const fault = "[1.1] NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus.\n";
    const row = (bdf: string): string => `|   3  NVIDIA H100 80GB HBM3          On  |   00000000:${bdf}.0 Off |                    0 |\n`;
    expect(against("gpu.xid_79", fault + row("4E:00"))).toHaveLength(1);
    expect(against("gpu.xid_79", fault + row("5D:00"))).toEqual([]);
  });
  it("stays on its own host", () => {
    const text = (host: string): string => `Jan  2 03:04:05 ${host} kernel: iommu: Default domain type: Passthrough (set via kernel command line)\nJan  2 03:05:05 n1 kernel: DMAR: [DMA Write] Request device [81:00.0] fault addr ffdfe000 [fault reason 05] PTE Write access is not set\n`;
    expect(against("iommu.dmar_fault", text("n1"))).toHaveLength(1);
    expect(against("iommu.dmar_fault", text("n2"))).toEqual([]);
  });
  it("is bounded, and says what complained where nothing was found", () => {
    const { verdict, findings } = analyse([{ name: "x", data: "foo: failed to bar\n".repeat(1000) + Array.from({ length: 50 }, (_, i) => `foo${i}: cannot bar`).join("\n") }]);
    expect(verdict).toBe("healthy");
    expect(findings[0]?.against).toHaveLength(4);
    expect(findings[0]?.against[0]?.meaning?.en).toContain("fits no known fault");
  });
});
