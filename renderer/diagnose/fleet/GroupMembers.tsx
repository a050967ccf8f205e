import { Button, UnstyledButton } from "@mantine/core";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { byName } from "../../nodes/filter.js";
import { CopyButton } from "../../shared/CopyButton.js";
import { DataGrid, gridHeight, type Column } from "../../shared/DataGrid.js";
import { oneLine } from "../../shared/printable.js";
import { NodeText } from "../../shared/small.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { memberKey, type FaultGroup } from "./groups.js";
import css from "./fleet.module.css";
import page from "../diagnose.module.css";

/** Rows that are seen at once: a longer list scrolls by itself, and only its visible rows are in the document. */
const ROWS = 8;

export interface GroupMembersProps {
  group: FaultGroup;
  /** By `memberKey`; none = all. */
  chosen: ReadonlySet<string>;
  onChoose(keys: ReadonlySet<string>): void;
  onNode(nodeId: string): void;
}

/** The nodes of a group, each with the line that proves it there. What is chosen is what a mend is applied to. */
export function GroupMembers({ group, chosen, onChoose, onNode }: GroupMembersProps) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const name = (id: string) => items.get(id)?.name ?? id;
  const byKey = useMemo(() => new Map(group.members.map((member) => [memberKey(member), member])), [group.members]);
  const ids = useMemo(() => [...byKey.keys()].sort((a, b) => byName(name(byKey.get(a)!.nodeId), name(byKey.get(b)!.nodeId)) || (a < b ? -1 : 1)), [byKey, items]);
  const columns = useMemo<Column[]>(() => [
    { key: "name", header: t("nodes.columns.name"), width: "minmax(150px, 1fr)", cell: (key) => {
      const member = byKey.get(key);
      return member && <UnstyledButton tabIndex={-1} className={`${page.nodeLink} ellipsis`} title={oneLine(name(member.nodeId))} onClick={(event) => { event.stopPropagation(); onNode(member.nodeId); }}>{oneLine(name(member.nodeId), 60)}</UnstyledButton>;
    } },
    { key: "where", header: t("fleet.where"), width: "minmax(90px, 0.6fr)", cell: (key) => <NodeText mono text={byKey.get(key)?.finding.devices.join(" ") ?? ""} /> },
    { key: "proof", header: t("diagnose.proof"), width: "minmax(200px, 2.4fr)", cell: (key) => <NodeText mono text={byKey.get(key)?.finding.evidence[0]?.line ?? ""} /> },
  ], [byKey, items, onNode, t]);
  const picked = [...chosen].filter((key) => byKey.has(key)).length;
  return (
    <div className={css.members}>
      <div className="toolbar">
        <strong>{t("fleet.nodes", { count: group.nodeIds.length })}</strong>
        <CopyButton text={[...group.nodeIds].map(name).sort(byName).join("\n")} label={t("fleet.copyNames")} />
        <span className="dim">{picked > 0 ? t("fleet.chosen", { count: picked }) : t("fleet.chooseHint")}</span>
        {picked > 0 && <Button size="compact-xs" variant="subtle" onClick={() => onChoose(new Set())}>{t("diagnose.clear")}</Button>}
      </div>
      <div className={css.grid} style={{ height: gridHeight(Math.min(ids.length, ROWS)) }}>
        <DataGrid label={t("fleet.list")} columns={columns} ids={ids} selected={chosen} onSelect={onChoose} onOpen={(key) => { const member = byKey.get(key); if (member) onNode(member.nodeId); }} testId="group-nodes" />
      </div>
    </div>
  );
}
