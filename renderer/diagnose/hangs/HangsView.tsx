import { Button, Loader } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconClockPause from "@tabler/icons-react/icons/IconClockPause";
import IconPlayerPlay from "@tabler/icons-react/icons/IconPlayerPlay";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { oneLine } from "../../shared/printable.js";
import { Age, EmptyState } from "../../shared/small.js";
import { useAction } from "../../shared/use-action.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { FileDrop } from "../files/FileDrop.js";
import { sendFiles } from "../files/send.js";
import { useDiagnoseUi } from "../store.js";
import { HangGroup } from "./HangGroup.js";
import { useHangStore } from "./store.js";
import css from "../diagnose.module.css";

/** Which rank holds the others up: the flight recorders of all ranks, read now or dropped as files, merged. */
export function HangsView() {
  const { t } = useTranslation();
  const { client, nodes } = useConsole();
  const items = useItems(nodes);
  const chosen = useStore(useDiagnoseUi(), (s) => s.chosen);
  const store = useHangStore();
  const view = useStore(store, (s) => s.view);
  const check = useAction(async (signal) => {
    const nodeIds = [...chosen].filter((id) => items.has(id));
    store.setState({ view: await client.request("hangs.check", nodeIds.length > 0 ? { nodeIds } : {}, { signal, timeoutMs: 120_000 }) });
  });
  const read = useAction(async (signal, files: readonly File[]) => {
    const sent = await sendFiles(client, files, signal);
    store.setState({ view: await client.request("hangs.files", { files: sent }, { signal, timeoutMs: 120_000 }) });
  });
  const busy = check.busy || read.busy;
  return (
    <FileDrop className={`panel ${css.main} ${css.wide}`} onFiles={(files) => void read.run(files)} label={t("hangs.drop")}>
      {(choose) => (
        <div className={css.report}>
          <div className="toolbar">
            <h2>{t("hangs.title")}</h2>
            {view && <Age atMs={view.takenAtMs} event />}
            <span className="spacer" />
            <Button variant="default" onClick={choose} disabled={busy}>{t("hangs.openFiles")}</Button>
            {busy
              ? <Button variant="default" onClick={() => { check.cancel(); read.cancel(); }}>{t("common.cancel")}</Button>
              : <Button leftSection={<IconPlayerPlay size={14} />} onClick={() => void check.run()} data-testid="hangs-check">{t("hangs.check")}</Button>}
          </div>
          {check.error && <ErrorNote error={check.error} onClose={check.clear} />}
          {read.error && <ErrorNote error={read.error} onClose={read.clear} />}
          {busy && <span className="dim"><Loader size={12} /> {t("hangs.reading")}</span>}
          {view?.groups.map((group, index) => <HangGroup key={`${group.job}/${group.communicator}/${index}`} group={group} />)}
          {view && view.groups.length === 0 && <EmptyState icon={IconClockPause} title={t("hangs.none.title")}>{t("hangs.none.text")}</EmptyState>}
          {view && view.unread.length > 0 && (
            <section className={css.block}>
              <h3>{t("hangs.unread")}</h3>
              {view.unread.map((each, index) => <div key={index}><span className="dim">{oneLine(each.what, 120)}</span><ErrorNote error={each.error} compact /></div>)}
            </section>
          )}
          {!view && !busy && <EmptyState icon={IconClockPause} title={t("hangs.empty.title")}>{t("hangs.empty.text")}</EmptyState>}
        </div>
      )}
    </FileDrop>
  );
}
