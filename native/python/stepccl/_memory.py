# SPDX-License-Identifier: Apache-2.0
"""Tensors in GPU memory that all ranks of a group see: collectives on them need no staging, and data moves without an SM."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Sequence

import torch

from ._errors import bad_argument

if TYPE_CHECKING:
    from ._communicator import Communicator
    from ._process_group import ProcessGroupStepCCL


class _Window:
    """Memory of the pool, given back with the last tensor over it."""

    def __init__(self, communicator: "Communicator", size_bytes: int) -> None:
        self._communicator = communicator
        self._address = communicator.allocate(size_bytes)
        # https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, version 3
        self.__cuda_array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (self._address, False), "version": 3, "stream": None}

    def __del__(self) -> None:
        address = getattr(self, "_address", None)
        if address:
            self._communicator.release(address)


def empty(group: "ProcessGroupStepCCL", *size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """
    An uninitialised tensor in memory that the other ranks of the group see. A collective call: every rank asks for the same
    size at the same place of its program, and drops its tensors in the same order. StepcclError.
    """
    shape: Sequence[int] = size[0] if len(size) == 1 and isinstance(size[0], (list, tuple, torch.Size)) else size
    if not shape or any(not isinstance(part, int) or part < 0 for part in shape):
        raise bad_argument(f"the size is {tuple(shape)}, and must be integers from 0")
    dtype = dtype or torch.get_default_dtype()
    device = torch.device(device if device is not None else "cuda")
    if device.type != "cuda":
        raise bad_argument(f"the device is {device}, and must be a GPU: on host memory use torch.empty")
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    group.communicator.attach(device)
    elements = math.prod(shape)
    element_size = torch.empty((), dtype=dtype).element_size()
    window = _Window(group.communicator, max(1, elements * element_size))
    flat = torch.as_tensor(window, device=device)
    return flat[: elements * element_size].view(dtype).view(tuple(shape))
