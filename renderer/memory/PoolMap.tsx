import { useElementSize } from "@mantine/hooks";
import { useId, useMemo, useState, type KeyboardEvent } from "react";
import { useTranslation } from "react-i18next";
import type { TFunction } from "i18next";
import type { PoolMapView, PoolRange } from "../../electron/contract/index.js";
import { bytes } from "../shared/format.js";
import { axisOf, hex, type Axis } from "./strip.js";
import css from "./memory.module.css";

const HEIGHT = 34;
/** Thinner than this nothing can be seen or hit. */
const THINNEST = 2;
export const KINDS = ["buffer", "engine", "free"] as const satisfies readonly PoolRange["kind"][];

export const rangeText = (range: PoolRange, t: TFunction): string => t("memory.rangeText", { kind: t(`memory.kinds.${range.kind}`), bytes: bytes(range.bytes), from: hex(range.offset), to: hex(range.offset + range.bytes) });

/** Patterns as well as colours: kinds are told apart without seeing hues. */
function Patterns({ id }: { id: string }) {
  return (
    <defs>
      <pattern id={`${id}-engine`} width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" className={css.engine} /><circle cx="3" cy="3" r="1.2" className={css.dot} /></pattern>
      <pattern id={`${id}-free`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" className={css.free} /><line x1="0" y1="0" x2="0" y2="6" className={css.hatch} /></pattern>
    </defs>
  );
}
const fillOf = (kind: PoolRange["kind"], id: string): { fill?: string; className?: string } => (kind === "buffer" ? { className: css.buffer } : { fill: `url(#${id}-${kind})` });

interface StripProps {
  label: string;
  ranges: readonly PoolRange[];
  axis: Axis;
  width: number;
  patterns: string;
  onPoint(range: PoolRange | null): void;
}

/** The pool by address. One stop for the keyboard: arrows walk from range to range. */
function Strip({ label, ranges, axis, width, patterns, onPoint }: StripProps) {
  const { t } = useTranslation();
  const id = useId();
  const [active, setActive] = useState<number | null>(null);
  const go = (index: number | null): void => {
    setActive(index);
    onPoint(index === null ? null : (ranges[index] ?? null));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const last = ranges.length - 1;
    const to = ({ ArrowRight: Math.min(last, (active ?? -1) + 1), ArrowLeft: Math.max(0, (active ?? 1) - 1), Home: 0, End: last } as Record<string, number>)[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    go(to);
  };
  const current = active !== null && active < ranges.length ? active : null;
  return (
    <svg
      className={css.strip} data-testid="pool-strip" width={width} height={HEIGHT} role="listbox" aria-label={label} aria-activedescendant={current === null ? undefined : `${id}-${current}`} tabIndex={0}
      onKeyDown={onKeyDown} onFocus={() => { if (ranges.length > 0) go(current ?? 0); }} onBlur={() => go(null)} onMouseLeave={() => { if (active === null) onPoint(null); }}
    >
      {axis.breaks.map((each) => (
        <path key={each.x} className={css.break} d={`M ${each.x + each.width / 2 - 3} ${HEIGHT - 6} l 4 ${12 - HEIGHT} M ${each.x + each.width / 2} ${HEIGHT - 6} l 4 ${12 - HEIGHT}`}><title>{t("memory.gap", { bytes: bytes(each.bytes) })}</title></path>
      ))}
      {ranges.map((range, index) => {
        const x = axis.x(range.offset);
        return (
          <rect
            key={range.offset} id={`${id}-${index}`} role="option" aria-selected={index === current} aria-label={rangeText(range, t)} data-kind={range.kind}
            x={x} y={0.5} width={Math.max(THINNEST, axis.x(range.offset + range.bytes) - x)} height={HEIGHT - 1} {...fillOf(range.kind, patterns)} onMouseEnter={() => onPoint(range)}
          />
        );
      })}
      {current !== null && <rect className={css.active} x={Math.max(1, axis.x(ranges[current]!.offset))} y={1} width={Math.max(THINNEST + 2, axis.x(ranges[current]!.offset + ranges[current]!.bytes) - axis.x(ranges[current]!.offset))} height={HEIGHT - 2} />}
    </svg>
  );
}

export function Legend() {
  const { t } = useTranslation();
  const id = useId();
  return (
    <ul className={css.legend}>
      {KINDS.map((kind) => <li key={kind}><svg width="18" height="12" aria-hidden>{kind === "buffer" && <Patterns id={id} />}<rect width="18" height="12" {...fillOf(kind, id)} /></svg> {t(`memory.kinds.${kind}`)}</li>)}
      <li><svg width="18" height="12" aria-hidden><path className={css.break} d="M 6 11 l 3 -10 M 9 11 l 3 -10" /></svg> {t("memory.kinds.none")}</li>
    </ul>
  );
}

/** What lies where in the pool, now and as it was seen last before the last epoch, on one scale. */
export function PoolMap({ map, before }: { map: PoolMapView; before: string | null }) {
  const { t } = useTranslation();
  const { ref, width } = useElementSize();
  const id = useId();
  const [pointed, setPointed] = useState<PoolRange | null>(null);
  const shown = Math.max(200, width);
  const axis = useMemo(() => axisOf(map.before ? [map.ranges, map.before.ranges] : [map.ranges], shown), [map, shown]);
  const omitted = map.omitted + (map.before?.omitted ?? 0);
  return (
    <div className={css.map} ref={ref} data-testid="pool-map">
      <svg width="0" height="0" className={css.defs} aria-hidden><Patterns id={id} /></svg>
      <div className={css.stripHead}><span>{t("memory.mapNow")}</span><Legend /></div>
      {map.ranges.length === 0 ? <div className={css.noMap}>{t("memory.noRanges")}</div> : <Strip label={t("memory.mapNow")} ranges={map.ranges} axis={axis} width={shown} patterns={id} onPoint={setPointed} />}
      <div className={css.ticks} aria-hidden><span>{hex(0)}</span><span>{hex(axis.endBytes)}</span></div>
      {map.before && before !== null && (
        <>
          <div className={css.stripHead}><span>{before}</span></div>
          <Strip label={before} ranges={map.before.ranges} axis={axis} width={shown} patterns={id} onPoint={setPointed} />
        </>
      )}
      <div className={css.words} aria-live="polite" data-testid="range-words">{pointed ? rangeText(pointed, t) : omitted > 0 ? t("memory.rangesOmitted", { count: omitted }) : <span className="dim">{t("memory.mapHint")}</span>}</div>
    </div>
  );
}
