import { useMediaQuery } from "@mantine/hooks";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent, type ReactNode } from "react";
import IconChevronDown from "@tabler/icons-react/icons/IconChevronDown";
import IconChevronUp from "@tabler/icons-react/icons/IconChevronUp";
import css from "./shared.module.css";

export interface Column {
  key: string;
  header: ReactNode;
  /** CSS grid track, such as "120px" or "minmax(140px, 1fr)". */
  width: string;
  align?: "end";
  title?: string;
  sortable?: boolean;
  /** Gives way in a narrow window: what it says can be read elsewhere too. */
  wide?: boolean;
  /** One cell; it subscribes to what it shows by the row's id. */
  cell(id: string): ReactNode;
}
export interface Sort { key: string; descending: boolean }

export interface DataGridProps {
  label: string;
  columns: readonly Column[];
  ids: readonly string[];
  rowHeight?: number;
  selected?: ReadonlySet<string>;
  onSelect?: (ids: ReadonlySet<string>) => void;
  /** Enter or double click. */
  onOpen?: (id: string) => void;
  sort?: Sort | null;
  onSort?: (key: string) => void;
  toneOf?: (id: string) => "bad" | undefined;
  /** One row at a time, chosen by moving: the map's twin. */
  follow?: boolean;
  testId?: string;
}

const ROW_HEIGHT = 28;
/** Height in px of a grid that shows so many rows under its head without scrolling. */
export const gridHeight = (rows: number): number => 31 + rows * ROW_HEIGHT;

/** As in the style sheets: the navigation shows icons alone and columns that are `wide` give way. */
const NARROW = "(max-width: 1180px)";

/** Below this, every row is in the document: find-in-page and screen readers see all of it. */
const VIRTUAL_ABOVE = 100;

/**
 * A dense grid for the keyboard: arrows, Home, End, Page move; Space chooses; Shift extends; Ctrl+A takes all; Escape none; Enter opens.
 * Rows are virtual above 100. Each row is memoised on its id: data changes render cells, not the grid.
 */
export function DataGrid(props: DataGridProps) {
  const { ids, rowHeight = ROW_HEIGHT, selected, onSelect, onOpen, sort, onSort, follow = false } = props;
  const narrow = useMediaQuery(NARROW) ?? false;
  const columns = useMemo(() => (narrow ? props.columns.filter((column) => !column.wide) : props.columns), [props.columns, narrow]);
  const scroller = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState<string | null>(null);
  const anchor = useRef<string | null>(null);
  const virtual = ids.length > VIRTUAL_ABOVE;
  const virtualizer = useVirtualizer({
    count: ids.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 12, enabled: virtual,
    initialRect: { width: 1000, height: 600 },
  });
  const template = columns.map((column) => column.width).join(" ");
  const minWidth = columns.reduce((sum, column) => sum + (Number(/(\d+)px/.exec(column.width)?.[1]) || 0), 0);
  const state = useRef({ ids, selected, onSelect, onOpen, active });
  state.current = { ids, selected, onSelect, onOpen, active };

  const reveal = useCallback((index: number) => {
    const element = scroller.current;
    if (!element) return;
    const top = index * rowHeight;
    const view = element.clientHeight - 30;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + view) element.scrollTop = top + rowHeight - view;
  }, [rowHeight]);

  // The twin's selection may come from the map: keep it in view.
  const only = follow && selected?.size === 1 ? [...selected][0]! : null;
  useEffect(() => {
    if (only === null) return;
    const index = state.current.ids.indexOf(only);
    if (index >= 0) reveal(index);
    setActive(only);
  }, [only, reveal]);

  const choose = useCallback((id: string, mode: "one" | "toggle" | "range") => {
    const { ids: all, selected: now, onSelect: tell } = state.current;
    setActive(id);
    if (!tell) return;
    if (mode === "range" && anchor.current !== null) {
      const [a, b] = [all.indexOf(anchor.current), all.indexOf(id)];
      if (a >= 0 && b >= 0) {
        tell(new Set(all.slice(Math.min(a, b), Math.max(a, b) + 1)));
        return;
      }
    }
    anchor.current = id;
    if (mode === "toggle") {
      const next = new Set(now);
      if (!next.delete(id)) next.add(id);
      tell(next);
      return;
    }
    tell(new Set([id]));
  }, []);

  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.target !== event.currentTarget || ids.length === 0) return;
    const at = active === null ? -1 : ids.indexOf(active);
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 300) / rowHeight) - 2);
    const to = (index: number) => {
      const clamped = Math.max(0, Math.min(ids.length - 1, index));
      const id = ids[clamped]!;
      event.preventDefault();
      reveal(clamped);
      if (event.shiftKey && !follow) {
        anchor.current ??= active ?? id;
        choose(id, "range");
      } else if (follow) choose(id, "one");
      else setActive(id);
    };
    switch (event.key) {
      case "ArrowDown": return to(at + 1);
      case "ArrowUp": return to(at < 0 ? 0 : at - 1);
      case "PageDown": return to(at + page);
      case "PageUp": return to(at - page);
      case "Home": return to(0);
      case "End": return to(ids.length - 1);
      case " ":
        event.preventDefault();
        if (active !== null) choose(active, "toggle");
        return;
      case "Enter":
        if (active !== null) onOpen?.(active);
        return;
      case "Escape":
        if (selected && selected.size > 0) onSelect?.(new Set());
        return;
      case "a":
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          if (!follow) onSelect?.(new Set(ids));
        }
    }
  };

  const onRowClick = useCallback((id: string, event: MouseEvent) => {
    choose(id, event.shiftKey && !follow ? "range" : (event.ctrlKey || event.metaKey) && !follow ? "toggle" : "one");
  }, [choose, follow]);
  const onRowOpen = useCallback((id: string) => state.current.onOpen?.(id), []);

  const rows = virtual ? virtualizer.getVirtualItems().map((item) => ({ id: ids[item.index]!, index: item.index })) : ids.map((id, index) => ({ id, index }));
  return (
    <div
      ref={scroller} className={css.grid} role="grid" aria-label={props.label} aria-rowcount={ids.length + 1} aria-multiselectable={onSelect && !follow ? true : undefined}
      aria-activedescendant={active !== null ? rowId(props.label, active) : undefined} tabIndex={0} onKeyDown={onKeyDown} data-testid={props.testId}
    >
      <div className={css.gridHead} role="row" aria-rowindex={1} style={{ gridTemplateColumns: template, minWidth }}>
        {columns.map((column) => (
          <div
            key={column.key} role="columnheader" className={column.align === "end" ? css.alignEnd : undefined} title={column.title}
            aria-sort={sort?.key === column.key ? (sort.descending ? "descending" : "ascending") : undefined}
          >
            {column.sortable && onSort ? (
              <button type="button" onClick={() => onSort(column.key)}>
                {column.header}
                {sort?.key === column.key && (sort.descending ? <IconChevronDown size={12} aria-hidden /> : <IconChevronUp size={12} aria-hidden />)}
              </button>
            ) : (
              column.header
            )}
          </div>
        ))}
      </div>
      <div className={css.gridBody} role="rowgroup" style={{ minWidth, ...(virtual ? { height: virtualizer.getTotalSize() } : {}) }}>
        {rows.map(({ id, index }) => (
          <Row
            key={id} id={id} elementId={rowId(props.label, id)} index={index} top={virtual ? index * rowHeight : null} height={rowHeight} template={template} columns={columns}
            selected={selected?.has(id) ?? false} selectable={onSelect !== undefined} active={id === active} tone={props.toneOf?.(id)} onClick={onRowClick} onOpen={onRowOpen}
          />
        ))}
      </div>
    </div>
  );
}

const rowId = (label: string, id: string): string => `row-${label}-${id}`.replace(/\s/g, "_");

interface RowProps {
  id: string;
  elementId: string;
  index: number;
  top: number | null;
  height: number;
  template: string;
  columns: readonly Column[];
  selected: boolean;
  selectable: boolean;
  active: boolean;
  tone: "bad" | undefined;
  onClick(id: string, event: MouseEvent): void;
  onOpen(id: string): void;
}

const Row = memo(function Row(props: RowProps) {
  const { id, index, top, height, template, columns, onClick, onOpen } = props;
  return (
    <div
      id={props.elementId} className={css.gridRow} role="row" aria-rowindex={index + 2} aria-selected={props.selectable ? props.selected : undefined} data-active={props.active || undefined}
      data-tone={props.tone} data-row-id={id} onClick={(event) => onClick(id, event)} onDoubleClick={() => onOpen(id)}
      style={{ gridTemplateColumns: template, height, ...(top === null ? {} : { position: "absolute", top }) }}
    >
      {columns.map((column) => (
        <div key={column.key} role="gridcell" className={column.align === "end" ? css.alignEnd : undefined}>{column.cell(id)}</div>
      ))}
    </div>
  );
});
