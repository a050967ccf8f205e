import { PIECE_BYTES, type InputFile } from "../../../electron/contract/index.js";
import type { Client } from "../../client/client.js";

/** Bytes as Base64, in steps that no argument list is too short for. */
export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

/** Sends one file to the console in pieces; what was sent of one that is given up is discarded. @throws RequestError */
export async function sendFile(client: Client, file: File, signal: AbortSignal, onSent: (bytes: number) => void = () => undefined): Promise<string> {
  const { uploadId } = await client.request("uploads.begin", { name: file.name, sizeBytes: file.size }, { signal });
  try {
    for (let offset = 0; offset < file.size; offset += PIECE_BYTES) {
      const piece = new Uint8Array(await file.slice(offset, offset + PIECE_BYTES).arrayBuffer());
      await client.request("uploads.append", { uploadId, offset, base64: toBase64(piece) }, { signal });
      onSent(Math.min(file.size, offset + PIECE_BYTES));
    }
  } catch (thrown) {
    // Best effort: the console forgets uploads by itself after an hour.
    client.request("uploads.discard", { uploadId }).catch(() => undefined);
    throw thrown;
  }
  return uploadId;
}

/** Sends files one after the other, and gives them as a request takes them. `onProgress` gets bytes sent of all. */
export async function sendFiles(client: Client, files: readonly File[], signal: AbortSignal, onProgress: (sentBytes: number, totalBytes: number) => void = () => undefined): Promise<InputFile[]> {
  const total = files.reduce((sum, file) => sum + file.size, 0);
  const sent: InputFile[] = [];
  let before = 0;
  for (const file of files) {
    sent.push({ kind: "upload", uploadId: await sendFile(client, file, signal, (bytes) => onProgress(before + bytes, total)) });
    before += file.size;
  }
  return sent;
}
