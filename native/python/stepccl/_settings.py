# SPDX-License-Identifier: Apache-2.0
"""What configure() and its sisters set: for groups that are made later and, where it can be, for those that live."""
from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ._errors import INVALID_CONFIGURATION, StepcclError, bad_argument
from ._library import Config, CudaConfig

if TYPE_CHECKING:
    from ._communicator import Communicator

MIB = 1 << 20
# Bits of stepccl_config_t.transports: shared memory, TCP, RDMA, the DMA driver.
_ALL_TRANSPORTS = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4
_DMA_DRIVER = 1 << 4
_COMPRESSIONS = {None: 0, "none": 1, "bfloat16": 2, "float16": 3}
_MOST_MS = 0xFFFFFFFE


@dataclass(frozen=True)
class Configuration:
    """What new groups take. None = the library's own choice, or its environment variable."""

    buffer_size: int | None = None
    enable_dma: bool = True
    hbm_cache_ratio: float = 0.1
    sm_budget: int | None = None
    dma_concurrency: int | None = None
    graph_lanes: int | None = None
    chunk_size: int | None = None
    fusion_size: int | None = None
    compression: str | None = None
    pipeline_depth: int | None = None
    defrag_interval_ms: int = 0
    page_size: int = 0
    prefetch_depth: int = 2
    async_gd: bool | None = None
    job_name: str | None = None
    calibration_file: str | None = None
    high_priority_stream: bool = True

    def host(self, timeout_ms: int) -> Config:
        """For stepccl_comm_init_rank."""
        return Config(
            timeout_ms=timeout_ms,
            transports=0 if self.enable_dma else _ALL_TRANSPORTS & ~_DMA_DRIVER,
            chunk_bytes=self.chunk_size or 0,
            pipeline_depth=self.pipeline_depth or 0,
            job_name=self.job_name.encode() if self.job_name is not None else None,
            ib_gid_index=-1,
            fusion_bytes=self.fusion_size or 0,
            page_bytes=self.page_size,
            prefetch_depth=self.prefetch_depth if self.page_size else 0,
            compression=_COMPRESSIONS[self.compression],
            priority_levels=2,  # collectives, and messages beside them
        )

    def cuda(self, device: int, timeout_ms: int) -> CudaConfig:
        """For stepccl_cuda_attach."""
        return CudaConfig(
            device=device,
            timeout_ms=timeout_ms,
            sm_budget=self.sm_budget or 0,
            graph_lanes=self.graph_lanes or 0,
            dma_concurrency=self.dma_concurrency or 0,
            pipeline_depth=self.pipeline_depth or 0,
            async_gd={None: 0, False: 1, True: 2}[self.async_gd],
            pool_bytes=self.buffer_size or 0,
            hbm_cache_ratio=self.hbm_cache_ratio,
            calibration_file=self.calibration_file.encode() if self.calibration_file is not None else None,
        )


_current = Configuration()
_live: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


def current() -> Configuration:
    """What a group made now would take."""
    return _current


def remember(communicator: "Communicator") -> None:
    """From now on the communicator hears of new settings."""
    _live.add(communicator)


def live() -> list["Communicator"]:
    """Communicators that are open, in the order in which they were made: the same on all of their ranks."""
    return sorted((one for one in _live if one.open), key=lambda one: one.number)


def timeout_ms(seconds: float) -> int:
    """Milliseconds for the library: at least 1, at most what its 32 bits hold."""
    return int(min(max(seconds * 1000, 1), _MOST_MS))


def _positive(name: str, value: Any, least: int = 1, most: int = 1 << 62) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise bad_argument(f"{name} is {value!r}, and must be an integer from {least} to {most}")
    return value


def configure(
    *,
    buffer_size: int | None = None,
    enable_dma: bool | None = None,
    hbm_cache_ratio: float | None = None,
    sm_budget: int | None = None,
    dma_concurrency: int | None = None,
    graph_lanes: int | None = None,
    chunk_size: int | None = None,
    fusion_size: int | None = None,
    compression: str | None = None,
    async_gd: bool | None = None,
    job_name: str | None = None,
    calibration_file: str | None = None,
    high_priority_stream: bool | None = None,
) -> Configuration:
    """
    Sets what groups made from now on take; what is not given stays. Call it before init_process_group, with the same values
    on every rank. Returns all that is set.

    buffer_size: most bytes of GPU memory of a group's pool; hbm_cache_ratio (0 < r <= 1) says it as a share of the GPU's
    memory where buffer_size is not set. enable_dma=False keeps copy engines and the DMA driver out: kernels and sockets move
    the bytes. sm_budget: most thread blocks of one operation (1..32). dma_concurrency: copies to different peers at once.
    graph_lanes: CUDA graphs that may run at once (1..64). chunk_size: largest message between processes on host memory.
    fusion_size: asynchronous all_reduces on host memory are collected up to this many bytes. compression ("none", "bfloat16",
    "float16"): what fp32 sums on host memory travel as. async_gd: whether the stream starts transfers itself (otherwise
    STEPCCL_USE_ASYNC_GD decides). high_priority_stream: asynchronous operations run before compute kernels that wait.

    Raises StepcclError R101 for a value out of range; then nothing is set.
    """
    global _current
    given: dict[str, Any] = {name: value for name, value in locals().items() if value is not None}
    for name, most in (("buffer_size", 1 << 62), ("sm_budget", 32), ("dma_concurrency", 64), ("graph_lanes", 64), ("chunk_size", 1 << 31), ("fusion_size", 1 << 62)):
        if name in given:
            _positive(name, given[name], 1, most)
    if hbm_cache_ratio is not None and not (isinstance(hbm_cache_ratio, (int, float)) and 0 < hbm_cache_ratio <= 1):
        raise bad_argument(f"hbm_cache_ratio is {hbm_cache_ratio!r}, and must be above 0 and at most 1")
    if compression is not None and compression not in _COMPRESSIONS:
        raise bad_argument(f"compression is {compression!r}, and must be none, bfloat16 or float16")
    for name in ("enable_dma", "async_gd", "high_priority_stream"):
        if name in given and not isinstance(given[name], bool):
            raise bad_argument(f"{name} is {given[name]!r}, and must be True or False")
    for name in ("job_name", "calibration_file"):
        if name in given and not (isinstance(given[name], (str, os.PathLike)) and "\0" not in str(given[name])):
            raise bad_argument(f"{name} is {given[name]!r}, and must be text")
    if "calibration_file" in given:
        given["calibration_file"] = os.fspath(given["calibration_file"])
    _current = replace(_current, **given)
    return _current


def reset_configuration() -> Configuration:
    """Back to the defaults for groups made from now on; live groups keep what they have."""
    global _current
    _current = Configuration()
    return _current


def set_pipeline_depth(depth: int | str) -> dict[int, int] | None:
    """
    Chunks in flight, 1..64, for live groups and those made later. "auto" measures: 4 below 5 us of latency between the
    ranks, 8 above 20 us, in between the fastest of 4, 6 and 8; that is a collective call on every live group and returns
    {number of the group: depth}. All ranks set the same. Raises StepcclError.
    """
    global _current
    if depth == "auto":
        return {one.number: one.tune_pipeline_depth() for one in live()}
    _positive("depth", depth, 1, 64)
    assert isinstance(depth, int)
    for one in live():
        one.set_pipeline_depth(depth)
    _current = replace(_current, pipeline_depth=depth)
    return None


def set_sm_budget(blocks: int) -> None:
    """
    Most thread blocks (1..32) of one operation on CUDA tensors, for live groups and those made later; 0 = by size. Every rank
    sets the same between the same operations. Raises StepcclError.
    """
    global _current
    _positive("blocks", blocks, 0, 32)
    for one in live():
        one.set_sm_budget(blocks)
    _current = replace(_current, sm_budget=blocks or None)


def enable_hbm_defrag(interval: int = 500) -> None:
    """
    Compacts the GPU pools of live groups, and of those made later, every `interval` milliseconds while collectives run.
    0 stops it. Addresses and captured graphs stay valid. Every rank calls it. Raises StepcclError.

    While it is on, only collectives may touch tensors of stepccl.empty(): an epoch cannot see other kernels, which could meet an
    address without memory. Where others use them, call defrag_now() at a moment when the GPU has nothing to do (between steps,
    after torch.cuda.synchronize()). Ordinary tensors are not concerned.
    """
    global _current
    _positive("interval", interval, 0, 0xFFFFFFFF)
    for one in live():
        one.set_defrag(interval)
    _current = replace(_current, defrag_interval_ms=interval)


def disable_hbm_defrag() -> None:
    """enable_hbm_defrag(0)."""
    enable_hbm_defrag(0)


def enable_paging(page_size: int = 128 * MIB, prefetch_depth: int = 2) -> None:
    """
    Operations above page_size bytes (a multiple of 2 MiB) move page by page with prefetch_depth pages (1..15) in flight:
    tensors may be larger than the pool, and CUDA groups take pinned host tensors. For live groups and those made later;
    page_size 0 ends it. Every rank calls it with the same values while no operation runs. Raises StepcclError.
    """
    global _current
    _positive("page_size", page_size, 0)
    _positive("prefetch_depth", prefetch_depth, 1, 15)
    if page_size % (2 * MIB):
        raise bad_argument(f"page_size is {page_size}, and must be a multiple of {2 * MIB}")
    for one in live():
        one.set_paging(page_size, prefetch_depth)
    _current = replace(_current, page_size=page_size, prefetch_depth=prefetch_depth)


def disable_paging() -> None:
    """enable_paging(0)."""
    enable_paging(0)


def from_options(options: Any) -> Configuration:
    """The `pg_options` of init_process_group: None, a Configuration, or a dict of configure()'s arguments."""
    if options is None:
        return _current
    if isinstance(options, Configuration):
        return options
    if isinstance(options, dict):
        known = {field.name for field in fields(Configuration)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise StepcclError(INVALID_CONFIGURATION, f"pg_options has no {', '.join(map(str, unknown))}")
        return replace(_current, **options)
    raise StepcclError(INVALID_CONFIGURATION, f"pg_options is a {type(options).__name__}, and must be a stepccl.Configuration or a dict")
