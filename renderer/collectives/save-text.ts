/** Hands a text to the person as a file. The name comes from the host and is reduced to what is safe in any file system. */
export function saveText(file: { fileName: string; mediaType: string; text: string }): void {
  const url = URL.createObjectURL(new Blob([file.text], { type: file.mediaType }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = file.fileName.replace(/[^A-Za-z0-9._-]/g, "_");
  anchor.click();
  // The download has its own reference once it has begun.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
