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

/** Nodes of a large fleet: most have the device's fault, some an MTU that is mended by a command of their own, a few nothing. */
function fleetDiagnosis(diagnosis: DiagnosisView, index: number): DiagnosisView {
  const keep = (finding: FindingView): boolean => (finding.class === "link.mtu_mismatch" ? index % 7 === 0 : finding.severity === "info" || index % 5 !== 0);
  const port = `eth${1 + (index % 2)}`;
  const local = (text: string): string => text.replaceAll("eth1", port);
  const findings = diagnosis.findings.filter(keep).map((finding) => (finding.class !== "link.mtu_mismatch" ? finding : {
    ...finding, devices: [port], mend: finding.mend.map((mend) => ({ ...mend, command: local(mend.command) })), evidence: finding.evidence.map((piece) => ({ ...piece, line: local(piece.line) })),
  }));
  return { ...diagnosis, findings, verdict: findings.some((finding) => finding.severity !== "info") ? "cause_found" : "harmless" };
}

/** A node with findings of several kinds, sources that failed, and a check that cannot be made. */
export function fakeDiagnosis(nodeId: string, now: number): DiagnosisView {
  const index = Number(nodeId.slice(1));
  return index > 11 ? fleetDiagnosis(fewNodes(nodeId, now), index) : fewNodes(nodeId, now);
}

function fewNodes(nodeId: string, now: number): DiagnosisView {
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
        ...REST, id: "perm.dma_device_node", code: "F024", class: "perm.dma_device_node", severity: "high", title: words("The DMA device node cannot be opened by this user"), explanation: words("The node exists, but its owner and mode keep the user out. Copies inside the node take the slower path through shared memory."),
        devices: ["/dev/dma_device"], retest: ["dma_device", "identity"],
        evidence: [{ source: "device", line: "root:root 600 /dev/dma_device", lineNumber: 1, meaning: words("expected root:stepccl 660") }],
        against: [{ source: "dmesg", line: "[  812.114207] dma_engine: DE001 loaded version=1.0.0 abi=1.0 git=5820a61 kernel=6.1.0-57-amd64", lineNumber: 402, meaning: words("the driver itself is loaded") }],
        causes: [words("No udev rule sets group and mode."), words("The user is not in the group.")],
        checked: [words("The module is loaded (DE001 at 812.114)."), words("Group stepccl exists with gid 998.")],
        mend: [
          { id: "device-node", command: "udevadm control --reload && udevadm trigger --name-match=dma_device", explanation: words("Applies the installed rule to the device that is already there."), risk: "none" },
          { id: "restart", command: "systemctl restart stepccld", explanation: words("Lets the daemon open the device anew."), risk: "restarts_service" },
          { id: "wipe", command: "rm -rf /var/lib/stepccl/cache", explanation: words("Removes what an older release left."), risk: "destructive" },
          { id: null, command: "ls -l /dev/dma_device; id", explanation: words("Mode and owner of the node, and the groups of the user."), risk: "none" },
        ],
        count: 1, params: { mode: "0600", owner: "root", group: "root" },
      },
      {
        ...REST, id: "agent.down", code: "S106", class: "agent.down", severity: "medium", title: words("The daemon does not use the driver"), explanation: words("It could not open the device when it started."), consequenceOf: "perm.dma_device_node",
        evidence: [{ source: "dmesg", line: "stepccld[811]: R202 /dev/dma_device: Permission denied", lineNumber: 404, meaning: words("EACCES") }], checked: [], mend: [], count: 2, params: {},
      },
      {
        ...REST, id: "link.mtu_mismatch/eth1/stays", code: "F092", class: "link.mtu_mismatch", severity: "medium", title: words("The MTU differs between the nodes"), explanation: words("Large frames do not pass between this node and the others."), devices: ["eth1"], retest: ["ip_link"], candidates: [{ class: "host.mtu", title: words("The MTU is smaller than the packets") }],
        evidence: [{ source: "ip_link", line: "3: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq_codel state UP mode DEFAULT group default qlen 1000", lineNumber: null, meaning: words("1500 here, 9000 on the others") }],
        causes: [words("Set by hand, and not on every node.")], checked: [],
        mend: [{ id: "mtu", command: "ip link set eth1 mtu 9000", explanation: words("The same everywhere."), risk: "interrupts_jobs" }], count: 1, params: {},
      },
      {
        ...REST, id: "driver.de003", code: "S103", class: "driver.de003", severity: "info", title: words("No DMA engine: the driver copies with the CPU"), explanation: words("The node offers no free DMA engine. Copies are correct and cost CPU time."),
        evidence: [{ source: "dmesg", line: "[  812.114420] dma_engine: DE003 no DMA engine found, CPU fallback active", lineNumber: 403, meaning: null }],
        checked: [words("/sys/class/dma is empty.")], mend: [], count: 3, params: { text: "no DMA engine found, CPU fallback active" },
      },
    ],
    cannotTell: clean ? [] : [{ class: "gpu.xid", title: words("A GPU fault"), missing: ["nvidia-smi"] }, { class: "pcie.acs", title: words("ACS"), missing: ["lspci -vvv"] }],
  };
}
