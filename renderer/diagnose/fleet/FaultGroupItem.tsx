import { Button, UnstyledButton } from "@mantine/core";
import { memo, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import IconChevronRight from "@tabler/icons-react/icons/IconChevronRight";
import IconTool from "@tabler/icons-react/icons/IconTool";
import { CopyButton } from "../../shared/CopyButton.js";
import { oneLine, printable } from "../../shared/printable.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { byName } from "../../nodes/filter.js";
import { SeverityState, toneOf } from "../severity.js";
import { useSay } from "../words.js";
import { ApplyGroup } from "./ApplyGroup.js";
import { GroupMembers } from "./GroupMembers.js";
import { memberKey, type FaultGroup } from "./groups.js";
import { choicesOf } from "./plan.js";
import css from "./fleet.module.css";
import page from "../diagnose.module.css";

/** Up to so many nodes stand by name in the head of a group; of more, their number does. */
const NAMED = 3;

/** The nodes of a group in its head: by name while they are few. */
function Where({ nodeIds, onNode }: { nodeIds: readonly string[]; onNode(id: string): void }) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const name = (id: string) => items.get(id)?.name ?? id;
  if (nodeIds.length > NAMED) return <span className={page.count}>{t("fleet.nodes", { count: nodeIds.length })}</span>;
  return <span className={css.names}>{[...nodeIds].sort((a, b) => byName(name(a), name(b))).map((id) => <UnstyledButton key={id} className={page.nodeLink} onClick={() => onNode(id)}>{oneLine(name(id), 32)}</UnstyledButton>)}</span>;
}

/** What can be done about a group: each command once where it is the same everywhere, and applied on all of its nodes, or on those chosen. */
function GroupMends({ group, chosen }: { group: FaultGroup; chosen: ReadonlySet<string> }) {
  const { t } = useTranslation();
  const say = useSay();
  const [first, setFirst] = useState<string | null>(null);
  const members = useMemo(() => (chosen.size === 0 ? group.members : group.members.filter((member) => chosen.has(memberKey(member)))), [group.members, chosen]);
  const choices = useMemo(() => choicesOf(members), [members]);
  const nodeCount = new Set(members.map((member) => member.nodeId)).size;
  const looks = group.finding.mend.filter((mend) => mend.id === null);
  if (choices.length === 0 && looks.length === 0) return null;
  return (
    <>
      <dt>{t("diagnose.mend")}</dt>
      <dd>
        {choices.map((choice) => (
          <div key={choice.id} className={page.mend} data-risk={choice.risk}>
            <div className={page.quote}>
              <code>{printable(choice.sample.command)}{choice.commands > 1 && <span className={css.more}> {t("fleet.otherCommands", { count: choice.commands - 1 })}</span>}</code>
              <CopyButton text={choice.sample.command} label={t("diagnose.copyCommand")} />
              <Button size="compact-xs" variant="light" leftSection={<IconTool size={12} />} onClick={() => setFirst(choice.id)}>{t("fleet.apply", { count: nodeCount })}</Button>
            </div>
            <div className={page.meaning}><span>{say(choice.sample.explanation)}</span><strong className={page.risk}>{t(`risks.${choice.risk}`)}</strong></div>
          </div>
        ))}
        {looks.map((mend, index) => (
          <div key={index} className={page.mend} data-risk={mend.risk}>
            <div className={page.quote}><code>{printable(mend.command)}</code><CopyButton text={mend.command} label={t("diagnose.copyCommand")} /></div>
            <div className={page.meaning}><span>{say(mend.explanation)}</span><strong className={page.risk}>{t(`risks.${mend.risk}`)}</strong></div>
          </div>
        ))}
        {first !== null && <ApplyGroup finding={group.finding} members={members} first={first} onClose={() => setFirst(null)} />}
      </dd>
    </>
  );
}

export interface FaultGroupItemProps {
  group: FaultGroup;
  open: boolean;
  onToggle(key: string): void;
  onNode(nodeId: string): void;
}

/** A fault with all nodes that have it: one line, and opened its explanation, its mend and its nodes. */
export const FaultGroupItem = memo(function FaultGroupItem({ group, open, onToggle, onNode }: FaultGroupItemProps) {
  const { t } = useTranslation();
  const say = useSay();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const { finding } = group;
  const bodyId = `group-${group.key.replace(/\W/g, "-")}`;
  return (
    <section className={css.group} data-tone={toneOf(finding.severity)} data-testid="fault-group" data-class={finding.class} data-count={group.nodeIds.length} aria-label={say(finding.title)}>
      <header>
        <UnstyledButton className={css.toggle} aria-expanded={open} aria-controls={open ? bodyId : undefined} onClick={() => onToggle(group.key)}>
          <IconChevronRight size={14} aria-hidden className={page.chevron} />
          <SeverityState severity={finding.severity} />
          <span className={css.title}>{say(finding.title)}</span>
        </UnstyledButton>
        <Where nodeIds={group.nodeIds} onNode={onNode} />
        <code className={page.code} title={finding.class}>{finding.code}</code>
      </header>
      {open && (
        <div id={bodyId} className={css.body}>
          <p>{say(finding.explanation)}</p>
          <dl className={page.rows}>
            {finding.causes.length > 0 && <><dt>{t("diagnose.causes")}</dt><dd><ol className={page.causes}>{finding.causes.map((cause, index) => <li key={index}>{say(cause)}</li>)}</ol></dd></>}
            <GroupMends group={group} chosen={chosen} />
          </dl>
          <GroupMembers group={group} chosen={chosen} onChoose={setChosen} onNode={onNode} />
        </div>
      )}
    </section>
  );
});
