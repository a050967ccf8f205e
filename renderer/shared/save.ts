/** Hands bytes or a text to the person as a file. The name comes from the host and is reduced to what is safe in any file system. */
function save(fileName: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = fileName.replace(/[^A-Za-z0-9._-]/g, "_");
  anchor.click();
  // The download has its own reference once it has begun.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export const saveText = (file: { fileName: string; mediaType: string; text: string }): void => save(file.fileName, new Blob([file.text], { type: file.mediaType }));
export const saveBytes = (file: { fileName: string; mediaType: string; bytes: Uint8Array<ArrayBuffer> }): void => save(file.fileName, new Blob([file.bytes], { type: file.mediaType }));
