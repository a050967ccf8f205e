import type { DiagnosisView, FindingView } from "../../electron/contract/index.js";
import { FAKE_MARK } from "./fake-data.js";

const DMESG = [
  "[    0.000000] Linux version 6.1.0-57-amd64 (debian-kernel@lists.debian.org)",
  ...Array.from({ length: 400 }, (_, i) => `[    ${(i * 0.011).toFixed(6)}] pci 0000:00:${(i % 32).toString(16).padStart(2, "0")}.0: [8086:29c0] type 00 class 0x060000`),
  "[  812.114207] dma_engine: DE001 loaded version=1.0.0 abi=1.0 git=5820a61 kernel=6.1.0-57-amd64",
  "[  812.114420] dma_engine: DE003 no DMA engine found, CPU fallback active",
  "[  901.551002] evil \u001b[2J\u001b[31mred\u001b[0m \u202eesrever\u202c <script>alert(1)</script>",
  `[  902.000000] ${FAKE_MARK}`,
].join("\n");

const words = (en: string, zh = `[zh] ${en}`) => ({ en, zh });
const REST = { host: null, devices: [], first: null, last: null, against: [], causes: [], consequenceOf: null, candidates: [], retest: [] } satisfies Partial<FindingView>;

/** A node with findings of several kinds, sources that failed, and a check that cannot be made. */
export function fakeDiagnosis(nodeId: string, now: number): DiagnosisView {
  const clean = nodeId === "n1" || nodeId === "n3";
  const source = (id: string, command: string, text: string) => ({ id, command, state: "ok" as const, collectedAtMs: now, durationMs: 40 + text.length / 100, text, truncatedBytes: 0, error: null });
  return {
    nodeId, startedAtMs: now - 2300, endedAtMs: now, state: "done", verdict: clean ? "healthy" : "cause_found", error: null,
    sources: [
      { ...source("dmesg", "dmesg --notime=no", DMESG), truncatedBytes: 18_204 },
      source("ibstat", "ibstat", "CA 'rxe0'\n\tCA type: \n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"),
      source("device", "stat -c '%U:%G %a %n' /dev/dma_device", clean ? "root:stepccl 660 /dev/dma_device\n" : "root:root 600 /dev/dma_device\n"),
      ...(clean ? [] : [
        { ...source("nvidia-smi", "nvidia-smi -q", ""), state: "missing" as const },
        { ...source("lspci", "lspci -vvv", ""), state: "not_permitted" as const, error: { code: "H310", message: "lspci failed on gpu-02 with status 1: permission denied", next: "See the output and mend its cause.", params: { command: "lspci", host: "gpu-02", status: 1, detail: "permission denied" } } },
        { ...source("journal", "journalctl -u stepccld -n 500", ""), state: "timeout" as const },
      ]),
    ],
    findings: clean ? [] : [
      {
        ...REST, id: "perm.dma_device_node", code: "F024", class: "perm.dma_device_node", severity: "high", title: words("/dev/dma_device belongs to root:root with mode 0600"), explanation: words("Ranks run in group stepccl and cannot open the device, so copies inside the node take the slower path through shared memory."),
        evidence: [{ source: "device", line: "root:root 600 /dev/dma_device", lineNumber: 1, meaning: words("expected root:stepccl 660") }],
        checked: [words("The module is loaded (DE001 at 812.114)."), words("Group stepccl exists with gid 998."), words("The rule file 70-stepccl.rules is in /usr/lib/udev/rules.d.")],
        mend: [
          { id: "device-node", command: "udevadm control --reload && udevadm trigger --name-match=dma_device", explanation: words("Applies the installed rule to the device that is already there."), risk: "none" },
          { id: "restart", command: "systemctl restart stepccld", explanation: words("Lets the daemon open the device anew."), risk: "restarts_service" },
        ],
        count: 1, params: { mode: "0600", owner: "root", group: "root" },
      },
      {
        ...REST, id: "driver.de003", code: "S103", class: "driver.de003", severity: "low", title: words("No DMA engine: the driver copies with the CPU"), explanation: words("The node offers no free DMA engine. Copies are correct and cost CPU time."),
        evidence: [{ source: "dmesg", line: "[  812.114420] dma_engine: DE003 no DMA engine found, CPU fallback active", lineNumber: 403, meaning: null }],
        checked: [words("/sys/class/dma is empty.")], mend: [], count: 3, params: { text: "no DMA engine found, CPU fallback active" },
      },
    ],
    cannotTell: clean ? [] : [{ class: "gpu.xid", title: words("A GPU fault"), missing: ["nvidia-smi"] }, { class: "pcie.acs", title: words("ACS"), missing: ["lspci -vvv"] }],
  };
}
