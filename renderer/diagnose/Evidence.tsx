import { Button } from "@mantine/core";
import { useTranslation } from "react-i18next";
import type { EvidenceView } from "../../electron/contract/index.js";
import { CopyButton } from "../shared/CopyButton.js";
import { oneLine, printable } from "../shared/printable.js";
import { Fold } from "./Fold.js";
import { useSay } from "./words.js";
import css from "./diagnose.module.css";

export interface SourceLinks {
  has(sourceId: string): boolean;
  open(sourceId: string, line: number | null): void;
}

/** What a line says apart from when: without the stamp that it begins with, of the kernel or ISO 8601. */
const said = (piece: EvidenceView): string => `${piece.source}\n${piece.line.replace(/^(?:\[ *\d+\.\d+\]|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) */, "")}`;

/** Lines that say the same are one: the first stands, the others are folded under it. */
export function alike(pieces: readonly EvidenceView[]): EvidenceView[][] {
  const groups = new Map<string, EvidenceView[]>();
  for (const piece of pieces) groups.set(said(piece), [...(groups.get(said(piece)) ?? []), piece]);
  return [...groups.values()];
}

function Piece({ piece, links, bare = false }: { piece: EvidenceView; links: SourceLinks | undefined; bare?: boolean }) {
  const say = useSay();
  return (
    <>
      <div className={css.quote}>
        <code>{piece.lineNumber !== null && <span className={css.lineNumber}>{piece.lineNumber}</span>}{printable(piece.line)}</code>
        <CopyButton text={piece.line} />
      </div>
      {!bare && (
        <div className={css.meaning}>
          {piece.meaning !== null && <span>{say(piece.meaning)}</span>}
          {links?.has(piece.source)
            ? <Button size="compact-xs" variant="subtle" className={css.sourceLink} onClick={() => links.open(piece.source, piece.lineNumber)}>{oneLine(piece.source, 60)}</Button>
            : <span className="dim mono">{oneLine(piece.source, 60)}</span>}
        </div>
      )}
    </>
  );
}

/** Lines as they were read, each with what it means, and the way to where it stands. */
export function Evidence({ pieces, links }: { pieces: readonly EvidenceView[]; links?: SourceLinks }) {
  const { t } = useTranslation();
  return (
    <ul className={css.evidence}>
      {alike(pieces).map(([first, ...more], index) => (
        <li key={index}>
          <Piece piece={first!} links={links} />
          {more.length > 0 && <Fold label={t("diagnose.moreAlike", { count: more.length })}>{more.map((piece, at) => <Piece key={at} piece={piece} links={links} bare />)}</Fold>}
        </li>
      ))}
    </ul>
  );
}
