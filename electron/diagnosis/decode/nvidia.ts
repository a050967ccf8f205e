import type { Text } from "../types.js";

/** Class of each Xid that the catalogue names. */
export function xidClass(xid: number): string | null {
  if (xid === 32 || xid === 69) return "gpu.xid_32_69";
  if (xid === 61 || xid === 62) return "gpu.xid_61_62";
  if (xid === 119 || xid === 120) return "gpu.xid_119_120";
  if (xid >= 144 && xid <= 150) return "gpu.xid_144_150";
  return XID_ALONE.has(xid) ? `gpu.xid_${xid}` : null;
}

const XID_ALONE = new Set([13, 31, 43, 44, 45, 48, 63, 64, 74, 79, 92, 94, 95, 109, 140, 154]);

/** What the vendor's table calls each Xid, in our words. */
export const XID: Readonly<Record<number, Text>> = {
  8: ["GPU stopped processing in time", "GPU 未按时处理"], 13: ["graphics engine exception", "图形引擎异常"], 31: ["GPU memory page fault", "GPU 内存页错误"], 32: ["bad push buffer", "推送缓冲区损坏"],
  38: ["driver firmware error", "驱动固件错误"], 43: ["GPU stopped processing", "GPU 停止处理"], 44: ["fault during context switch", "上下文切换期间出错"], 45: ["preemptive clean-up", "抢占清理"],
  46: ["GPU stopped processing", "GPU 停止处理"], 48: ["double-bit ECC error", "双比特 ECC 错误"], 56: ["display engine error", "显示引擎错误"], 57: ["memory interface error", "显存接口错误"], 58: ["memory configuration error", "显存配置错误"],
  61: ["internal micro-controller breakpoint or warning", "内部微控制器断点或警告"], 62: ["internal micro-controller halt", "内部微控制器停止"], 63: ["row remap or page retirement recorded", "已记录行重映射或页退役"],
  64: ["row remap or page retirement failed", "行重映射或页退役失败"], 68: ["video processor exception", "视频处理器异常"], 69: ["graphics engine class error", "图形引擎类错误"], 74: ["NVLink error", "NVLink 错误"], 79: ["GPU has fallen off the bus", "GPU 从总线上掉线"],
  92: ["high rate of single-bit ECC errors", "单比特 ECC 错误率高"], 94: ["contained memory error", "受限的显存错误"], 95: ["uncontained memory error", "未受限的显存错误"], 109: ["context switch timeout", "上下文切换超时"],
  119: ["GSP RPC timeout", "GSP RPC 超时"], 120: ["GSP error", "GSP 错误"], 121: ["C2C link error", "C2C 链路错误"], 136: ["link training failed", "链路训练失败"], 137: ["NVLink fault of a peer access", "NVLink 对端访问错误"],
  140: ["unrecovered ECC error", "未恢复的 ECC 错误"], 143: ["GPU initialisation failed", "GPU 初始化失败"], 144: ["NVLink 5: SAW error", "NVLink 5：SAW 错误"], 145: ["NVLink 5: RLW error", "NVLink 5：RLW 错误"], 146: ["NVLink 5: TLW error", "NVLink 5：TLW 错误"],
  147: ["NVLink 5: TREX error", "NVLink 5：TREX 错误"], 148: ["NVLink 5: NVLPW_CTRL error", "NVLink 5：NVLPW_CTRL 错误"], 149: ["NVLink 5: NETIR error", "NVLink 5：NETIR 错误"], 150: ["NVLink 5: MSE error", "NVLink 5：MSE 错误"],
  154: ["recovery action changed", "恢复动作已变更"], 155: ["NVLink flow control error", "NVLink 流控错误"], 156: ["resource retirement event", "资源退役事件"], 157: ["resource retirement failed", "资源退役失败"], 158: ["fatal GPU timeout", "GPU 致命超时"],
};

/** SXids that NVSwitch reports most often. */
export const SXID: Readonly<Record<number, Text>> = {
  10003: ["host interface PRI error", "主机接口 PRI 错误"], 11001: ["ingress invalid command", "入口无效命令"], 11004: ["ingress invalid VCset", "入口 VCset 无效"], 11012: ["ingress response map parity error", "入口响应映射校验错误"], 12020: ["egress sequence ID error", "出口序列号错误"],
  12028: ["egress non-posted PRIV error", "出口非投递 PRIV 错误"], 14017: ["tstate ECC limit", "tstate ECC 达到上限"], 15001: ["route ECC error", "路由 ECC 错误"], 19049: ["LTSSM fault up", "LTSSM 上行故障"], 19084: ["AN1 heartbeat timeout", "AN1 心跳超时"],
  20001: ["transmit replay error", "发送重放错误"], 20012: ["receive short error rate", "接收短期误码率过高"], 20034: ["LTSSM fault down (link lost)", "LTSSM 下行故障（链路断开）"], 22003: ["Minion link ALI fatal", "Minion 链路 ALI 致命错误"], 22012: ["Minion link NA interrupt", "Minion 链路 NA 中断"], 22013: ["Minion link DLREQ interrupt", "Minion 链路 DLREQ 中断"],
  24007: ["source track time-out", "源跟踪超时"], 28006: ["trigger of power brake", "触发功率制动"],
};
