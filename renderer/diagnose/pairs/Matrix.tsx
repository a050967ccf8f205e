import { useMemo, useRef, type KeyboardEvent } from "react";
import { useTranslation } from "react-i18next";
import type { PairResult } from "../../../electron/contract/index.js";
import { gbps, us } from "../../shared/format.js";
import { heatOf, pairKey, valueOf, type Metric, type PairMatrix } from "./heat.js";
import css from "./pairs.module.css";

export interface MatrixProps {
  matrix: PairMatrix;
  metric: Metric;
  name(nodeId: string): string;
  selected: string | null;
  onSelect(key: string): void;
}

/** From rows to columns: a number in each cell, its distance from the best as colour; what failed says which half. */
export function Matrix({ matrix, metric, name, selected, onSelect }: MatrixProps) {
  const { t } = useTranslation();
  const grid = useRef<HTMLTableElement>(null);
  const { nodeIds, cells } = matrix;
  const heat = useMemo(() => heatOf([...cells.values()].flatMap((cell) => valueOf(cell, metric) ?? []), metric), [cells, metric]);
  const write = metric === "latency" ? us : gbps;
  const keys = nodeIds.map((from) => nodeIds.map((to) => pairKey(from, to)));
  const first = keys.flat().find((key) => cells.has(key)) ?? null;
  const current = selected !== null && cells.has(selected) ? selected : first;
  const move = (event: KeyboardEvent, row: number, column: number) => {
    const step = ({ ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] } as Record<string, [number, number]>)[event.key];
    if (!step) return;
    event.preventDefault();
    let [r, c] = [row + step[0], column + step[1]];
    // Over the diagonal and what was not sampled, to the next cell that says something.
    while (keys[r]?.[c] !== undefined && !cells.has(keys[r]![c]!)) [r, c] = [r + step[0], c + step[1]];
    const key = keys[r]?.[c];
    if (key === undefined) return;
    onSelect(key);
    grid.current?.querySelector<HTMLElement>(`[data-pair="${CSS.escape(key)}"]`)?.focus();
  };
  const words = (cell: PairResult): string => {
    if (cell.state === "ok") return write(valueOf(cell, metric) ?? NaN);
    if (cell.state !== "failed") return t(`pairStates.${cell.state}`);
    return cell.failed === "from" ? name(cell.from) : cell.failed === "to" ? name(cell.to) : cell.failed === "between" ? t("pairs.between") : t("pairStates.failed");
  };
  return (
    <table ref={grid} className={css.matrix} role="grid" aria-label={t("pairs.matrix")}>
      <thead>
        <tr>
          <th className={css.corner} aria-label={t("pairs.fromTo")}><span aria-hidden>{t("pairs.fromTo")}</span></th>
          {nodeIds.map((id) => <th key={id} scope="col" title={name(id)}>{name(id)}</th>)}
        </tr>
      </thead>
      <tbody>
        {nodeIds.map((from, row) => (
          <tr key={from}>
            <th scope="row" title={name(from)}>{name(from)}</th>
            {nodeIds.map((to, column) => {
              const key = pairKey(from, to);
              const cell = cells.get(key);
              if (from === to) return <td key={to} className={css.self} aria-hidden />;
              if (!cell) return <td key={to} className={css.unsampled} title={t("pairs.unsampled")}>·</td>;
              const value = valueOf(cell, metric);
              const distance = cell.state === "ok" && value !== null ? Math.round(heat(value) * 62) : 0;
              return (
                <td
                  key={to} data-pair={key} data-state={cell.state} tabIndex={key === current ? 0 : -1} aria-selected={key === selected} className={css.cell}
                  style={distance > 0 ? { background: `color-mix(in srgb, var(--c-warn) ${distance}%, var(--s-panel))` } : undefined}
                  onClick={() => onSelect(key)} onKeyDown={(event) => move(event, row, column)} onFocus={() => onSelect(key)}
                  aria-label={`${name(from)} → ${name(to)}: ${t(`pairStates.${cell.state}`)} ${words(cell)}`}
                >
                  {cell.state === "failed" && <span aria-hidden>✕ </span>}{words(cell)}
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
