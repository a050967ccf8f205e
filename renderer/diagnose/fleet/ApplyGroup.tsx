import { Button, Checkbox, Modal, NativeSelect, TextInput } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { FindingView } from "../../../electron/contract/index.js";
import { byName } from "../../nodes/filter.js";
import { CopyButton } from "../../shared/CopyButton.js";
import { oneLine, printable } from "../../shared/printable.js";
import { useReturnFocus } from "../../shared/use-return-focus.js";
import { useConsole, useItems, useNow } from "../../store/console-hooks.js";
import { Fold } from "../Fold.js";
import { useSay } from "../words.js";
import { groupRunElementId } from "./GroupRunPanel.js";
import type { Member } from "./groups.js";
import { choicesOf, LEFT_OUT, planOf } from "./plan.js";
import { useGroupMender } from "./store.js";
import css from "./fleet.module.css";
import page from "../diagnose.module.css";


const AT_A_TIME = [1, 2, 4, 8, 16, 32] as const;
const STANDARD = 8;
/** Sets of commands that are shown in full; further ones are folded. */
const SHOWN_VARIANTS = 3;

const nodesOf = (members: readonly Member[]): string[] => [...new Set(members.map((member) => member.nodeId))];

export interface ApplyGroupProps {
  finding: FindingView;
  members: readonly Member[];
  /** The mend that is ticked at first. */
  first: string;
  onClose(): void;
}

/** Consent for many nodes at once: what runs on each, word for word; where nothing runs and why; how many at a time. What destroys takes the number of nodes, typed. */
export function ApplyGroup({ finding, members, first, onClose }: ApplyGroupProps) {
  const { t } = useTranslation();
  const say = useSay();
  const { nodes, diagnoses, mends } = useConsole();
  const names = useItems(nodes);
  const views = useItems(diagnoses);
  const runs = useItems(mends);
  const now = useNow();
  const mender = useGroupMender();
  const focus = useReturnFocus();
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set([first]));
  const [parallel, setParallel] = useState<number>(STANDARD);
  const [oneFirst, setOneFirst] = useState(true);
  const [typed, setTyped] = useState("");
  // What was agreed to is what was on screen when the dialog opened: findings that come later are not slipped in.
  const [fixed] = useState(members);
  const choices = useMemo(() => choicesOf(fixed), [fixed]);
  const plan = useMemo(() => planOf(fixed, ticked, { nowMs: now, diagnosis: (id) => views.get(id), mends: runs.values() }), [fixed, ticked, now, views, runs]);
  const listed = (of: readonly Member[]): string => nodesOf(of).map((id) => oneLine(names.get(id)?.name ?? id, 60)).sort(byName).join(", ");
  const nodeIds = nodesOf(plan.variants.flatMap((variant) => variant.members));
  const count = nodeIds.length;
  const destroys = plan.risk === "destructive";
  const agreed = count > 0 && (!destroys || typed.trim() === String(count));
  const variant = ({ commands, members: of }: (typeof plan.variants)[number], index: number) => (
    <li key={index} className={css.variant}>
      <strong>{t("fleet.onNodes", { count: nodesOf(of).length })}</strong>
      {commands.map(({ mendId, command }) => <div key={mendId} className={page.quote}><code>{printable(command)}</code><CopyButton text={command} label={t("diagnose.copyCommand")} /></div>)}
      <div className={css.nodeNames} tabIndex={0} role="group" aria-label={t("fleet.onNodes", { count: nodesOf(of).length })}>{listed(of)}</div>
    </li>
  );
  return (
    <Modal opened onClose={onClose} size="min(820px, 94vw)" title={t("fleet.consentTitle", { count: nodesOf(fixed).length })} closeButtonProps={{ "aria-label": t("common.close") }} data-testid="apply-group">
      <form
        className={page.consent}
        onSubmit={(event) => {
          event.preventDefault();
          if (!agreed) return;
          focus.next(groupRunElementId(mender.start({ title: finding.title, class: finding.class, plan, parallel, oneFirst }).id));
          onClose();
        }}
      >
        <p>{t("fleet.consentText")}</p>
        {choices.length > 1 && (
          <fieldset className={page.picker}>
            <legend>{t("diagnose.mend")}</legend>
            {choices.map((choice) => (
              <div key={choice.id} data-risk={choice.risk} className={css.choice}>
                <Checkbox checked={ticked.has(choice.id)} label={say(choice.sample.explanation)} onChange={() => setTicked((before) => { const next = new Set(before); if (!next.delete(choice.id)) next.add(choice.id); return next; })} />
                <strong className={page.risk}>{t(`risks.${choice.risk}`)}</strong>
              </div>
            ))}
          </fieldset>
        )}
        {plan.variants.length > 0 && <ol className={page.commands} aria-label={t("fleet.whatRuns")}>{plan.variants.slice(0, SHOWN_VARIANTS).map(variant)}</ol>}
        {plan.variants.length > SHOWN_VARIANTS && (
          <Fold label={t("fleet.moreVariants", { count: plan.variants.length - SHOWN_VARIANTS })}><ol className={page.commands}>{plan.variants.slice(SHOWN_VARIANTS).map(variant)}</ol></Fold>
        )}
        {LEFT_OUT.map((why) => {
          const left = plan.leftOut.get(why);
          return left && <p key={why} className={page.warning}>{t(`fleet.leftOut.${why}`, { count: nodesOf(left).length })} <span className="dim">{oneLine(listed(left), 200)}</span></p>;
        })}
        {ticked.size === 0 && <p className="dim">{t("mends.chooseOne")}</p>}
        <div className={css.pace}>
          <NativeSelect label={t("fleet.atATime")} value={String(parallel)} onChange={(event) => setParallel(Number(event.currentTarget.value))} data={AT_A_TIME.map(String)} />
          <Checkbox checked={oneFirst} disabled={count < 2} label={t("fleet.oneFirst")} onChange={() => setOneFirst(!oneFirst)} />
        </div>
        {plan.retest.length > 0 && <span className="dim">{t("mends.retests", { what: oneLine(plan.retest.join(", "), 160) })}</span>}
        {(plan.risk === "interrupts_jobs" || plan.risk === "restarts_service") && <p className={page.warning}>{t(plan.risk === "interrupts_jobs" ? "fleet.interrupts" : "fleet.restarts", { count })}</p>}
        {destroys && (
          <div className={page.second}>
            <strong>{t("fleet.destroys", { count })}</strong>
            <TextInput label={t("fleet.typeCount", { count })} inputMode="numeric" value={typed} onChange={(event) => setTyped(event.currentTarget.value)} w={280} data-testid="second-consent" />
          </div>
        )}
        <div className="toolbar">
          <span className="dim">{t("fleet.keepOpen")}</span>
          <span className="spacer" />
          <Button data-autofocus variant="default" onClick={onClose}>{t("common.cancel")}</Button>
          <Button type="submit" color={destroys ? "red" : undefined} disabled={!agreed} data-testid="apply-group-run">{t("fleet.run", { count })}</Button>
        </div>
      </form>
    </Modal>
  );
}
