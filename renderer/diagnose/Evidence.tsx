import { Button } from "@mantine/core";
import type { EvidenceView } from "../../electron/contract/index.js";
import { CopyButton } from "../shared/CopyButton.js";
import { oneLine, printable } from "../shared/printable.js";
import { useSay } from "./words.js";
import css from "./diagnose.module.css";

export interface SourceLinks {
  has(sourceId: string): boolean;
  open(sourceId: string, line: number | null): void;
}

/** Lines as they were read, each with what it means, and the way to where it stands. */
export function Evidence({ pieces, links }: { pieces: readonly EvidenceView[]; links?: SourceLinks }) {
  const say = useSay();
  return (
    <ul className={css.evidence}>
      {pieces.map((piece, index) => (
        <li key={index}>
          <div className={css.quote}>
            <code>{piece.lineNumber !== null && <span className={css.lineNumber}>{piece.lineNumber}</span>}{printable(piece.line)}</code>
            <CopyButton text={piece.line} />
          </div>
          <div className={css.meaning}>
            {piece.meaning !== null && <span>{say(piece.meaning)}</span>}
            {links?.has(piece.source)
              ? <Button size="compact-xs" variant="subtle" className={css.sourceLink} onClick={() => links.open(piece.source, piece.lineNumber)}>{oneLine(piece.source, 60)}</Button>
              : <span className="dim mono">{oneLine(piece.source, 60)}</span>}
          </div>
        </li>
      ))}
    </ul>
  );
}
