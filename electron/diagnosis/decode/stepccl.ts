import type { Severity, Text } from "../types.js";

/** Codes of the DMA driver's kernel lines: the class that each raises (null: information only) and what it says. */
export const DRIVER_CODES: Readonly<Record<string, { class: string | null; severity?: Severity; says: Text }>> = {
  DE001: { class: null, says: ["driver loaded", "驱动已加载"] },
  DE002: { class: null, says: ["DMA engine ready", "DMA 引擎就绪"] },
  DE003: { class: "driver.cpu_fallback", says: ["no DMA engine, copies by the CPU", "没有 DMA 引擎，由 CPU 拷贝"] },
  DE004: { class: "driver.cpu_fallback", says: ["kernel built without DMA engines", "内核未编入 DMA 引擎"] },
  DE005: { class: "driver.engine_busy", says: ["all DMA channels are taken", "所有 DMA 通道都被占用"] },
  DE006: { class: "driver.idxd_not_configured", says: ["DSA present, no kernel work queue", "有 DSA，但没有内核工作队列"] },
  DE007: { class: null, says: ["engine left out by policy", "按策略未使用该引擎"] },
  DE101: { class: "rdma.memlock_limit", says: ["locked-memory limit reached", "达到锁定内存上限"] },
  DE102: { class: "driver.pin_failed", says: ["a buffer could not be pinned", "缓冲区无法锁定"] },
  DE103: { class: "driver.dmabuf_import", says: ["import of GPU memory failed", "导入 GPU 内存失败"] },
  DE104: { class: "dma.mask_overflow", says: ["mapping for the engine failed", "为引擎建立映射失败"] },
  DE105: { class: "driver.quota", says: ["driver quota reached", "达到驱动配额"] },
  DE201: { class: "driver.bad_descriptor", says: ["descriptor refused", "描述符被拒绝"] },
  DE202: { class: null, says: ["remote node, goes by RDMA", "远端节点，走 RDMA"] },
  DE203: { class: "driver.route_missing", says: ["node not in the routing table", "节点不在路由表中"] },
  DE204: { class: "driver.bad_descriptor", says: ["ring corrupt, context disabled", "环已损坏，上下文被停用"] },
  DE205: { class: "driver.abi_mismatch", says: ["library and driver differ in ABI", "库与驱动的 ABI 不一致"] },
  DE301: { class: "driver.engine_error", says: ["engine reported an error", "引擎报告错误"] },
  DE302: { class: "dma.engine_timeout", says: ["engine timed out, quarantined", "引擎超时，已隔离"] },
  DE303: { class: "driver.engine_error", severity: "medium", says: ["engine removed while in use", "引擎在使用中被移除"] },
  DE304: { class: "driver.data_mismatch", says: ["copied data differ", "拷贝的数据不一致"] },
  DE305: { class: null, says: ["late completion, engine recovered", "迟到的完成，引擎已恢复"] },
  DE401: { class: null, says: ["unloading", "正在卸载"] },
  DE501: { class: "driver.drain_expired", says: ["pages kept pinned", "仍有页被锁定"] },
};
