import { Loader, Modal, TextInput } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { SourceView } from "../../electron/contract/index.js";
import { toShownError } from "../client/page-error.js";
import { CopyButton } from "../shared/CopyButton.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { bytes } from "../shared/format.js";
import { oneLine, printable } from "../shared/printable.js";
import { useConsole } from "../store/console-hooks.js";
import { splitLines } from "./lines.js";
import css from "./diagnose.module.css";

const ROW = 18;

/** The raw text of a source: numbered lines, only those in view in the document, hostile characters made visible. */
export function SourceViewer({ source, nodeId = null, line, onClose }: { source: SourceView | null; /** Where the rest of a long text can be asked for. */ nodeId?: string | null; line: number | null; onClose(): void }) {
  const { t } = useTranslation();
  return (
    <Modal opened={source !== null} onClose={onClose} size="min(1100px, 94vw)" closeButtonProps={{ "aria-label": t("common.close") }} data-testid="source-viewer" title={source && <code className="mono">{oneLine(source.command, 200)}</code>}>
      {source && (nodeId !== null && source.truncatedBytes > 0 ? <WholeBody key={source.id} nodeId={nodeId} source={source} line={line} /> : <Body key={source.id} source={source} line={line} />)}
    </Modal>
  );
}

/** Asks the console for the whole text: the numbers of quoted lines count from its start. Where it has no more, the end that came with the finding stays. */
function WholeBody({ nodeId, source, line }: { nodeId: string; source: SourceView; line: number | null }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const [whole, setWhole] = useState<SourceView | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const ask = async (): Promise<void> => {
      let text = "";
      for (let total = 1; text.length < total; ) {
        const piece = await client.request("diagnose.source", { nodeId, sourceId: source.id, fromChar: text.length }, { signal: abort.signal });
        text += piece.text;
        total = piece.text === "" ? 0 : piece.totalChars;
      }
      setWhole({ ...source, text, truncatedBytes: 0 });
    };
    ask().catch((thrown: unknown) => { if (!abort.signal.aborted) setWhole({ ...source, error: toShownError(thrown) }); });
    return () => abort.abort();
  }, [client, nodeId, source]);
  if (whole === null) return <div className={css.viewer}><div className={css.loading}><Loader size="xs" aria-label={t("common.loading")} /></div></div>;
  return <Body source={whole} line={whole.truncatedBytes === 0 ? line : null} />;
}

function Body({ source, line }: { source: SourceView; line: number | null }) {
  const { t } = useTranslation();
  const scroller = useRef<HTMLDivElement>(null);
  const [filter, setFilter] = useState("");
  const lines = useMemo(() => splitLines(source.text), [source.text]);
  const shown = useMemo(() => {
    const word = filter.toLowerCase();
    return word === "" ? lines : lines.filter((each) => each.text.toLowerCase().includes(word));
  }, [lines, filter]);
  const virtualizer = useVirtualizer({ count: shown.length, getScrollElement: () => scroller.current, estimateSize: () => ROW, overscan: 20, initialRect: { width: 900, height: 500 } });
  useEffect(() => {
    if (line !== null) virtualizer.scrollToIndex(Math.max(0, line - 1), { align: "center" });
    // Once, when the viewer opens at a line.
  }, [line]);
  return (
    <div className={css.viewer}>
      <div className="toolbar">
        <span className="dim">{t("diagnose.lines", { shown: shown.length, total: lines.length })}</span>
        {source.truncatedBytes > 0 && <span style={{ color: "var(--c-warn)" }}>{t("diagnose.truncated", { size: bytes(source.truncatedBytes) })}</span>}
        <span className="spacer" />
        <TextInput w={220} placeholder={t("diagnose.find")} aria-label={t("diagnose.find")} value={filter} onChange={(event) => setFilter(event.currentTarget.value)} />
        <CopyButton text={source.text} label={t("diagnose.copyAll")} />
      </div>
      {source.error && <ErrorNote error={source.error} />}
      <div ref={scroller} className={css.text} tabIndex={0} role="region" aria-label={t("diagnose.rawText")}>
        <div style={{ height: virtualizer.getTotalSize(), position: "relative", minWidth: "max-content" }}>
          {virtualizer.getVirtualItems().map((item) => {
            const each = shown[item.index]!;
            return (
              <div key={item.index} className={css.textLine} data-marked={each.number === line || undefined} style={{ top: item.start, height: ROW }}>
                <span className={css.lineNumber} aria-hidden>{each.number}</span>{printable(each.text)}
              </div>
            );
          })}
        </div>
        {lines.length === 0 && <span className="dim">{t("diagnose.noText")}</span>}
      </div>
    </div>
  );
}
