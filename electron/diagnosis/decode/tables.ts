/** Numbers that drivers, firmware and libraries print, and what they stand for. Sources: infiniband/verbs.h, mlx5 device.h, pci_regs.h, errno. */
import type { Text } from "../types.js";

type Table = Readonly<Record<number, Text>>;

/** enum ibv_wc_status. NCCL, perftest and the kernel print the number. */
export const COMPLETION_STATUS: Table = {
  0: ["success", "成功"], 1: ["local length error", "本地长度错误"], 2: ["local QP operation error", "本地 QP 操作错误"],
  3: ["local EE context operation error", "本地 EEC 操作错误"], 4: ["local protection error", "本地保护错误"], 5: ["work request flushed", "工作请求被清空"],
  6: ["memory window bind error", "内存窗口绑定错误"], 7: ["bad response", "响应错误"], 8: ["local access error", "本地访问错误"],
  9: ["remote invalid request", "远端无效请求"], 10: ["remote access error", "远端访问错误"], 11: ["remote operation error", "远端操作错误"],
  12: ["transport retry counter exceeded", "传输重试次数用尽"], 13: ["receiver-not-ready retry counter exceeded", "接收端未就绪重试次数用尽"],
  14: ["local RDD violation", "本地 RDD 违规"], 15: ["remote invalid RD request", "远端无效 RD 请求"], 16: ["remote aborted", "远端中止"],
  17: ["invalid EE context number", "无效 EEC 编号"], 18: ["invalid EE context state", "无效 EEC 状态"], 19: ["fatal error", "致命错误"],
  20: ["response timeout", "响应超时"], 21: ["general error", "一般错误"],
};

/** CQE error syndrome of mlx5 (not the status number): the status that it stands for. */
export const MLX5_SYNDROME_STATUS: Readonly<Record<number, number>> = {
  0x01: 1, 0x02: 2, 0x04: 4, 0x05: 5, 0x06: 6, 0x10: 7, 0x11: 8, 0x12: 9, 0x13: 10, 0x14: 11, 0x15: 12, 0x16: 13, 0x22: 16,
};

/** Vendor error byte of mlx5, as it usually goes with a completion status. NCCL prints it in decimal, the rest in hex. */
export const MLX5_VENDOR_STATUS: Readonly<Record<number, number>> = { 0x81: 12, 0xf9: 5, 0x51: 4, 0x52: 4, 0x88: 10, 0x89: 11 };

export const MLX5_COMMAND_STATUS: Table = {
  0x0: ["ok", "正常"], 0x1: ["internal error", "内部错误"], 0x2: ["bad operation", "操作错误"], 0x3: ["bad parameter", "参数错误"],
  0x4: ["bad system state", "系统状态错误"], 0x5: ["bad resource", "资源错误"], 0x6: ["resource busy", "资源忙"], 0x8: ["limits exceeded", "超出上限"],
  0x9: ["bad resource state", "资源状态错误"], 0xa: ["bad index", "索引错误"], 0xf: ["no resources", "资源不足"], 0x10: ["bad QP state", "QP 状态错误"],
  0x30: ["bad packet", "报文错误"], 0x40: ["bad size", "大小错误"], 0x50: ["bad input length", "输入长度错误"], 0x51: ["bad output length", "输出长度错误"],
};

export const ERRNO: Readonly<Record<number, readonly [name: string, en: string, zh: string]>> = {
  1: ["EPERM", "operation not permitted", "不允许的操作"], 2: ["ENOENT", "no such file", "文件不存在"], 5: ["EIO", "input/output error", "输入输出错误"],
  11: ["EAGAIN", "try again", "请重试"], 12: ["ENOMEM", "cannot allocate memory", "无法分配内存"], 13: ["EACCES", "permission denied", "权限不足"],
  14: ["EFAULT", "bad address", "地址错误"], 16: ["EBUSY", "device or resource busy", "设备或资源忙"], 19: ["ENODEV", "no such device", "没有此设备"],
  22: ["EINVAL", "invalid argument", "无效参数"], 28: ["ENOSPC", "no space left on device", "设备没有剩余空间"], 38: ["ENOSYS", "function not implemented", "功能未实现"],
  66: ["EREMOTE", "object is remote", "对象在远端"], 71: ["EPROTO", "protocol error", "协议错误"], 95: ["EOPNOTSUPP", "operation not supported", "不支持的操作"],
  99: ["EADDRNOTAVAIL", "cannot assign requested address", "无法分配请求的地址"], 101: ["ENETUNREACH", "network is unreachable", "网络不可达"],
  104: ["ECONNRESET", "connection reset by peer", "连接被对端重置"], 110: ["ETIMEDOUT", "connection timed out", "连接超时"],
  111: ["ECONNREFUSED", "connection refused", "连接被拒绝"], 113: ["EHOSTUNREACH", "no route to host", "没有到主机的路由"], 121: ["EREMOTEIO", "remote I/O error", "远端 I/O 错误"],
};

export const AER_CORRECTABLE: Table = {
  0: ["receiver error", "接收错误"], 6: ["bad TLP", "坏 TLP"], 7: ["bad DLLP", "坏 DLLP"], 8: ["replay number rollover", "重放计数翻转"],
  12: ["replay timer timeout", "重放计时器超时"], 13: ["advisory non-fatal", "提示性非致命错误"], 14: ["corrected internal error", "已纠正的内部错误"], 15: ["header log overflow", "头日志溢出"],
};

export const AER_UNCORRECTABLE: Table = {
  0: ["undefined", "未定义"], 4: ["data link protocol error", "数据链路协议错误"], 5: ["surprise down (link lost)", "链路意外断开"], 12: ["poisoned TLP", "中毒的 TLP"],
  13: ["flow control protocol error", "流控协议错误"], 14: ["completion timeout", "完成超时"], 15: ["completer abort", "完成者中止"], 16: ["unexpected completion", "意外的完成"],
  17: ["receiver overflow", "接收溢出"], 18: ["malformed TLP", "格式错误的 TLP"], 19: ["ECRC error", "ECRC 错误"], 20: ["unsupported request", "不支持的请求"],
  21: ["ACS violation", "ACS 违规"], 22: ["uncorrectable internal error", "不可纠正的内部错误"], 23: ["MC blocked TLP", "组播阻塞"], 24: ["atomic operation egress blocked", "原子操作被阻"], 25: ["TLP prefix blocked", "TLP 前缀被阻"],
};

/** Fault reasons of Intel VT-d. */
export const DMAR_REASON: Table = {
  0x01: ["no root entry for the device's bus", "该设备总线没有根表项"], 0x02: ["no context entry for the device", "该设备没有上下文表项"],
  0x03: ["context entry not valid", "上下文表项无效"], 0x04: ["address beyond the address width", "地址超出位宽"], 0x05: ["write to a page without write permission, or not mapped", "写入没有写权限或未映射的页"],
  0x06: ["read of a page without read permission, or not mapped", "读取没有读权限或未映射的页"], 0x07: ["next page table not reachable", "无法访问下一级页表"], 0x08: ["root table not reachable", "无法访问根表"],
  0x09: ["context table not reachable", "无法访问上下文表"], 0x0a: ["reserved bit set in a root entry", "根表项保留位被置位"], 0x0b: ["reserved bit set in a context entry", "上下文表项保留位被置位"],
  0x0c: ["reserved bit set in a page table entry", "页表项保留位被置位"], 0x0d: ["translation of this kind blocked", "此类转换被阻止"],
};

/** I/OAT channel error register. */
export const CHANERR: Table = {
  0: ["source address error", "源地址错误"], 1: ["destination address error", "目的地址错误"], 2: ["next descriptor address error", "下一描述符地址错误"], 3: ["descriptor error", "描述符错误"],
  4: ["chain address value error", "链地址错误"], 5: ["CHANCMD error", "CHANCMD 错误"], 6: ["chipset uncorrectable data error", "芯片组不可纠正数据错误"], 7: ["DMA uncorrectable data error", "DMA 不可纠正数据错误"],
  8: ["read data error", "读数据错误"], 9: ["write data error", "写数据错误"], 10: ["descriptor control error", "描述符控制字段错误"], 11: ["descriptor length error", "描述符长度错误"],
  12: ["completion address error", "完成地址错误"], 13: ["interrupt configuration error", "中断配置错误"], 16: ["CRC or XOR P error", "CRC 或 XOR P 错误"], 17: ["XOR Q error", "XOR Q 错误"], 18: ["descriptor count error", "描述符计数错误"],
};

/** Low three bits of the I/OAT channel status. */
export const CHANSTS_STATE: Table = {
  0: ["active", "活动"], 1: ["done", "完成"], 2: ["suspended", "暂停"], 3: ["halted", "停止"], 4: ["armed", "待命"],
};

/** enum ib_port_phys_state of the standard. */
export const PHYS_STATE: Table = {
  1: ["sleep", "休眠"], 2: ["polling (no signal)", "轮询（无信号）"], 3: ["disabled", "已禁用"], 4: ["port configuration training", "端口配置训练"], 5: ["link up", "链路已建立"], 6: ["link error recovery", "链路错误恢复"], 7: ["PHY test", "PHY 测试"],
};

/** Names of the bits that are set, lowest first; a set bit without a name is given by its number. */
export function namedBits(value: number, table: Table, language: 0 | 1): string[] {
  const names: string[] = [];
  for (let bit = 0; bit < 32; bit++) if (Math.floor(value / 2 ** bit) % 2 === 1) names.push(table[bit]?.[language] ?? `bit ${bit}`);
  return names;
}

/** A table's value as text with its number; the number alone where it has no name. */
export function named(value: number, table: Table): Text {
  const text = table[value];
  return text ?? [`number ${value}`, `编号 ${value}`];
}

export function errnoText(value: number): Text {
  const e = ERRNO[Math.abs(value)];
  return e ? [`${e[0]}: ${e[1]}`, `${e[0]}：${e[2]}`] : [`errno ${Math.abs(value)}`, `errno ${Math.abs(value)}`];
}

/** flags of an AMD-Vi IO_PAGE_FAULT. */
export function amdviFlags(flags: number): Text {
  const present = (flags & 0x10) !== 0;
  const write = (flags & 0x20) !== 0;
  const permission = (flags & 0x40) !== 0;
  const reserved = (flags & 0x80) !== 0;
  const interrupt = (flags & 0x08) !== 0;
  const en = [interrupt ? "an interrupt request" : write ? "a write" : "a read", present ? "of a page that is mapped" : "of a page that is not mapped"];
  const zh = [interrupt ? "中断请求" : write ? "写操作" : "读操作", present ? "目标页已映射" : "目标页未映射"];
  if (permission) { en.push("without the right to do so"); zh.push("但没有相应权限"); }
  if (reserved) { en.push("with a reserved bit set in the table"); zh.push("表项中有保留位被置位"); }
  return [`${en.join(" ")} (PR=${+present} RW=${+write} PE=${+permission})`, `${zh.join("，")}（PR=${+present} RW=${+write} PE=${+permission}）`];
}
