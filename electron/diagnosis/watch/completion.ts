import { COMPLETION_STATUS, MLX5_SYNDROME_STATUS, MLX5_VENDOR_STATUS, named } from "../decode/tables.js";
import { findRdmaDevice } from "../logs/device.js";
import type { LogRecord } from "../logs/normalise.js";
import type { Scan } from "../scan.js";
import type { Watcher } from "./watcher.js";

/** Class of each completion status. */
const CLASS: Readonly<Record<number, string>> = {
  1: "rdma.wc_loc_len", 4: "rdma.wc_loc_prot", 5: "rdma.wc_flush", 9: "rdma.wc_rem_inv_req", 10: "rdma.wc_rem_access", 11: "rdma.wc_rem_op", 12: "rdma.wc_retry_exc", 13: "rdma.wc_rnr_retry",
};
const NAMES: Readonly<Record<string, number>> = {
  LOC_LEN_ERR: 1, LOC_QP_OP_ERR: 2, LOC_PROT_ERR: 4, WR_FLUSH_ERR: 5, MW_BIND_ERR: 6, BAD_RESP_ERR: 7, LOC_ACCESS_ERR: 8, REM_INV_REQ_ERR: 9, REM_ACCESS_ERR: 10, REM_OP_ERR: 11, RETRY_EXC_ERR: 12, RNR_RETRY_EXC_ERR: 13, REM_ABORT_ERR: 16, FATAL_ERR: 19, RESP_TIMEOUT_ERR: 20, GENERAL_ERR: 21,
};
const V4_MAPPED = /^(?:::ffff:|0{4}(?::0{4}){4}:ffff:)/i;

interface Found { status: number; vendor?: number }

/** Status of a completion in the wordings of NCCL (all versions), perftest, UCX, the kernel and programs; null when the line tells none. */
export function completionStatus(text: string): Found | null {
  let m: RegExpExecArray | null;
  const vendor = vendorOf(text);
  if ((m = /IBV_WC_(?!SUCCESS)([A-Z_]{5,24}?ERR)\b/.exec(text)) && NAMES[m[1]!] !== undefined) return { status: NAMES[m[1]!]!, vendor };
  if ((m = /completion(?: from peer \S+)? with (?:error|status)[ =](\d{1,3})\b/i.exec(text))) return { status: Number(m[1]), vendor };
  if ((m = /Failed status (\d{1,3})\b/i.exec(text))) return { status: Number(m[1]), vendor };
  if ((m = /failed with status [a-z -]{3,60}\((\d{1,3})\)/i.exec(text))) return { status: Number(m[1]), vendor };
  if ((m = /synd(?:rome)? 0x([0-9a-f]{1,2}),? (?:vendor syndrome|vend|vendor_err|vendor) 0x([0-9a-f]{1,2})/i.exec(text))) {
    const status = MLX5_SYNDROME_STATUS[parseInt(m[1]!, 16)];
    return status === undefined ? null : { status, vendor: parseInt(m[2]!, 16) };
  }
  if (/\bcompletion|\bwc\b|wc[._>-]|cqe|work request|vendor/i.test(text)) {
    if ((m = /\bstatus(?: code)?(?: is)?[ =:]{1,3}(\d{1,2})\b(?! ?(?:bytes|ms))/i.exec(text))) return Number(m[1]) === 0 ? null : { status: Number(m[1]), vendor };
    if ((m = /IBV_WC_SUCCESS\W{1,4}(\d{1,2}) vs\.? 0/.exec(text))) return { status: Number(m[1]), vendor };
    if (vendor !== undefined && /error|fail/i.test(text) && MLX5_VENDOR_STATUS[vendor] !== undefined && !/status|opcode/i.test(text)) return { status: MLX5_VENDOR_STATUS[vendor]!, vendor };
    if ((m = /\((\d{1,2})\)/.exec(text)) && /error|fail|status/i.test(text) && CLASS[Number(m[1])] !== undefined && named(Number(m[1]), COMPLETION_STATUS)[0].split(" ").some((w) => w.length > 4 && text.toLowerCase().includes(w))) return { status: Number(m[1]), vendor };
  }
  return null;
}

function vendorOf(text: string): number | undefined {
  const m = /vend(?:or)?[_ ]err(?:or)?[ =:]{1,3}(0x[0-9a-f]{1,2}|\d{1,3})\b/i.exec(text) ?? /syndrom 0x([0-9a-f]{1,2})\b/i.exec(text);
  if (!m) return undefined;
  return m[1]!.startsWith("0x") ? parseInt(m[1]!, 16) : m[0].startsWith("syndrom") ? parseInt(m[1]!, 16) : Number(m[1]);
}

function report(scan: Scan, record: LogRecord, text: string, found: Found): void {
  const cls = CLASS[found.status];
  if (!cls) return;
  scan.seen.add("job_log");
  const device = /\bhca (\S{1,40})/.exec(text)?.[1] ?? /\bdev(?:ice)?[ =]([a-z]\w{2,30})(?=[:/ ,]|$)/.exec(text)?.[1] ?? findRdmaDevice(text);
  const peer = /from peer ([^<\s]{1,64})/.exec(text)?.[1];
  const localGid = /local ?Gid ?([0-9a-f:.]{2,46})/i.exec(text)?.[1];
  const remoteGid = /remote ?Gids? ?([0-9a-f:.]{2,46})/i.exec(text)?.[1];
  // Both ends by IPv4: the address is right, so it is loss or the peer.
  const addressed = found.status === 12 && localGid !== undefined && V4_MAPPED.test(localGid) && remoteGid !== undefined && V4_MAPPED.test(remoteGid);
  const old = /completion with error \d/i.test(text);
  scan.hit(cls, record, { device, severity: addressed ? "medium" : undefined, params: { status: found.status, vendor: found.vendor, peer, localGid, remoteGid, addressed: addressed ? 1 : undefined, oldWording: old ? 1 : undefined } });
}

export const completionWatcher: Watcher = {
  id: "completion",
  triggers: ["completion", "failed status", "syndrom", "vendor err", "vendor_err", "ibv_wc_", "work request", "wc status", "wc->status", "wc.status", "cqe", "failed with status", "synd 0x", "status="],
  line(scan, record, text) {
    if (/mlx5: \S{1,64}: got completion with error:?$/i.test(text) || /dump(?:_| error )cqe/i.test(text)) { scan.follow(this, 6); return; }
    const found = completionStatus(text);
    if (found) report(scan, record, text, found);
  },
  /** Rows of a dumped completion: the last one ends in vendor byte and syndrome of its second word. */
  follow(scan, record, text) {
    const t = text.trim();
    const bytes = /^0{6}30: ((?:[0-9a-f]{2} ){7}[0-9a-f]{2})/i.exec(t);
    const words = /(?:^|\s)([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{8})$/i.exec(t);
    let vendor: number;
    let syndrome: number;
    if (bytes) { const b = bytes[1]!.split(" ").map((x) => parseInt(x, 16)); vendor = b[6]!; syndrome = b[7]!; }
    else if (words) { const w = parseInt(words[2]!, 16); vendor = (w >>> 8) & 0xff; syndrome = w & 0xff; }
    else return /^(?:dump|\d{8}:|[0-9a-f]{8} )/i.test(t);
    const status = MLX5_SYNDROME_STATUS[syndrome];
    const plausible = status !== undefined && (MLX5_VENDOR_STATUS[vendor] === undefined || MLX5_VENDOR_STATUS[vendor] === status || status === 4 || vendor !== 0);
    if (plausible && vendor !== 0) { report(scan, record, text, { status, vendor }); return false; }
    return true;
  },
};
