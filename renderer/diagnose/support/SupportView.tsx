import { Button, Loader, Modal, UnstyledButton } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconDownload from "@tabler/icons-react/icons/IconDownload";
import IconPackage from "@tabler/icons-react/icons/IconPackage";
import type { Result, SupportBundleView } from "../../../electron/contract/index.js";
import { toShownError, type ShownError } from "../../client/page-error.js";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { saveBytes } from "../../shared/save.js";
import { bytes } from "../../shared/format.js";
import { oneLine, printable } from "../../shared/printable.js";
import { Age, EmptyState } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { NodePicker } from "../NodePicker.js";
import { useDiagnoseUi } from "../store.js";
import { fetchBundle } from "./fetch-bundle.js";
import { markRedacted } from "./redacted.js";
import { useSupportStore } from "./store.js";
import css from "../files/files.module.css";
import page from "../diagnose.module.css";

/** One file as it would be handed on; what stands in for something is marked. */
function Preview({ bundleId, name, onClose }: { bundleId: string; name: string | null; onClose(): void }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const [shown, setShown] = useState<Result<"support.preview"> | null>(null);
  const [error, setError] = useState<ShownError | null>(null);
  useEffect(() => {
    if (name === null) return;
    setShown(null);
    setError(null);
    const abort = new AbortController();
    client.request("support.preview", { bundleId, name }, { signal: abort.signal }).then(setShown, (thrown: unknown) => { if (!abort.signal.aborted) setError(toShownError(thrown)); });
    return () => abort.abort();
  }, [client, bundleId, name]);
  return (
    <Modal opened={name !== null} onClose={onClose} size="min(1000px, 94vw)" title={<code className="mono">{oneLine(name ?? "", 120)}</code>} closeButtonProps={{ "aria-label": t("common.close") }} data-testid="bundle-preview">
      {error && <ErrorNote error={error} />}
      {!shown && !error && <Loader size="sm" aria-label={t("common.loading")} />}
      {shown && (
        <>
          {shown.truncatedBytes > 0 && <p style={{ color: "var(--c-warn)" }}>{t("support.cut", { size: bytes(shown.truncatedBytes) })}</p>}
          <pre className={css.preview} tabIndex={0} aria-label={t("support.preview")}>{markRedacted(shown.text).map((part, index) => (part.redacted ? <mark key={index}>{part.text}</mark> : printable(part.text)))}</pre>
        </>
      )}
    </Modal>
  );
}

function Prepared({ bundle }: { bundle: SupportBundleView }) {
  const { t } = useTranslation();
  const { client } = useConsole();
  const [previewed, setPreviewed] = useState<string | null>(null);
  const [got, setGot] = useState<number | null>(null);
  const save = useAction(async (signal) => {
    try {
      saveBytes({ fileName: bundle.fileName, mediaType: "application/gzip", bytes: await fetchBundle(client, bundle, signal, setGot) });
    } finally {
      setGot(null);
    }
  });
  return (
    <div className={page.report} data-testid="support-bundle">
      <div className="toolbar">
        <h2 className="ellipsis">{oneLine(bundle.fileName, 80)}</h2>
        <span className="dim">{bytes(bundle.sizeBytes)} · <Age atMs={bundle.madeAtMs} event /></span>
        <span className="spacer" />
        {save.busy
          ? <><span className="dim">{bytes(got ?? 0)} / {bytes(bundle.sizeBytes)}</span><Button variant="default" onClick={save.cancel}>{t("common.cancel")}</Button></>
          : <Button leftSection={<IconDownload size={14} />} onClick={() => void save.run()} data-testid="bundle-save">{t("common.save")}</Button>}
      </div>
      {save.error && <ErrorNote error={save.error} onClose={save.clear} />}
      <section className={page.block}>
        <h3>{t("support.replaced")}</h3>
        {bundle.replaced.length === 0 ? <p className="dim">{t("support.nothingReplaced")}</p> : (
          <dl className={css.kinds}>{bundle.replaced.map((each) => <div key={each.kind}><dt>{t(`redactions.${each.kind}`)}</dt><dd title={t("support.places", { count: each.places })}>{t("support.names", { count: each.names, places: each.places })}</dd></div>)}</dl>
        )}
      </section>
      <section className={page.block}>
        <h3>{t("support.files", { count: bundle.files.length })}</h3>
        <p className="dim">{t("support.lookFirst")}</p>
        <table className={css.fileTable}>
          <thead><tr><th>{t("support.file")}</th><th className={css.n}>{t("diagnose.size")}</th><th className={css.n}>{t("support.replacedPlaces")}</th></tr></thead>
          <tbody>
            {bundle.files.map((file) => (
              <tr key={file.name}>
                <td><UnstyledButton className={page.link} onClick={() => setPreviewed(file.name)}>{oneLine(file.name, 120)}</UnstyledButton></td>
                <td className={css.n}>{bytes(file.sizeBytes)}</td><td className={css.n}>{file.replaced}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <Preview bundleId={bundle.bundleId} name={previewed} onClose={() => setPreviewed(null)} />
    </div>
  );
}

/** One archive with everything that was read, redacted; looked at before it is handed on. */
export function SupportView() {
  const { t } = useTranslation();
  const { client, nodes } = useConsole();
  const items = useItems(nodes);
  const ui = useDiagnoseUi();
  const chosen = useStore(ui, (s) => s.chosen);
  const store = useSupportStore();
  const bundle = useStore(store, (s) => s.bundle);
  const picked = [...chosen].filter((id) => items.has(id));
  const prepare = useAction(async (signal) => {
    store.setState({ bundle: await client.request("support.prepare", picked.length > 0 ? { nodeIds: picked } : {}, { signal, timeoutMs: 120_000 }) });
  });
  return (
    <>
      <div className={page.side}>
        <div className={`panel ${page.form}`}>
          <p className="dim">{t("support.text")}</p>
          <NodePicker label={t("support.nodes")} chosen={picked} onChange={(next) => ui.setState({ chosen: new Set(next) })} />
          {prepare.error && <ErrorNote error={prepare.error} onClose={prepare.clear} />}
          {prepare.busy
            ? <Button variant="default" onClick={prepare.cancel}>{t("common.cancel")}</Button>
            : <Button leftSection={<IconPackage size={14} />} onClick={() => void prepare.run()} data-testid="support-prepare">{picked.length === 0 ? t("support.prepareAll") : t("support.prepare", { count: picked.length })}</Button>}
        </div>
      </div>
      <div className={`panel ${page.main}`}>
        {bundle ? <Prepared key={bundle.bundleId} bundle={bundle} /> : <EmptyState icon={IconPackage} title={t("support.empty.title")}>{t("support.empty.text")}</EmptyState>}
      </div>
    </>
  );
}
