# SPDX-License-Identifier: Apache-2.0
"""
StepCCL for PyTorch: importing it registers the backend "stepccl" for CPU and CUDA tensors.

    import stepccl
    torch.distributed.init_process_group(backend="stepccl", init_method="env://")
"""
from __future__ import annotations

from typing import Any

try:
    import torch.distributed as _dist
except ImportError as problem:
    raise ImportError("the package stepccl is a backend of PyTorch, which is not installed for this Python: install torch 1.13 or later") from problem
if not _dist.is_available():
    raise ImportError("this build of PyTorch has no torch.distributed: install one that has")

from . import _memory, _process_group
from ._communicator import gpu as _gpu
from ._errors import StepcclError
from ._library import lib as _lib
from ._process_group import ProcessGroupStepCCL
from ._settings import (
    Configuration,
    configure,
    current as configuration,
    disable_hbm_defrag,
    disable_paging,
    enable_hbm_defrag,
    enable_paging,
    reset_configuration,
    set_pipeline_depth,
    set_sm_budget,
)

__version__: str = _lib.version

_process_group.register()


def attach(device: Any = None, group: Any = None) -> None:
    """Opens the GPU part of a group; every rank calls it. The first collective on a CUDA tensor does the same. StepcclError."""
    _process_group.group_of(group).communicator.attach(_gpu(device if device is not None else "cuda"))


def empty(*size: Any, dtype: Any = None, device: Any = None, group: Any = None) -> Any:
    """
    An uninitialised CUDA tensor that the GPUs of the other ranks see: collectives on it skip staging. A collective call, with
    the same size on every rank. StepcclError.
    """
    return _memory.empty(_process_group.group_of(group), *size, dtype=dtype, device=device)


def info(group: Any = None) -> dict[str, Any]:
    """What the library says of a group: transport, operations, memory held, and of its GPU engine "gpu" and "pool"."""
    return _process_group.group_of(group).communicator.info()


def explain(collective: str, size_bytes: int, group: Any = None) -> str:
    """Which algorithm an operation on host memory would take and why, one line for each. StepcclError."""
    return _process_group.group_of(group).communicator.explain(collective, size_bytes)


def register(tensor: Any, group: Any = None) -> None:
    """
    Lets the other ranks see the memory of an ordinary CUDA tensor, so that collectives on it skip staging as on those of empty().
    A collective call with the same size on every rank; the tensor lives until unregister(). Memory of PyTorch's expandable
    segments can't be shared so (R103). StepcclError.
    """
    _memory.register(_process_group.group_of(group), tensor)


def unregister(tensor: Any, group: Any = None) -> None:
    """Undoes register(); a collective call. StepcclError."""
    _memory.unregister(_process_group.group_of(group), tensor)


def receipt(group: Any = None) -> dict[str, Any]:
    """
    What the last operation of a group on CUDA tensors took: "path", "blocks" (thread blocks; 0 = copy engines alone), "copies",
    "runs" (replays, if it was captured; 0 = not finished), "sm_ns" (nanoseconds of multiprocessor time over blocks and runs),
    "link_bytes" (to the other ranks, each run). A handle's receipt() gives that of its own operation. StepcclError.
    """
    communicator = _process_group.group_of(group).communicator
    return communicator.receipt(communicator.last_ticket)


def defrag_now(group: Any = None) -> int:
    """Compacts the GPU pool once; every rank calls it. Bytes that went back to the GPU. StepcclError."""
    return _process_group.group_of(group).communicator.defrag_now()


def abort(group: Any = None) -> None:
    """Ends what runs on a group: here with R205, on the other ranks with R206. Any thread. StepcclError."""
    _process_group.group_of(group).abort()


__all__ = [
    "Configuration",
    "ProcessGroupStepCCL",
    "StepcclError",
    "abort",
    "attach",
    "configuration",
    "configure",
    "defrag_now",
    "disable_hbm_defrag",
    "disable_paging",
    "empty",
    "enable_hbm_defrag",
    "enable_paging",
    "explain",
    "info",
    "receipt",
    "register",
    "reset_configuration",
    "set_pipeline_depth",
    "set_sm_budget",
    "unregister",
]
