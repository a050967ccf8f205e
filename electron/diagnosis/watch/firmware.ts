import { MLX5_COMMAND_STATUS, named } from "../decode/tables.js";
import type { Watcher } from "./watcher.js";

/** What an adapter's firmware answers to a command of its driver, in the wordings of the drivers. */
export const firmwareStatus: Watcher = {
  id: "fw_status",
  triggers: ["op_mod(", "fw status = 0x", "qplib: cmdq[", "hwrm req_type", "failed to process command", "devcmd"],
  line(scan, record, text) {
    scan.seen.add("kernel_log");
    const m = /([A-Za-z][A-Za-z0-9_]{2,40})\(0x([0-9a-f]+)\) op_mod\(0x([0-9a-f]+)\)[^,]{0,40},? ?status ([a-z -]{2,40})\(0x([0-9a-f]+)\)(?:, ?syndrome \(0x([0-9a-f]+)\))?/i.exec(text);
    if (m) {
      const status = parseInt(m[5]!, 16);
      const command = m[1]!.toUpperCase();
      const params = { command, status, syndrome: m[6] === undefined ? undefined : `0x${m[6]}` };
      if (command === "CREATE_MKEY" && status === 8) scan.hit("rdma.mkey_limit", record, { params });
      else if (command === "ACCESS_REG" && status === 2) scan.hit("rdma.fw_access_reg_restricted", record, { params });
      else if (status !== 0) scan.hit("rdma.fw_cmd_status", record, { params, severity: status === 1 ? "high" : "medium" });
      return;
    }
    const old = /command 0x([0-9a-f]+) failed: fw status = 0x([0-9a-f]+)/i.exec(text);
    // 0x5a only sets the node's description: old firmware refuses it and works.
    if (old && old[1] !== "5a") {
      const status = parseInt(old[2]!, 16);
      scan.hit("rdma.fw_cmd_status", record, { severity: "low", params: { command: `0x${old[1]}`, status }, meaning: [`fw status ${named(status, MLX5_COMMAND_STATUS)[0]}`, `固件状态：${named(status, MLX5_COMMAND_STATUS)[1]}`] });
      return;
    }
    // Broadcom (QPLIB for RDMA, HWRM for the network part), Amazon, Pensando: their own numbers, no common table.
    const other = /QPLIB: cmdq\[0x[0-9a-f]+\]=0x(?<qplib>[0-9a-f]+) status 0x(?<qstatus>[0-9a-f]+)/i.exec(text) ?? /hwrm req_type 0x(?<hwrm>[0-9a-f]+) seq id 0x[0-9a-f]+ error 0x(?<hstatus>[0-9a-f]+)/i.exec(text)
      ?? /Failed to process command (?<efa>\w{3,40}) \(opcode \d+\) comp_status (?<estatus>\d+)/i.exec(text) ?? /DEVCMD (?<ionic>\w{3,40}) \(\d+\) failed: (?<istatus>\w{3,40})/i.exec(text);
    if (!other?.groups) return;
    const g = other.groups;
    const command = g["efa"] ?? g["ionic"] ?? `0x${g["qplib"] ?? g["hwrm"]}`;
    const status = g["estatus"] ?? g["istatus"] ?? `0x${g["qstatus"] ?? g["hstatus"]}`;
    if (/^0x0+$|^0$/.test(status)) return;
    // Optional queries that older firmware does not know are refused at every start.
    scan.hit("rdma.fw_cmd_status", record, { severity: g["hwrm"] !== undefined ? "low" : "medium", params: { command, status }, meaning: [`the firmware refused command ${command}: ${status}`, `固件拒绝命令 ${command}：${status}`] });
  },
};
