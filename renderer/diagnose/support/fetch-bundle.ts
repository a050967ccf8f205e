import type { SupportBundleView } from "../../../electron/contract/index.js";
import type { Client } from "../../client/client.js";

/** The whole archive, piece by piece. @throws RequestError */
export async function fetchBundle(client: Client, bundle: SupportBundleView, signal: AbortSignal, onGot: (bytes: number) => void): Promise<Uint8Array<ArrayBuffer>> {
  const whole = new Uint8Array(bundle.sizeBytes);
  let offset = 0;
  while (offset < bundle.sizeBytes) {
    const piece = await client.request("support.read", { bundleId: bundle.bundleId, offset }, { signal });
    const text = atob(piece.base64);
    for (let at = 0; at < text.length; at++) whole[offset + at] = text.charCodeAt(at);
    // A piece without bytes would never end.
    if (piece.nextOffset <= offset) throw new Error(`the archive ends at ${offset} of ${bundle.sizeBytes} bytes`);
    offset = piece.nextOffset;
    onGot(offset);
  }
  return whole;
}
