import { AER_CORRECTABLE, AER_UNCORRECTABLE, amdviFlags, COMPLETION_STATUS, DMAR_REASON, errnoText, MLX5_COMMAND_STATUS, named, namedBits } from "./decode/tables.js";
import { SXID, XID } from "./decode/nvidia.js";
import type { Text } from "./types.js";

type Params = Record<string, string | number>;

/** What the numbers in a line of this class stand for; null when there is nothing to decode. */
export function meaningOf(cls: string, params: Params): Text | null {
  const decode = DECODE[cls] ?? (cls.startsWith("rdma.wc_") ? completion : cls.startsWith("rdma.qp_rtr") ? rtr : cls.startsWith("gpu.xid") ? xid : cls.startsWith("pcie.a") ? aer : null);
  return decode ? decode(params) : null;
}

const int = (v: string | number | undefined): number | null => {
  if (v === undefined) return null;
  const n = typeof v === "number" ? v : Number(v);
  return Number.isFinite(n) ? n : null;
};

const DECODE: Record<string, (p: Params) => Text | null> = {
  "iommu.dmar_fault": (p) => {
    const text = String(p["reason"] ?? "");
    const reason = text.startsWith("0x") ? parseInt(text, 16) : parseInt(text, 10);
    if (!Number.isFinite(reason)) return null;
    const [en, zh] = named(reason, DMAR_REASON);
    return [`reason ${text}: ${en}; address ${p["address"] ?? "?"}`, `原因 ${text}：${zh}；地址 ${p["address"] ?? "?"}`];
  },
  "iommu.amdvi_io_page_fault": (p) => { const f = int(p["flags"]); return f === null ? null : amdviFlags(f); },
  "dma.swiotlb_full": (p) => (p["total"] === undefined ? null : [`${p["used"]} of ${p["total"]} slots of 2 KiB in use; ${p["size"]} bytes asked for`, `${p["total"]} 个 2 KiB 槽位中已用 ${p["used"]} 个；请求 ${p["size"]} 字节`]),
  "dma.mask_overflow": (p) => (p["total"] === undefined ? null : [`${p["size"]} bytes asked for (the limit is 262144), ${p["used"]} of ${p["total"]} slots in use`, `请求 ${p["size"]} 字节（上限 262144），${p["total"]} 个槽位已用 ${p["used"]} 个`]),
  "rdma.fw_cmd_status": command, "rdma.fw_access_reg_restricted": command, "rdma.mkey_limit": command,
  "rdma.cm_addr_error": (p) => { const e = int(p["error"]); return e === null ? null : errnoText(e); },
  "module.firmware_missing": (p) => { const e = int(p["error"] ?? p["error2"]); return e === null ? null : errnoText(e); },
  "gpu.sxid": (p) => { const n = int(p["sxid"]); const t = n === null ? undefined : SXID[n]; return t ? [`SXid ${n}: ${t[0]}`, `SXid ${n}：${t[1]}`] : null; },
};

function command(p: Params): Text | null {
  const status = int(p["status"]);
  if (status === null || p["command"] === undefined) return null;
  const [en, zh] = named(status, MLX5_COMMAND_STATUS);
  return [`${p["command"]}: status 0x${status.toString(16)} is ${en}`, `${p["command"]}：状态 0x${status.toString(16)} 为${zh}`];
}

function completion(p: Params): Text | null {
  const status = int(p["status"]);
  if (status === null) return null;
  const [en, zh] = named(status, COMPLETION_STATUS);
  const vendor = int(p["vendor"]);
  const byte = vendor === null ? "" : ` (vendor ${vendor} = 0x${vendor.toString(16)})`;
  return [`status ${status}: ${en}${byte}`, `状态 ${status}：${zh}${byte}`];
}

function rtr(p: Params): Text | null {
  return p["localGid"] === undefined ? null : [`from ${p["localGid"]} to ${p["remoteGid"] ?? "?"}`, `从 ${p["localGid"]} 到 ${p["remoteGid"] ?? "?"}`];
}

function xid(p: Params): Text | null {
  const n = int(p["xid"]);
  const t = n === null ? undefined : XID[n];
  return t ? [`Xid ${n}: ${t[0]}`, `Xid ${n}：${t[1]}`] : null;
}

function aer(p: Params): Text | null {
  if (p["status"] === undefined) return null;
  const value = parseInt(String(p["status"]), 16);
  const table = p["correctable"] === 1 ? AER_CORRECTABLE : AER_UNCORRECTABLE;
  const en = namedBits(value, table, 0);
  return en.length === 0 ? null : [`status ${p["status"]}: ${en.join(", ")}`, `状态 ${p["status"]}：${namedBits(value, table, 1).join("、")}`];
}
