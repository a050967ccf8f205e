# SPDX-License-Identifier: Apache-2.0
"""libstepccl by ctypes: structs and functions of stepccl/stepccl.h and stepccl/cuda.h, under their C names."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

# The struct layouts below are those of this major version.
ABI_MAJOR = 0
SONAME = f"libstepccl.so.{ABI_MAJOR}"


class _Sized(ctypes.Structure):
    """A struct that begins with its own size, as the C interface wants it."""

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **values)


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", c_uint8 * 128)]


class Config(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("timeout_ms", c_uint32),
        ("transports", c_uint32),
        ("algorithm", c_uint32),
        ("chunk_bytes", c_uint32),
        ("pipeline_depth", c_uint32),
        ("telemetry_dir", c_char_p),
        ("job_name", c_char_p),
        ("net_interface", c_char_p),
        ("ib_hca", c_char_p),
        ("ib_gid_index", c_int32),
        ("heartbeat_timeout_ms", c_uint32),
        ("calibration_file", c_char_p),
        ("fusion_bytes", c_uint64),
        ("page_bytes", c_uint64),
        ("prefetch_depth", c_uint32),
        ("compression", c_uint32),
        ("priority_levels", c_uint32),
        ("bandwidth_MBps", c_uint32),
    ]


class Call(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("timeout_ms", c_uint32),
        ("algorithm", c_uint32),
        ("reserved", c_uint32),
        ("request", c_void_p),
        ("stream", c_void_p),
        ("priority", c_uint32),
        ("compression", c_uint32),
        ("page_bytes", c_uint64),
        ("prefetch_depth", c_uint32),
        ("reserved1", c_uint32),
    ]


class CommInfo(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("transport", c_uint32),
        ("comm_id", c_uint64),
        ("operations", c_uint64),
        ("state", c_uint32),
        ("last_algorithm", c_uint32),
        ("telemetry", c_uint32),
        ("pipeline_depth", c_uint32),
        ("fused_operations", c_uint64),
        ("page_bytes", c_uint64),
        ("held_bytes", c_uint64),
        ("last_compression_error", c_double),
        ("encryption", c_uint32),
        ("sockets", c_uint32),
    ]


class ErrorInfo(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("code", c_uint32),
        ("rank", c_int32),
        ("peer", c_int32),
        ("phase", c_uint32),
        ("transport", c_uint32),
        ("text", c_char * 768),
    ]


class CudaConfig(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("device", c_int32),
        ("timeout_ms", c_uint32),
        ("sm_budget", c_uint32),
        ("graph_lanes", c_uint32),
        ("dma_concurrency", c_uint32),
        ("pipeline_depth", c_uint32),
        ("async_gd", c_uint32),
        ("pool_bytes", c_uint64),
        ("hbm_cache_ratio", c_double),
        ("calibration_file", c_char_p),
    ]


class CudaInfo(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("device", c_int32),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("async_level", c_uint32),
        ("sm_budget", c_uint32),
        ("multiprocessors", c_uint32),
        ("graph_lanes", c_uint32),
        ("lanes_in_use", c_uint32),
        ("shared_lanes", c_uint32),
        ("handle_type", c_uint32),
        ("last_path", c_uint32),
        ("last_blocks", c_uint32),
        ("defrag_interval_ms", c_uint32),
        ("operations", c_uint64),
        ("page_bytes", c_uint64),
        ("prefetch_depth", c_uint32),
        ("pipeline_depth", c_uint32),
        ("gpu_uuid", c_char * 48),
        ("async_reason", c_char * 128),
    ]


class CudaPoolInfo(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("fragmentation_permille", c_uint32),
        ("capacity_bytes", c_uint64),
        ("held_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("staging_bytes", c_uint64),
        ("largest_free_bytes", c_uint64),
        ("buffers", c_uint64),
        ("defrag_epochs", c_uint64),
        ("defrag_moved_bytes", c_uint64),
        ("defrag_released_bytes", c_uint64),
        ("last_fragmentation_before_permille", c_uint32),
        ("last_fragmentation_after_permille", c_uint32),
        ("last_epoch_us", c_uint64),
        ("device_free_bytes", c_uint64),
        ("device_total_bytes", c_uint64),
        ("device_used_by_engine_bytes", c_uint64),
    ]


class CudaCall(_Sized):
    _fields_ = [("size", c_uint32), ("path", c_uint32), ("sm_budget", c_uint32), ("reserved", c_uint32), ("ticket", c_uint64)]


class CudaReceipt(_Sized):
    _fields_ = [
        ("size", c_uint32),
        ("path", c_uint32),
        ("blocks", c_uint32),
        ("copies", c_uint32),
        ("runs", c_uint64),
        ("sm_ns", c_uint64),
        ("link_bytes", c_uint64),
    ]


_BUFFERS = [c_void_p, c_void_p, c_size_t, c_int]  # send, recv, count, datatype
_V = [c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_int]
_OPERATIONS: dict[str, list] = {
    "all_reduce": _BUFFERS + [c_int],
    "all_gather": _BUFFERS,
    "reduce_scatter": _BUFFERS + [c_int],
    "broadcast": _BUFFERS + [c_uint32],
    "reduce": _BUFFERS + [c_int, c_uint32],
    "scatter": _BUFFERS + [c_uint32],
    "gather": _BUFFERS + [c_uint32],
    "all_to_all": _BUFFERS,
    "all_to_all_v": _V,
    "send": [c_void_p, c_size_t, c_int, c_uint32],
    "recv": [c_void_p, c_size_t, c_int, c_uint32],
    "barrier": [],
}
_FUNCTIONS: dict[str, list] = {
    "unique_id_create": [c_char_p, POINTER(UniqueId)],
    "unique_id_discard": [POINTER(UniqueId)],
    "comm_init_rank": [POINTER(c_void_p), c_uint32, POINTER(UniqueId), c_uint32, POINTER(Config)],
    "comm_destroy": [c_void_p],
    "comm_abort": [c_void_p],
    "comm_query": [c_void_p, POINTER(CommInfo)],
    "comm_set_pipeline_depth": [c_void_p, c_uint32],
    "comm_tune_pipeline_depth": [c_void_p, POINTER(c_uint32), POINTER(c_double)],
    "comm_enable_paging": [c_void_p, c_uint64, c_uint32],
    "comm_explain": [c_void_p, c_int, c_uint64, POINTER(Call), POINTER(c_int), c_char_p, c_size_t],
    "last_error": [c_void_p, POINTER(ErrorInfo)],
    "group_start": [],
    "group_end": [],
    "request_wait": [c_void_p, c_uint32],
    "request_test": [c_void_p, POINTER(c_int)],
    "request_wait_page": [c_void_p, c_uint64, c_uint32],
    "request_free": [c_void_p],
}
_CUDA_FUNCTIONS: dict[str, list] = {
    "attach": [POINTER(c_void_p), c_void_p, POINTER(CudaConfig)],
    "detach": [c_void_p],
    "abort": [c_void_p],
    "status": [c_void_p],
    "last_error": [c_void_p, POINTER(ErrorInfo)],
    "query": [c_void_p, POINTER(CudaInfo)],
    "mem_alloc": [c_void_p, POINTER(c_void_p), c_size_t],
    "mem_free": [c_void_p, c_void_p],
    "register": [c_void_p, c_void_p, c_size_t],
    "deregister": [c_void_p, c_void_p],
    "pool_query": [c_void_p, POINTER(CudaPoolInfo)],
    "receipt": [c_void_p, c_uint64, POINTER(CudaReceipt)],
    "wait_page": [c_void_p, c_uint64, c_uint64, c_void_p],
    "defrag": [c_void_p, c_uint32],
    "defrag_now": [c_void_p, POINTER(c_uint64)],
    "paging": [c_void_p, c_uint64, c_uint32],
    "set_pipeline_depth": [c_void_p, c_uint32],
    "set_sm_budget": [c_void_p, c_uint32],
    "group_start": [c_void_p],
    "group_end": [c_void_p],
}
_TEXTS = ("result_code", "result_name", "result_help")


def _candidates() -> list[str]:
    """Where the library may be, the wanted place first."""
    chosen = os.environ.get("STEPCCL_LIBRARY")
    if chosen:
        return [chosen]
    beside = Path(__file__).resolve().parent / "lib" / SONAME
    return ([str(beside)] if beside.exists() else []) + [SONAME]


class Library:
    """The loaded library; functions are attributes without their prefix (lib.comm_destroy, lib.cuda_attach), operations stand in two tables."""

    def __init__(self) -> None:
        problems = []
        for name in _candidates():
            try:
                self.handle = ctypes.CDLL(name)
                self.path = name
                break
            except OSError as problem:
                problems.append(str(problem))
        else:
            raise ImportError(
                f"libstepccl can't be loaded ({'; '.join(problems)}). Build it (cmake -S native ...) and set STEPCCL_LIBRARY to the "
                f"path of {SONAME}, or put it where the loader looks."
            )
        self.version = self._text("version", [])().decode()
        if int(self.version.split(".")[0]) != ABI_MAJOR:
            raise ImportError(f"{self.path} is libstepccl {self.version}, and this package speaks to {ABI_MAJOR}.x: install the one that belongs to it.")
        for name in _TEXTS:
            setattr(self, name, self._text(name, [c_int]))
        for name, arguments in _FUNCTIONS.items():
            setattr(self, name, self._function("stepccl_" + name, arguments))
        self.operations = {name: self._function("stepccl_" + name, [c_void_p, *arguments, POINTER(Call)]) for name, arguments in _OPERATIONS.items()}
        # An older or smaller build may lack the GPU part: then there is no attribute cuda_*.
        self.has_cuda = hasattr(self.handle, "stepccl_cuda_attach")
        if self.has_cuda:
            for name, arguments in _CUDA_FUNCTIONS.items():
                setattr(self, "cuda_" + name, self._function("stepccl_cuda_" + name, arguments))
            self.cuda_operations = {
                name: self._function("stepccl_cuda_" + name, [c_void_p, *arguments, c_void_p, POINTER(CudaCall)]) for name, arguments in _OPERATIONS.items()
            }

    def _function(self, name: str, arguments: list) -> Any:
        function = getattr(self.handle, name)
        function.argtypes, function.restype = arguments, c_int
        return function

    def _text(self, name: str, arguments: list) -> Any:
        function = getattr(self.handle, "stepccl_" + name)
        function.argtypes, function.restype = arguments, c_char_p
        return function

    def __getattr__(self, name: str) -> Any:  # reached only for what is not there
        raise AttributeError(f"{self.path} (libstepccl {self.version}) has no function for {name}")


lib = Library()

__all__ = ["ABI_MAJOR", "Call", "CommInfo", "Config", "CudaCall", "CudaConfig", "CudaInfo", "CudaPoolInfo", "CudaReceipt", "ErrorInfo", "Library", "UniqueId", "byref", "lib"]
