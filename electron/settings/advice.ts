import type { Advice, AdviceReason, NodeFacts, SettingName, SettingValue } from "../contract/index.js";

/** English of each reason; `{name}` is filled from the parameters. The page has its own texts under the same names. */
const REASONS: Readonly<Record<AdviceReason, string>> = {
  depth_short: "The network's one-way latency of {us} us is below 5 us: 4 chunks in flight hide it, more only hold memory.",
  depth_long: "The network's one-way latency of {us} us is above 20 us: 8 chunks in flight keep the link full.",
  depth_between: "The one-way latency of {us} us lies between 5 and 20 us: the runtime's own measurement (tune_pipeline_depth) decides better than a rule.",
  depth_unmeasured: "No latency to another node has been measured yet.",
  half_of_gpus: "Half of the {gpus} GPUs: as many copies at once as the copy engines and links take without waiting for each other.",
  no_gpu: "The node has no GPU, so nothing reads this setting.",
  async_on: "GPU and RDMA device {device} are both there: the GPU's stream can trigger transfers without waking the CPU.",
  async_no_rdma: "Without an RDMA device there is no doorbell that the GPU could ring.",
  defrag_on: "Compacts the communication buffers while collectives run, so that long jobs do not run out of contiguous memory.",
  defrag_interval: "Twice a second finds holes early and costs no measurable bandwidth.",
  paging_large: "Only collectives larger than the buffers need pages; the runtime turns them on by size when this is not set.",
  page_size: "128 MiB: large enough to fill the link, small enough that two pages fit beside the model.",
  prefetch: "One page moves while the next is prepared.",
  buffers_own: "The runtime sizes its buffers by the number of ranks and channels; set this only to cap memory.",
  cache_ratio: "A tenth of the GPU's memory bounds the pool, which takes memory only as buffers need it. A buffer size that is set counts before it.",
  sm_by_size: "The engine takes as few thread blocks as the size needs; set this only to keep more of the GPU free for the model.",
  lossy: "Sums travel as bf16 and lose 16 bits of mantissa: turn it on only when the training tolerates it.",
  encryption_cost: "Needed only where others can listen on the network between the nodes: with TLS everything goes over TCP, RDMA is left out. The node of rank 0 decides for a run.",
};

const MIB = 1024 ** 2;
const SHORT_US = 5;
const LONG_US = 20;

function advice(value: SettingValue, reason: AdviceReason, params: Record<string, string | number> = {}): Advice {
  const text = REASONS[reason].replace(/\{(\w+)\}/g, (whole, name: string) => (name in params ? String(params[name]) : whole));
  return { value, reason, text, params };
}

/**
 * What to set on a node.
 * @param facts what its daemon read; null = not known yet
 * @param oneWayUs half of the best measured round trip to another node, in us; null = none measured
 */
export function adviseNode(facts: NodeFacts | null, oneWayUs: number | null): Record<SettingName, Advice> {
  const gpus = facts?.gpus.length ?? 0;
  const rdma = facts?.rdma.find((port) => port.state === "active");
  const us = oneWayUs === null ? 0 : Math.round(oneWayUs * 10) / 10;
  return {
    pipeline_depth: oneWayUs === null ? advice(null, "depth_unmeasured")
      : oneWayUs < SHORT_US ? advice(4, "depth_short", { us }) : oneWayUs > LONG_US ? advice(8, "depth_long", { us }) : advice(null, "depth_between", { us }),
    dma_concurrency: gpus === 0 ? advice(null, "no_gpu") : advice(Math.min(8, Math.max(1, Math.floor(gpus / 2))), "half_of_gpus", { gpus }),
    async_gd: gpus === 0 ? advice(null, "no_gpu") : rdma ? advice(true, "async_on", { device: rdma.name }) : advice(false, "async_no_rdma"),
    hbm_defrag: gpus === 0 ? advice(null, "no_gpu") : advice(true, "defrag_on"),
    hbm_defrag_interval_ms: gpus === 0 ? advice(null, "no_gpu") : advice(500, "defrag_interval"),
    paging: advice(null, "paging_large"),
    page_bytes: advice(128 * MIB, "page_size"),
    prefetch_depth: advice(2, "prefetch"),
    buffer_bytes: advice(null, "buffers_own"),
    hbm_cache_ratio_permille: gpus === 0 ? advice(null, "no_gpu") : advice(100, "cache_ratio"),
    sm_budget: gpus === 0 ? advice(null, "no_gpu") : advice(null, "sm_by_size"),
    compression: advice(false, "lossy"),
    encryption: advice(false, "encryption_cost"),
  };
}
