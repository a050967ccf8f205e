import { Button, Menu, TextInput } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import IconChevronDown from "@tabler/icons-react/icons/IconChevronDown";
import IconFingerprint from "@tabler/icons-react/icons/IconFingerprint";
import IconPlus from "@tabler/icons-react/icons/IconPlus";
import IconSearch from "@tabler/icons-react/icons/IconSearch";
import IconServer2 from "@tabler/icons-react/icons/IconServer2";
import IconUpload from "@tabler/icons-react/icons/IconUpload";
import { hrefOf } from "../app/router.js";
import { useUi } from "../app/ui.js";
import { DataGrid, type Sort } from "../shared/DataGrid.js";
import { ErrorNote } from "../shared/ErrorNote.js";
import { EmptyState, Shortcut } from "../shared/small.js";
import { useConsole, useItems, useLoaded } from "../store/console-hooks.js";
import { useStore } from "zustand";
import { filterNodes, sortNodes } from "./filter.js";
import { nodeColumns } from "./node-columns.js";
import { RemoveNodes } from "./RemoveNodes.js";
import { useBringUp } from "./use-operations.js";
import { WorkDock } from "./WorkDock.js";
import css from "./nodes.module.css";

export function NodesPage() {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const loaded = useLoaded(nodes);
  const listError = useStore(nodes.api, (s) => s.error);
  const selection = useUi((s) => s.selection);
  const set = useUi((s) => s.set);
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState<Sort>({ key: "name", descending: false });
  const [removing, setRemoving] = useState<"takeDown" | "forget" | null>(null);
  const bringUp = useBringUp();
  const columns = useMemo(() => nodeColumns(t), [t]);
  const order = useMemo(() => sortNodes(filterNodes(items.values(), filter), sort).map((node) => node.id), [items, filter, sort]);
  const ids = useStable(order);
  const chosen = useMemo(() => [...selection].filter((id) => items.has(id)), [selection, items]);
  const untrusted = useMemo(() => chosen.filter((id) => items.get(id)!.hostKey.status !== "trusted"), [chosen, items]);
  const busy = chosen.length > 0 && chosen.every((id) => items.get(id)!.phase === "bringing_up");

  const start = () => {
    if (untrusted.length > 0) set({ hostKeys: untrusted, afterKeys: chosen });
    else void bringUp.run(chosen);
  };
  if (loaded && items.size === 0) {
    return (
      <div className={`panel ${css.page}`}>
        <EmptyState
          icon={IconServer2} title={t("nodes.empty.title")}
          action={<Button leftSection={<IconPlus size={15} />} onClick={() => set({ addNodes: true })} data-testid="add-first-node">{t("nodes.add")}</Button>}
        >
          {t("nodes.empty.text")}
        </EmptyState>
      </div>
    );
  }
  return (
    <div className={css.page}>
      <div className="toolbar">
        <Button leftSection={<IconPlus size={15} />} variant={chosen.length > 0 ? "default" : "filled"} onClick={() => set({ addNodes: true })} aria-keyshortcuts="n">{t("nodes.add")}</Button>
        <Button leftSection={<IconUpload size={15} />} variant={chosen.length > 0 ? "filled" : "default"} disabled={chosen.length === 0 || busy} loading={bringUp.busy} onClick={start}>
          {chosen.length > 0 ? t("nodes.bringUpCount", { count: chosen.length }) : t("nodes.bringUp")}
        </Button>
        {untrusted.length > 0 && (
          <Button leftSection={<IconFingerprint size={15} />} variant="default" onClick={() => set({ hostKeys: untrusted, afterKeys: null })}>{t("nodes.confirmKeys")}</Button>
        )}
        <Menu disabled={chosen.length === 0}>
          <Menu.Target>
            <Button variant="default" rightSection={<IconChevronDown size={13} />} disabled={chosen.length === 0}>{t("nodes.more")}</Button>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item component="a" href={hrefOf("diagnose", { nodes: chosen.join(",") })}>{t("nodes.diagnose")}</Menu.Item>
            <Menu.Divider />
            <Menu.Item onClick={() => setRemoving("takeDown")}>{t("nodes.takeDown")}</Menu.Item>
            <Menu.Item color="red" onClick={() => setRemoving("forget")}>{t("nodes.forget")}</Menu.Item>
          </Menu.Dropdown>
        </Menu>
        <span className="spacer" />
        <span className="dim" data-testid="node-count" aria-live="polite">
          {chosen.length > 0 ? t("nodes.chosen", { chosen: chosen.length, shown: ids.length }) : t("nodes.shown", { shown: ids.length, total: items.size })}
        </span>
        <TextInput
          data-filter w={230} leftSection={<IconSearch size={14} />} rightSection={<Shortcut keys="/" />} placeholder={t("nodes.filter")} aria-label={t("nodes.filter")} value={filter}
          onChange={(event) => setFilter(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Escape") setFilter(""); }}
        />
      </div>
      {listError && <ErrorNote error={listError} />}
      <div className={`panel ${css.table}`}>
        <DataGrid
          label={t("nodes.table")} columns={columns} ids={ids} selected={selection} onSelect={(selected) => set({ selection: selected })} testId="nodes-table"
          onOpen={(id) => set({ nodeDetail: id })} sort={sort} toneOf={(id) => (items.get(id)?.error ? "bad" : undefined)}
          onSort={(key) => setSort((before) => ({ key, descending: before.key === key ? !before.descending : false }))}
        />
        {loaded && ids.length === 0 && <div className={css.noMatch}>{t("nodes.noMatch", { filter })}</div>}
      </div>
      <WorkDock />
      <RemoveNodes kind={removing} ids={chosen} onClose={() => setRemoving(null)} />
    </div>
  );
}

/** The same array while its contents are the same, so that the grid's rows keep their memo. */
function useStable(next: string[]): string[] {
  const [kept, setKept] = useState(next);
  if (kept !== next && (kept.length !== next.length || kept.some((id, i) => id !== next[i]))) {
    setKept(next);
    return next;
  }
  return kept;
}
