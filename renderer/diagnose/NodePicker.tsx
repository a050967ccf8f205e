import { Checkbox, TextInput } from "@mantine/core";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { byName } from "../nodes/filter.js";
import { PhaseState } from "../nodes/phase.js";
import { oneLine } from "../shared/printable.js";
import { useConsole, useItems } from "../store/console-hooks.js";
import css from "./diagnose.module.css";

/** Above this many, a filter helps to find one. */
const FILTER_ABOVE = 12;

export interface NodePickerProps {
  label: string;
  chosen: readonly string[];
  onChange(nodeIds: readonly string[]): void;
  /** At most this many; a further one takes the place of the first. */
  max?: number;
}

/** Nodes to choose from, in the order that they were chosen: for a pair that is from and to. */
export function NodePicker({ label, chosen, onChange, max }: NodePickerProps) {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const [filter, setFilter] = useState("");
  const all = useMemo(() => [...items.values()].sort((a, b) => byName(a.name, b.name)), [items]);
  const word = filter.trim().toLowerCase();
  const shown = word === "" ? all : all.filter((node) => node.name.toLowerCase().includes(word));
  const toggle = (id: string) => {
    if (chosen.includes(id)) onChange(chosen.filter((each) => each !== id));
    else onChange([...(max !== undefined && chosen.length >= max ? chosen.slice(chosen.length - max + 1) : chosen), id]);
  };
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
      <div className={css.pickerList}>
        {shown.map((node) => {
          const at = chosen.indexOf(node.id);
          return (
            <div key={node.id} className={css.pickerRow}>
              <Checkbox checked={at >= 0} label={oneLine(node.name, 60)} onChange={() => toggle(node.id)} />
              {max !== undefined && max > 1 && at >= 0 && <span className="dim">{at + 1}</span>}
              <span className="spacer" />
              <PhaseState phase={node.phase} />
            </div>
          );
        })}
      </div>
    </fieldset>
  );
}
