import { Button, Progress, Textarea } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconUpload from "@tabler/icons-react/icons/IconUpload";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { bytes } from "../../shared/format.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole } from "../../store/console-hooks.js";
import { FileDrop } from "./FileDrop.js";
import { FileResult } from "./FileResult.js";
import { OpenedBundleView } from "../support/OpenedBundle.js";
import { sendFile, sendFiles } from "./send.js";
import { useFilesStore } from "./store.js";
import css from "./files.module.css";
import page from "../diagnose.module.css";

/** Judging a few hundred megabytes takes its time; the person can cancel. */
const JUDGE_TIMEOUT_MS = 600_000;
/** As a support bundle is named. */
const isBundle = (files: readonly File[]): boolean => files.length === 1 && /^stepccl-support[\w.-]*\.(?:json\.gz|tar\.gz|tgz|zip)$/i.test(files[0]!.name);

/** What machines say that the console cannot reach: pasted text, dropped files, or a support bundle of another console. */
export function FilesView() {
  const { t } = useTranslation();
  const { client } = useConsole();
  const store = useFilesStore();
  const text = useStore(store, (s) => s.text);
  const result = useStore(store, (s) => s.result);
  const bundle = useStore(store, (s) => s.bundle);
  const [sent, setSent] = useState<{ done: number; total: number } | null>(null);
  const judge = useAction(async (signal, files: readonly File[]) => {
    store.setState({ result: null, bundle: null });
    try {
      if (isBundle(files)) {
        const uploadId = await sendFile(client, files[0]!, signal, (done) => setSent({ done, total: files[0]!.size }));
        store.setState({ bundle: await client.request("support.open", { uploadId }, { signal, timeoutMs: JUDGE_TIMEOUT_MS }) });
        return;
      }
      const input = files.length > 0
        ? await sendFiles(client, files, signal, (done, total) => setSent({ done, total }))
        : [{ kind: "text" as const, name: t("files.pasted"), text: store.getState().text }];
      store.setState({ result: await client.request("diagnose.files", { files: input }, { signal, timeoutMs: JUDGE_TIMEOUT_MS }) });
    } finally {
      setSent(null);
    }
  });
  const take = (files: readonly File[]) => void judge.run(files);
  // A large paste goes the way of files: in pieces, as bytes.
  const judgeText = () => void judge.run(text.length > 500_000 ? [new File([text], "pasted.txt")] : []);
  return (
    <FileDrop className={`panel ${page.main} ${page.wide}`} label={t("files.dropHere")} onFiles={take}>
      {(choose) => (
        <div className={page.report}>
          <div className={css.entry}>
            <Textarea
              autosize={false} rows={7} label={t("files.paste")} placeholder={t("files.placeholder")} value={text} spellCheck={false} classNames={{ input: page.pasteBox! }}
              onChange={(event) => store.setState({ text: event.currentTarget.value })}
              onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && text.trim() !== "") judgeText(); }}
            />
            <div className={css.target}>
              <IconUpload size={22} aria-hidden />
              <span>{t("files.dropOr")}</span>
              <Button variant="default" onClick={choose} disabled={judge.busy} data-testid="choose-files">{t("files.choose")}</Button>
            </div>
          </div>
          <div className="toolbar">
            {judge.busy
              ? <Button variant="default" onClick={judge.cancel}>{t("common.cancel")}</Button>
              : <Button disabled={text.trim() === ""} onClick={judgeText} data-testid="judge-text">{t("files.judge")}</Button>}
            {text !== "" && !judge.busy && <Button variant="subtle" onClick={() => store.setState({ text: "", result: null })}>{t("diagnose.clear")}</Button>}
            {judge.busy && <span className="dim">{sent && sent.done < sent.total ? `${bytes(sent.done)} / ${bytes(sent.total)}` : t("files.judging")}</span>}
            {judge.busy && <Progress w={140} value={sent && sent.total > 0 ? (sent.done / sent.total) * 100 : 100} animated={!sent || sent.done >= sent.total} aria-label={t("files.judging")} />}
            <span className="spacer" />
            <span className="dim">{t("files.staysHere")}</span>
          </div>
          {judge.error && <ErrorNote error={judge.error} onClose={judge.clear} />}
          {result && <FileResult result={result} />}
          {bundle && <OpenedBundleView bundle={bundle} />}
        </div>
      )}
    </FileDrop>
  );
}
