import type { Rule } from "../types.js";
import { rules as dma } from "./dma.js";
import { rules as gpu } from "./gpu.js";
import { rules as gpuXid } from "./gpu-xid.js";
import { rules as host } from "./host.js";
import { rules as link } from "./link.js";
import { rules as nccl } from "./nccl.js";
import { rules as pcie } from "./pcie.js";
import { rules as perm } from "./perm.js";
import { rules as rdma } from "./rdma.js";
import { rules as rdmaFirmware } from "./rdma-firmware.js";
import { rules as stepccl } from "./stepccl.js";

/** One file a class group; RDMA and GPU take two. */
export const RULE_FILES: Readonly<Record<string, readonly Rule[]>> = { dma, perm, link, rdma, rdmaFirmware, gpuXid, gpu, pcie, host, nccl, stepccl };

export const RULES: readonly Rule[] = Object.values(RULE_FILES).flat();

const BY_ID = new Map(RULES.map((rule) => [rule.id, rule]));

export function ruleOf(id: string): Rule {
  const rule = BY_ID.get(id);
  if (!rule) throw new Error(`no rule ${id}`);
  return rule;
}
