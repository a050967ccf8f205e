const MIB = 1024 ** 2;

/** For tests: a process as `gpu.processes` tells it (agent/PROTOCOL.md). */
export function toldProcess(more: Record<string, unknown> = {}): Record<string, unknown> {
  const own = { state: "own", reason: null, wanted: null };
  return {
    pid: 4242, rank: 0, world_size: 2, communicator: "00000000deadbeef", job: "train-7b", error_code: null, age_ms: 100, operations: 12,
    gpu: { uuid: "GPU-0", multiprocessors: 132, memory_free_bytes: 100 * MIB, memory_total_bytes: 1000 * MIB }, async: { level: "stream", reason: "no adapter takes a doorbell of the GPU" },
    sm_budget: null, pipeline_depth: 4, dma_concurrency: 4, graphs: { lanes: 16, lanes_in_use: 2 }, paging: { page_bytes: null, prefetch_depth: 2 },
    pool: {
      capacity_bytes: 512 * MIB, held_bytes: 64 * MIB, used_bytes: 48 * MIB, staging_bytes: 16 * MIB, largest_free_bytes: 8 * MIB, buffers: 3, fragmentation_permille: 250, cache_ratio_permille: 100,
      ranges: [{ offset_bytes: 0, bytes: 16 * MIB, kind: "engine" }, { offset_bytes: 16 * MIB, bytes: 32 * MIB, kind: "buffer" }, { offset_bytes: 64 * MIB, bytes: 16 * MIB, kind: "free" }], ranges_omitted: 0,
    },
    defrag: { interval_ms: 500, epochs: 3, moved_bytes: 4 * MIB, released_bytes: 2 * MIB, blocked_by: null, last: { before_permille: 400, after_permille: 250, held_back_us: 900, age_ms: 5000 } },
    settings_current: true,
    settings: { hbm_defrag: { state: "applied", reason: null, wanted: true, in_force: true }, sm_budget: { state: "refused", reason: "out_of_range", wanted: 32, in_force: 8 }, pipeline_depth: { ...own, in_force: 4 } },
    ...more,
  };
}
