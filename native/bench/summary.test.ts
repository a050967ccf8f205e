import { describe, expect, it } from 'vitest';
import { geometricMean, median, quantile, rowsOf, sizeText, summaryOf, tableOf, type Sample } from './summary.js';

const sample = (library: Sample['library'], transport: Sample['transport'], bytes: number, times_us: number[], variant = '', ranks = 2): Sample =>
  ({ library, transport, variant, ranks, repeat: 0, collective: 'all_reduce', bytes, times_us });

describe('figures of the benchmark', () => {
  it('takes medians, quartiles and geometric means', () => {
    expect(median([5, 1, 9])).toBe(5);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(quantile([0, 10], 0.25)).toBe(2.5);
    expect(geometricMean([0.5, 2])).toBeCloseTo(1, 12);
    expect(median([])).toBeNaN();
  });

  it('joins the repeats of a point and divides by the peer of the same transport', () => {
    const rows = rowsOf([
      sample('stepccl', 'shm', 8, [1, 2]), sample('stepccl', 'shm', 8, [3]), sample('openmpi', 'shm', 8, [4, 4, 4]),
      sample('stepccl', 'tcp', 8, [30]), sample('openmpi', 'tcp', 8, [20]), sample('gloo', 'tcp', 8, [300]),
    ]);
    expect(rows.map((row) => [row.transport, row.stepccl_us, row.others.openmpi?.ratio])).toEqual([['shm', 2, 0.5], ['tcp', 30, 1.5]]);
    expect(rows[1]?.others.gloo?.ratio).toBe(0.1);
    expect(rows[0]?.others.gloo).toBeUndefined();
  });

  it('sums up with the worst point named, and only what was measured', () => {
    const summary = summaryOf(rowsOf([
      sample('stepccl', 'shm', 8, [1]), sample('openmpi', 'shm', 8, [4]),
      sample('stepccl', 'shm', 2048, [4], '', 4), sample('openmpi', 'shm', 2048, [1], '', 4),
    ]));
    expect(summary).toEqual({ vs_openmpi_shm: 1, vs_openmpi_shm_worst: 4, vs_openmpi_shm_worst_at: 'all_reduce, 4 ranks, 2 KiB' });
  });

  it('gives what telemetry and TLS cost, as a part of the time without', () => {
    const summary = summaryOf(rowsOf([
      sample('stepccl', 'shm', 8, [1.02]), sample('stepccl', 'shm', 8, [1], 'telemetry off'),
      sample('stepccl', 'tcp', 8, [10]), sample('stepccl', 'tcp', 8, [12], 'tls'),
    ]));
    expect(summary).toEqual({ telemetry_cost: 0.02, tls_cost: 0.2 });
  });

  it('prints one line per point', () => {
    const table = tableOf(rowsOf([sample('stepccl', 'shm', 64 << 20, [20_000]), sample('openmpi', 'shm', 64 << 20, [40_000])]));
    expect(table).toContain('all_reduce, shm, 2 ranks');
    expect(table).toMatch(/64 MiB\s+20\.0 ms\s+0%\s+40\.0 ms \+-0%\s+0\.50/);
    expect(sizeText(8)).toBe('8 B');
    expect(sizeText(32 << 10)).toBe('32 KiB');
  });
});
