/** From samples to medians, ratios and the table. Pure: times in microseconds in, numbers and text out. */

export type Transport = 'shm' | 'tcp';

/** One run of one contestant at one size; each time is the mean of a block of iterations on the slowest rank. */
export interface Sample {
  library: 'stepccl' | 'openmpi' | 'gloo';
  transport: Transport;
  variant: string;
  ranks: number;
  repeat: number;
  collective: string;
  bytes: number;
  times_us: number[];
}

/** One point of the comparison. A ratio below 1 means that StepCCL takes less time. */
export interface Row {
  collective: string;
  ranks: number;
  transport: Transport;
  bytes: number;
  stepccl_us: number;
  /** Half the distance between the quartiles, relative to the median: the noise of this point. */
  stepccl_spread: number;
  others: Record<string, { us: number; spread: number; ratio: number }>;
}

export type Summary = Record<string, number | string>;

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Linear interpolation between order statistics; NaN where there is no value. */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const low = sorted[Math.floor(at)] ?? Number.NaN;
  const high = sorted[Math.ceil(at)] ?? Number.NaN;
  return low + (high - low) * (at - Math.floor(at));
}

export function geometricMean(values: readonly number[]): number {
  if (values.length === 0) return Number.NaN;
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
}

const nameOf = (sample: Sample): string => (sample.variant === '' ? sample.library : `${sample.library} ${sample.variant}`);
const spreadOf = (times: readonly number[]): number => (quantile(times, 0.75) - quantile(times, 0.25)) / 2 / median(times);

/** Medians over all repeats and blocks, and each contestant beside StepCCL as users run it. */
export function rowsOf(samples: readonly Sample[]): Row[] {
  const points = new Map<string, { first: Sample; times: Map<string, number[]> }>();
  for (const sample of samples) {
    const key = `${sample.collective} ${sample.ranks} ${sample.transport} ${sample.bytes}`;
    const point = points.get(key) ?? { first: sample, times: new Map<string, number[]>() };
    points.set(key, point);
    point.times.set(nameOf(sample), [...(point.times.get(nameOf(sample)) ?? []), ...sample.times_us]);
  }
  const rows: Row[] = [];
  for (const { first, times } of points.values()) {
    const own = times.get('stepccl');
    if (own === undefined) continue;
    const ownMedian = median(own);
    const others: Row['others'] = {};
    for (const [name, values] of times) {
      if (name !== 'stepccl') others[name] = { us: median(values), spread: spreadOf(values), ratio: ownMedian / median(values) };
    }
    rows.push({ collective: first.collective, ranks: first.ranks, transport: first.transport, bytes: first.bytes, stepccl_us: ownMedian, stepccl_spread: spreadOf(own), others });
  }
  const order = (row: Row): string => `${row.collective} ${row.transport} ${String(row.ranks).padStart(4)} ${String(row.bytes).padStart(16)}`;
  return rows.sort((a, b) => order(a).localeCompare(order(b)));
}

/** Against one contestant over one transport: the geometric mean of the ratios, and the worst with its place. */
function against(rows: readonly Row[], name: string, transport: Transport, key: string): Summary {
  const points = rows.flatMap((row) => {
    const other = row.transport === transport ? row.others[name] : undefined;
    return other ? [{ row, ratio: other.ratio }] : [];
  });
  const worst = points.reduce<(typeof points)[number] | undefined>((most, point) => (most === undefined || point.ratio > most.ratio ? point : most), undefined);
  if (worst === undefined) return {};
  return {
    [key]: round(geometricMean(points.map((point) => point.ratio))),
    [`${key}_worst`]: round(worst.ratio),
    [`${key}_worst_at`]: `${worst.row.collective}, ${worst.row.ranks} ranks, ${sizeText(worst.row.bytes)}`,
  };
}

const round = (value: number): number => Math.round(value * 1000) / 1000;

/**
 * `vs_openmpi_shm`, `vs_openmpi_tcp`, `vs_gloo_tcp`: geometric means of StepCCL's time over the peer's, over all collectives, ranks and
 * sizes; with `_worst` and `_worst_at`. `telemetry_cost` and `tls_cost`: geometric mean of the time with it over the time without, minus 1.
 */
export function summaryOf(rows: readonly Row[]): Summary {
  const summary: Summary = {
    ...against(rows, 'openmpi', 'shm', 'vs_openmpi_shm'),
    ...against(rows, 'openmpi', 'tcp', 'vs_openmpi_tcp'),
    ...against(rows, 'gloo', 'tcp', 'vs_gloo_tcp'),
  };
  const cost = (name: string, turn: (ratio: number) => number): number => geometricMean(rows.flatMap((row) => (row.others[name] ? [turn(row.others[name].ratio)] : []))) - 1;
  const telemetry = cost('stepccl telemetry off', (ratio) => ratio);
  if (Number.isFinite(telemetry)) summary.telemetry_cost = round(telemetry);
  const tls = cost('stepccl tls', (ratio) => 1 / ratio);
  if (Number.isFinite(tls)) summary.tls_cost = round(tls);
  return summary;
}

export function sizeText(bytes: number): string {
  if (bytes >= 1 << 20 && bytes % (1 << 20) === 0) return `${bytes >> 20} MiB`;
  if (bytes >= 1 << 10 && bytes % (1 << 10) === 0) return `${bytes >> 10} KiB`;
  return `${bytes} B`;
}

const timeText = (us: number): string => (us >= 10_000 ? `${(us / 1000).toFixed(1)} ms` : `${us.toFixed(us < 100 ? 2 : 0)} us`);
const percent = (part: number): string => `${(part * 100).toFixed(0)}%`;

/** The table that a person reads: one line per point, each other contestant with its time and the ratio. */
export function tableOf(rows: readonly Row[]): string {
  const lines: string[] = [];
  let group = '';
  for (const row of rows) {
    const names = Object.keys(row.others);
    const title = `${row.collective}, ${row.transport}, ${row.ranks} ranks`;
    if (title !== group) {
      group = title;
      lines.push('', title, ['      size', '     stepccl', ' +-', ...names.map((name) => `${name.padStart(22)}  ratio`)].join(' '));
    }
    const cells = names.map((name) => {
      const other = row.others[name];
      return other ? `${`${timeText(other.us)} +-${percent(other.spread)}`.padStart(22)} ${other.ratio.toFixed(2).padStart(6)}` : '';
    });
    lines.push([sizeText(row.bytes).padStart(10), timeText(row.stepccl_us).padStart(12), percent(row.stepccl_spread).padStart(3), ...cells].join(' '));
  }
  return lines.join('\n');
}
