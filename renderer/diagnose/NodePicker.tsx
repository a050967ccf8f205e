import { Checkbox, TextInput } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useId, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { useTranslation } from "react-i18next";
import { byName } from "../nodes/filter.js";
import { PhaseState } from "../nodes/phase.js";
import { oneLine } from "../shared/printable.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import css from "./diagnose.module.css";

/** Above this many, a filter helps to find one. */
const FILTER_ABOVE = 12;
/** Above this many, only the rows in view are in the document. */
const VIRTUAL_ABOVE = 100;
const ROW = 26;

export interface NodePickerProps {
  label: string;
  chosen: readonly string[];
  onChange(nodeIds: readonly string[]): void;
  /** At most this many; a further one takes the place of the first. */
  max?: number;
}

/**
 * Nodes to choose from, in the order that they were chosen: for a pair that is from and to. One stop for Tab, however many there are: arrows,
 * Home and End move, Space chooses.
 */
export function NodePicker({ label, chosen, onChange, max }: NodePickerProps) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const [filter, setFilter] = useState("");
  const [active, setActive] = useState<string | null>(null);
  const list = useRef<HTMLDivElement>(null);
  const baseId = useId();
  const all = useMemo(() => [...items.values()].sort((a, b) => byName(a.name, b.name)), [items]);
  const word = filter.trim().toLowerCase();
  const shown = useMemo(() => (word === "" ? all : all.filter((node) => node.name.toLowerCase().includes(word))), [all, word]);
  const places = useMemo(() => new Map(chosen.map((id, index) => [id, index])), [chosen]);
  const virtual = shown.length > VIRTUAL_ABOVE;
  const virtualizer = useVirtualizer({ count: shown.length, getScrollElement: () => list.current, estimateSize: () => ROW, overscan: 12, enabled: virtual, initialRect: { width: 260, height: 300 } });
  const toggle = (id: string) => {
    if (places.has(id)) onChange(chosen.filter((each) => each !== id));
    else onChange([...(max !== undefined && chosen.length >= max ? chosen.slice(chosen.length - max + 1) : chosen), id]);
  };
  const boxId = (id: string): string => `${baseId}-${id}`;
  const at = Math.max(0, shown.findIndex((node) => node.id === active));
  const move = (event: KeyboardEvent) => {
    const to = ({ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1, PageDown: at + 10, PageUp: at - 10 } as Record<string, number>)[event.key];
    if (to === undefined || shown.length === 0) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(shown.length - 1, to));
    const { id } = shown[index]!;
    setActive(id);
    if (virtual) virtualizer.scrollToIndex(index);
    // A row that comes into view is in the document only after this.
    const focus = () => document.getElementById(boxId(id))?.focus();
    if (document.getElementById(boxId(id))) focus();
    else requestAnimationFrame(focus);
  };
  const rows = virtual ? virtualizer.getVirtualItems().map((item) => ({ node: shown[item.index]!, index: item.index })) : shown.map((node, index) => ({ node, index }));
  return (
    <fieldset className={css.picker}>
      <legend>{label}</legend>
      {all.length > FILTER_ABOVE && <TextInput placeholder={t("nodes.filter")} aria-label={t("nodes.filter")} value={filter} onChange={(event) => setFilter(event.currentTarget.value)} />}
      {max === undefined && all.length > 1 && (
        <Checkbox
          label={t("diagnose.allNodes", { count: all.length })} checked={chosen.length === all.length} indeterminate={chosen.length > 0 && chosen.length < all.length}
          onChange={() => onChange(chosen.length === all.length ? [] : all.map((node) => node.id))}
        />
      )}
      {shown.length === 0 && word !== "" && <span className="dim">{t("diagnose.noMatch")}</span>}
      <div className={css.pickerList} ref={list} role="group" aria-label={label} onKeyDown={move}>
        <div style={virtual ? { position: "relative", height: virtualizer.getTotalSize() } : undefined}>
          {rows.map(({ node, index }) => {
            const place = places.get(node.id);
            return (
              <div key={node.id} className={css.pickerRow} style={virtual ? { position: "absolute", top: index * ROW, left: 0, right: 0 } : undefined}>
                <Checkbox
                  id={boxId(node.id)} classNames={{ root: css.pickerName!, labelWrapper: css.pickerName!, label: css.pickerLabel! }} tabIndex={index === at ? 0 : -1} title={oneLine(node.name)}
                  checked={place !== undefined} label={oneLine(node.name, 60)} onFocus={() => setActive(node.id)} onChange={() => toggle(node.id)}
                />
                {max !== undefined && max > 1 && place !== undefined && <span className="dim">{place + 1}</span>}
                <span className={css.pickerPhase}><PhaseState phase={node.phase} /></span>
              </div>
            );
          })}
        </div>
      </div>
    </fieldset>
  );
}
