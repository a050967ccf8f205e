# SPDX-License-Identifier: Apache-2.0
"""Tensors in GPU memory that all ranks of a group see: collectives on them need no staging, and data moves without an SM."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Sequence

import torch

from ._communicator import gpu
from ._errors import bad_argument
from ._types import check_tensor

if TYPE_CHECKING:
    from ._communicator import Communicator
    from ._process_group import ProcessGroupStepCCL


class _Window:
    """Memory of the pool, given back with the last tensor over it: to the pool, or to `cache`."""

    def __init__(self, communicator: "Communicator", size_bytes: int, address: int | None = None, cache: "list[int] | None" = None) -> None:
        self._communicator, self._cache = communicator, cache
        self._address = address if address is not None else communicator.allocate(size_bytes)
        # https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, version 3
        self.__cuda_array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (self._address, False), "version": 3, "stream": None}

    def __del__(self) -> None:
        address = getattr(self, "_address", None)
        if address and self._cache is not None:
            self._cache.append(address)
        elif address:
            self._communicator.release(address)


def _tensor(window: _Window, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    size_bytes = math.prod(shape) * _element_size(dtype)
    return torch.as_tensor(window, device=device)[:size_bytes].view(dtype).view(tuple(shape))


def _element_size(dtype: torch.dtype) -> int:
    return torch.empty((), dtype=dtype).element_size()


class WindowCache:
    """
    Tensors of a group for those who allocate in every step (FSDP2): windows that come back are handed out again, for the
    same size on the same stream, so that the ranks need not meet each time. They go with the group.
    """

    def __init__(self, communicator: "Communicator") -> None:
        self._communicator = communicator
        self._free: dict[tuple[int, int], list[int]] = {}

    def empty(self, elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As empty() below. Ranks that allocate and drop in the same order get windows that belong together."""
        self._communicator.attach(device)
        size_bytes = max(1, elements * _element_size(dtype))
        free = self._free.setdefault((size_bytes, torch.cuda.current_stream(device).cuda_stream), [])
        window = _Window(self._communicator, size_bytes, free.pop() if free else None, free)
        return _tensor(window, (elements,), dtype, device)


def register(group: "ProcessGroupStepCCL", tensor: torch.Tensor) -> None:
    """Lets the other ranks see a CUDA tensor's memory and keeps the tensor until unregister(). Collective. StepcclError."""
    check_tensor(tensor, "tensor")
    group.communicator.attach(gpu(tensor.device))
    group.communicator.register(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    group._registered[tensor.data_ptr()] = tensor


def unregister(group: "ProcessGroupStepCCL", tensor: torch.Tensor) -> None:
    """Undoes register(). Collective. StepcclError R101 for a tensor that is not registered."""
    if tensor.data_ptr() not in group._registered:
        raise bad_argument("the tensor is not registered with this group")
    group.communicator.deregister(tensor.data_ptr())
    del group._registered[tensor.data_ptr()]


def empty(group: "ProcessGroupStepCCL", *size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """
    An uninitialised tensor in memory that the other ranks of the group see. A collective call: every rank asks for the same
    size at the same place of its program, and drops its tensors in the same order. StepcclError.
    """
    shape: Sequence[int] = size[0] if len(size) == 1 and isinstance(size[0], (list, tuple, torch.Size)) else size
    if not shape or any(not isinstance(part, int) or part < 0 for part in shape):
        raise bad_argument(f"the size is {tuple(shape)}, and must be integers from 0")
    dtype = dtype or torch.get_default_dtype()
    device = gpu(device if device is not None else "cuda")
    group.communicator.attach(device)
    window = _Window(group.communicator, max(1, math.prod(shape) * _element_size(dtype)))
    return _tensor(window, shape, dtype, device)
