/**
 * One name for one device, whatever the message calls it: BDF with or without domain, `PCI:0000:09:00` (no function),
 * RDMA device, netdev, GPU UUID. Placeholders of redacted posts stay as they are.
 */
const BDF = /^(?:PCI:)?(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?$/i;

const MAX_KNOWN = 4096;
const known = new Map<string, string>();

export function normaliseDevice(name: string): string {
  let normal = known.get(name);
  if (normal === undefined) {
    normal = normalForm(name);
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(name, normal);
  }
  return normal;
}

function normalForm(name: string): string {
  // Some kernels print each part as a number of its own: 0x00:0x02.0.
  const m = BDF.exec(name.trim().replace(/^0x([0-9a-f]{2}):0x([0-9a-f]{2}\.[0-7])$/i, "$1:$2"));
  if (!m) return name.trim();
  const domain = (m[1] ?? "0000").toLowerCase().replace(/^0+(?=[0-9a-f]{4})/, "").padStart(4, "0");
  const slot = `${domain}:${m[2]!.toLowerCase()}:${m[3]!.toLowerCase()}`;
  return m[4] === undefined ? slot : `${slot}.${m[4]}`;
}

/** The slot of a BDF: the functions of one card share it. Null for what is no PCI address. */
export function slotOf(device: string | null): string | null {
  if (device === null) return null;
  const m = /^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?$/.exec(device);
  return m ? m[1]! : null;
}

/** True when the two can be the same card: same slot, same name, or one of them unknown or of another naming. */
export function mayBeSame(a: string | null, b: string | null): boolean {
  if (a === null || b === null || a === b) return true;
  const sa = slotOf(a);
  const sb = slotOf(b);
  return sa === null || sb === null || sa === sb;
}

/** First PCI address in a message, in its normal form. */
export function findBdf(text: string): string | null {
  const m = /(?:\b|_|\[)((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b/i.exec(text) ?? /PCI:((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2})\b/i.exec(text);
  return m ? normaliseDevice(m[1]!) : null;
}

/** RDMA device names of the drivers in the kernel and of rdma-core's persistent naming. */
export function findRdmaDevice(text: string): string | null {
  const m = /\b((?:mlx[45]_(?:bond_)?\d+|(?:rocep|ibp|opap|iwp|roceo|ibs|roce)[0-9a-z]*\d[0-9a-z]*|bnxt_re\d+|irdma\d+|i40iw\d+|rxe\d+|rxe_\w{1,15}|siw_\w{1,15}|siw\d+|qedr\d+|hfi1_\d+|efa_\d+|erdma_\d+|hns_\d+|cxgb4_\d+|vmw_pvrdma\d+|mana_\d+))\b/.exec(text);
  return m ? m[1]! : null;
}
