import { useRef, useState, type DragEvent, type ReactNode } from "react";
import css from "./files.module.css";

export interface FileDropProps {
  /** What may be dropped here, in words. */
  label: string;
  className: string | undefined;
  onFiles(files: readonly File[]): void;
  /** `choose` opens the file dialog: dropping is never the only way. */
  children(choose: () => void): ReactNode;
}

const holdsFiles = (event: DragEvent): boolean => event.dataTransfer.types.includes("Files");

/** A part of the page that takes files by dropping or by a dialog. */
export function FileDrop({ label, className, onFiles, children }: FileDropProps) {
  const input = useRef<HTMLInputElement>(null);
  // Entering a child comes before leaving its parent: only the outermost leave is one.
  const depth = useRef(0);
  const [over, setOver] = useState(false);
  const take = (list: FileList | null) => {
    if (list && list.length > 0) onFiles([...list]);
  };
  return (
    <div
      className={`${className ?? ""} ${css.drop}`}
      onDragEnter={(event) => { if (!holdsFiles(event)) return; event.preventDefault(); depth.current++; setOver(true); }}
      onDragOver={(event) => { if (holdsFiles(event)) { event.preventDefault(); event.dataTransfer.dropEffect = "copy"; } }}
      onDragLeave={(event) => { if (holdsFiles(event) && --depth.current <= 0) { depth.current = 0; setOver(false); } }}
      onDrop={(event) => { event.preventDefault(); depth.current = 0; setOver(false); take(event.dataTransfer.files); }}
    >
      <input ref={input} type="file" multiple hidden aria-hidden tabIndex={-1} aria-label={label} onChange={(event) => { take(event.currentTarget.files); event.currentTarget.value = ""; }} />
      {children(() => input.current?.click())}
      {over && <div className={css.over}>{label}</div>}
    </div>
  );
}
