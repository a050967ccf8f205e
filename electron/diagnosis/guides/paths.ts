import type { z } from "zod";
import type { DiagnosisView, FindingView, LinkView, NodeView, PathElement, PathView, TopologyRef, Words } from "../../contract/index.js";
import { matches } from "./guides.js";

type Element = z.infer<typeof PathElement>;
type Path = z.infer<typeof PathView>;
export interface PathEnd { node: NodeView; diagnosis: DiagnosisView | undefined }

const PCIE = ["gpu.p2p_*", "gpu.gdr_path_phb", "gpu.peermem_*", "pcie.*", "iommu.dmar_fault", "iommu.amdvi_io_page_fault"];
const GPU = ["gpu.xid_*", "gpu.sxid", "gpu.device_lost", "gpu.ecc_*", "gpu.bar_*", "gpu.bar1_*", "gpu.nouveau_conflict", "gpu.driver_library_mismatch", "gpu.fabric_*", "nccl.gdr_disabled"];
const NIC = ["host.netdev_down", "link.*"];
const RDMA = ["rdma.device_missing", "roce.*", "ib.*", "perm.uverbs_denied", "perm.node_absent_module", "rdma.fw_*", "rdma.mkey_limit", "host.memlock_service", "rdma.memlock_limit"];
const BETWEEN = ["host.firewall", "host.mtu", "rdma.packet_loss_counters", "rdma.pfc_storm", "rdma.dcqcn_inactive"];
/** A path of a ring is slow when its echo takes so many times what the others' do. */
const SLOW_FACTOR = 3;

/** GPU -> PCIe -> NIC -> RDMA device -> link -> the same of the peer backwards. Every element is judged; the first that breaks a rule is marked. */
export function pathBetween(from: PathEnd, to: PathEnd, links: readonly LinkView[], of: "gpudirect" | "ring", medianRttUs: number | null): Path {
  const elements = [...endOf(from, of), linkOf(from, to, links, medianRttUs), ...endOf(to, of).reverse()];
  const firstBroken = elements.findIndex((e) => e.state === "broken");
  return { from: from.node.id, to: to.node.id, elements, firstBroken: firstBroken < 0 ? null : firstBroken };
}

function endOf({ node, diagnosis }: PathEnd, of: "gpudirect" | "ring"): Element[] {
  const facts = node.facts;
  const nic = facts?.nics.find((n) => node.dataAddress !== null && n.addresses.some((a) => a.replace(/\/\d+$/, "") === node.dataAddress)) ?? facts?.nics.find((n) => n.rdmaDevice !== null);
  const nicName = nic?.name ?? "";
  const rdma = facts?.rdma.find((r) => r.netdev === nicName) ?? facts?.rdma[0];
  const unread = !diagnosis || diagnosis.state !== "done";
  const element = (ref: TopologyRef, label: string, classes: readonly string[], fine: Words, about: (f: FindingView) => boolean = () => true): Element => {
    const bad = diagnosis?.findings.find((f) => f.severity !== "info" && matches(classes, f.class) && about(f));
    return { ref, label, state: bad ? "broken" : unread ? "unknown" : "ok", rule: bad ? bad.title : unread ? { en: "It was not read.", zh: "未读取。" } : fine, evidence: bad?.evidence.slice(0, 3) ?? [], class: bad?.class ?? null };
  };
  const here: TopologyRef = { kind: "node", nodeId: node.id };
  const out: Element[] = [];
  if (of === "gpudirect") {
    const gpu = facts?.gpus[0];
    if (!facts) out.push({ ref: here, label: "GPU", state: "unknown", rule: { en: "The node's facts are not known.", zh: "节点信息未知。" }, evidence: [], class: null });
    else if (!gpu) out.push({ ref: here, label: "GPU", state: "broken", rule: { en: "The node has no GPU that its driver shows: there is nothing to reach directly.", zh: "驱动未显示任何 GPU：没有可直接访问的对象。" }, evidence: [], class: null });
    else {
      out.push(element({ kind: "gpu", nodeId: node.id, pci: gpu.pci }, gpu.name, GPU, { en: "The GPU answers and reports no fault.", zh: "GPU 有应答且没有报告故障。" }));
      const far = nic?.numaNode !== undefined && nic.numaNode !== null && gpu.numaNode !== null && nic.numaNode !== gpu.numaNode;
      const pcie = element({ kind: "pcie", nodeId: node.id, pci: nic?.pci ?? gpu.pci }, nic?.pci ? `PCIe ${gpu.pci} - ${nic.pci}` : `PCIe ${gpu.pci}`, PCIE, { en: "Peer memory is there, ACS and the IOMMU are not in the way.", zh: "对等内存可用，ACS 与 IOMMU 没有阻碍。" });
      out.push(pcie.state === "ok" && far ? { ...pcie, state: "broken", rule: { en: `GPU (NUMA ${gpu.numaNode}) and NIC (NUMA ${nic!.numaNode}) hang on different processors: their traffic crosses the processors' link.`, zh: `GPU（NUMA ${gpu.numaNode}）与网卡（NUMA ${nic!.numaNode}）位于不同处理器：流量经过处理器互连。` }, class: "host.numa_misplaced" } : pcie);
    }
  }
  if (!nic) out.push({ ref: here, label: "NIC", state: facts ? "broken" : "unknown", rule: facts ? { en: "No interface holds the data address.", zh: "没有接口持有数据地址。" } : { en: "The node's facts are not known.", zh: "节点信息未知。" }, evidence: [], class: null });
  else out.push(element({ kind: "nic", nodeId: node.id, name: nicName }, nicName, NIC, { en: `Up, MTU ${nic.mtuBytes}.`, zh: `已启用，MTU ${nic.mtuBytes}。` }));
  if (rdma) out.push(element({ kind: "rdma", nodeId: node.id, name: rdma.name }, rdma.name, RDMA, { en: `${rdma.state}, ${rdma.gids.length} GIDs.`, zh: `${rdma.state}，${rdma.gids.length} 个 GID。` }));
  else out.push(element(here, "RDMA", RDMA, { en: "There is no RDMA device: bytes go by TCP.", zh: "没有 RDMA 设备：数据经 TCP 传输。" }));
  return out;
}

function linkOf(from: PathEnd, to: PathEnd, links: readonly LinkView[], medianRttUs: number | null): Element {
  const mine = links.filter((l) => l.from === from.node.id && l.to === to.node.id && l.transport !== "shm");
  const link = mine.find((l) => l.transport === "rdma") ?? mine[0];
  const ref: TopologyRef = link ? { kind: "link", from: link.from, to: link.to, transport: link.transport } : { kind: "node", nodeId: from.node.id };
  const label = `${from.node.name} -> ${to.node.name}`;
  const peerAddress = to.node.dataAddress;
  const bad = [...(from.diagnosis?.findings ?? []), ...(to.diagnosis?.findings ?? [])].find((f) => f.severity !== "info" && matches(BETWEEN, f.class) && (f.params["peer"] === undefined || peerAddress === null || String(f.params["peer"]).includes(peerAddress) || String(f.params["peer"]) === from.node.dataAddress));
  if (bad) return { ref, label, state: "broken", rule: bad.title, evidence: bad.evidence.slice(0, 3), class: bad.class };
  if (!link || link.state === "unknown") return { ref, label, state: "unknown", rule: { en: "The path was not measured.", zh: "该路径未测量。" }, evidence: [], class: null };
  if (link.state === "down") return { ref, label, state: "broken", rule: { en: `The path is down: ${link.reason ?? "no echo"}.`, zh: `路径不通：${link.reason ?? "无应答"}。` }, evidence: [], class: null };
  if (link.rttUs !== null && medianRttUs !== null && link.rttUs > SLOW_FACTOR * medianRttUs) return { ref, label, state: "broken", rule: { en: `An echo takes ${link.rttUs} us; the median of the ring is ${medianRttUs} us.`, zh: `往返 ${link.rttUs} us；环的中位数为 ${medianRttUs} us。` }, evidence: [], class: null };
  return { ref, label, state: "ok", rule: link.rttUs === null ? { en: "Up.", zh: "已连通。" } : { en: `Up, an echo takes ${link.rttUs} us.`, zh: `已连通，往返 ${link.rttUs} us。` }, evidence: [], class: null };
}

/** Neighbours of a ring over these nodes, and the median echo of its links. */
export function ringOf(ends: readonly PathEnd[], links: readonly LinkView[]): { pairs: [PathEnd, PathEnd][]; medianRttUs: number | null } {
  const pairs = ends.length < 2 ? [] : ends.length === 2 ? [[ends[0]!, ends[1]!] as [PathEnd, PathEnd]] : ends.map((e, i) => [e, ends[(i + 1) % ends.length]!] as [PathEnd, PathEnd]);
  const rtts = pairs.flatMap(([a, b]) => links.filter((l) => l.from === a.node.id && l.to === b.node.id && l.rttUs !== null && l.transport !== "shm").map((l) => l.rttUs!)).sort((a, b) => a - b);
  return { pairs, medianRttUs: rtts.length < 3 ? null : rtts[Math.floor(rtts.length / 2)]! };
}
