import { Button, Checkbox, Loader, Modal, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import type { FindingView, MendOffer } from "../../../electron/contract/index.js";
import { toShownError, type ShownError } from "../../client/page-error.js";
import { CopyButton } from "../../shared/CopyButton.js";
import { ErrorNote } from "../../shared/ErrorNote.js";
import { oneLine, printable } from "../../shared/printable.js";
import { useAction } from "../../shared/use-action.js";
import { useReturnFocus } from "../../shared/use-return-focus.js";
import { useConsole, useItem, useNow } from "../../store/console-hooks.js";
import { useSay } from "../words.js";
import { runElementId } from "./MendRun.js";
import css from "../diagnose.module.css";

export interface ApplyDialogProps {
  nodeId: string;
  finding: FindingView;
  /** Mends that are ticked at first. */
  first: readonly string[];
  onClose(): void;
}

/** Consent: shows exactly what would run where, in which order and at what risk. What destroys takes the node's name, typed, as well. */
export function ApplyDialog({ nodeId, finding, first, onClose }: ApplyDialogProps) {
  const { t } = useTranslation();
  const say = useSay();
  const { client, nodes, mends } = useConsole();
  const name = oneLine(useItem(nodes, nodeId)?.name ?? nodeId, 60);
  const now = useNow();
  const focus = useReturnFocus();
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set(first));
  const [offer, setOffer] = useState<MendOffer | null>(null);
  const [refused, setRefused] = useState<ShownError | null>(null);
  const [again, setAgain] = useState(0);
  const [typed, setTyped] = useState("");
  const choices = finding.mend.filter((mend) => mend.id !== null);
  const ids = choices.flatMap((mend) => (ticked.has(mend.id!) ? [mend.id!] : []));
  const key = ids.join("\n");
  useEffect(() => {
    setOffer(null);
    setRefused(null);
    if (key === "") return;
    const abort = new AbortController();
    client.request("mends.offer", { nodeId, findingId: finding.id, mendIds: key.split("\n") }, { signal: abort.signal }).then(setOffer, (thrown: unknown) => {
      if (!abort.signal.aborted) setRefused(toShownError(thrown));
    });
    return () => abort.abort();
  }, [client, nodeId, finding.id, key, again]);
  const apply = useAction(async () => {
    if (!offer) return;
    const run = await client.request("mends.apply", { offerId: offer.offerId, commands: offer.commands.map((each) => each.command), ...(offer.secondConsent === null ? {} : { secondConsent: typed.trim() }) });
    mends.upsert(run);
    focus.next(runElementId(run.id));
    onClose();
  });
  const expired = offer !== null && offer.expiresAtMs <= now;
  const agreed = offer !== null && !expired && (offer.secondConsent === null || typed.trim() === offer.secondConsent);
  return (
    <Modal opened onClose={onClose} size="min(760px, 94vw)" title={t("mends.consentTitle", { name })} closeButtonProps={{ "aria-label": t("common.close") }} data-testid="apply-dialog">
      <form
        className={css.consent}
        onSubmit={(event) => {
          event.preventDefault();
          if (agreed && !apply.busy) void apply.run();
        }}
      >
        <p>{t("mends.consentText")}</p>
        <ol className={css.commands}>
          {choices.map((mend) => {
            const exact = offer?.commands.find((each) => each.mendId === mend.id)?.command ?? mend.command;
            return (
              <li key={mend.id} data-risk={mend.risk} className={css.mend}>
                <Checkbox
                  checked={ticked.has(mend.id!)} label={say(mend.explanation)} disabled={apply.busy}
                  onChange={() => setTicked((before) => { const next = new Set(before); if (!next.delete(mend.id!)) next.add(mend.id!); return next; })}
                />
                <div className={css.quote}><code>{printable(exact)}</code><CopyButton text={exact} label={t("diagnose.copyCommand")} /></div>
                <strong className={css.risk}>{t(`risks.${mend.risk}`)}</strong>
              </li>
            );
          })}
        </ol>
        <div className={css.consentFoot}>
          {offer && <span className="dim">{t("mends.retests", { what: oneLine(offer.retest.join(", "), 160) })}</span>}
          {!offer && !refused && key !== "" && <span className="dim"><Loader size={11} /> {t("mends.asking")}</span>}
          {key === "" && <span className="dim">{t("mends.chooseOne")}</span>}
        </div>
        {offer?.secondConsent != null && (
          <div className={css.second}>
            <strong>{t("mends.destructive")}</strong>
            <TextInput label={t("mends.typeName", { name: oneLine(offer.secondConsent, 60) })} value={typed} onChange={(event) => setTyped(event.currentTarget.value)} w={280} data-testid="second-consent" />
          </div>
        )}
        {offer !== null && offer.secondConsent === null && (offer.risk === "restarts_service" || offer.risk === "interrupts_jobs") && <p className={css.warning}>{t(offer.risk === "interrupts_jobs" ? "mends.interrupts" : "mends.restarts")}</p>}
        {refused && <ErrorNote error={refused} />}
        {apply.error && <ErrorNote error={apply.error} onClose={apply.clear} />}
        <div className="toolbar">
          {(expired || refused) && <Button variant="default" onClick={() => setAgain(again + 1)}>{t("mends.offerAgain")}</Button>}
          {expired && <span className="dim">{t("mends.expired")}</span>}
          <span className="spacer" />
          {/* Consent that is one key away is none: the safe button has the focus. */}
          <Button data-autofocus variant="default" onClick={onClose}>{t("common.cancel")}</Button>
          <Button type="submit" color={offer?.risk === "destructive" ? "red" : undefined} disabled={!agreed} loading={apply.busy} data-testid="apply-mend">
            {t("mends.applyOn", { count: ids.length, name })}
          </Button>
        </div>
      </form>
    </Modal>
  );
}
