# SPDX-License-Identifier: Apache-2.0
"""The collectives under test: buffers, the call, fresh data and a check of every element."""
from __future__ import annotations

from typing import Callable

import torch
import torch.distributed as dist

# Unit roundoff of the types that are summed.
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
# Elements that a check holds in fp32 at a time.
CHECK_ELEMENTS = 64 << 20


class Operation:
    """
    One collective of one size on this rank. `size_bytes` is the whole array as nccl-tests counts it: what all ranks
    contribute for AllGather, what one rank contributes for ReduceScatter and AllToAll. Rounded up to whole elements a rank.
    allocate(elements) makes a tensor; a backend with memory of its own passes its allocator.
    """

    def __init__(self, name: str, size_bytes: int, rank: int, world: int, dtype: torch.dtype, device: torch.device, allocate: Callable[[int], torch.Tensor] | None = None) -> None:
        self.name, self.rank, self.world, self.dtype, self.device = name, rank, world, dtype, device
        element = torch.empty((), dtype=dtype).element_size()
        self.part = max(1, -(-size_bytes // (element * world)))
        whole = max(1, -(-size_bytes // element))
        allocate = allocate or (lambda elements: torch.empty(elements, dtype=dtype, device=device))
        self.in_place = name in ("all_reduce", "broadcast", "reduce")
        split = self.part * world
        self.input_elements = {"all_gather": self.part, "gather": self.part}.get(name, split if name in ("reduce_scatter", "all_to_all", "scatter") else whole)
        output_elements = {"all_gather": split, "gather": split, "reduce_scatter": self.part, "scatter": self.part, "all_to_all": split}.get(name, whole)
        self.input = allocate(self.input_elements)
        self.output = self.input if self.in_place else allocate(output_elements)
        self._generator = torch.Generator(device=device)

    @property
    def bytes(self) -> int:
        """The size after rounding."""
        elements = max(self.input.numel(), self.output.numel())
        return elements * self.input.element_size()

    def call(self, group: dist.ProcessGroup) -> None:
        """Enqueues the collective once (on CUDA: on the current stream)."""
        if self.name == "all_reduce":
            dist.all_reduce(self.input, group=group)
        elif self.name == "all_gather":
            dist.all_gather_into_tensor(self.output, self.input, group=group)
        elif self.name == "reduce_scatter":
            dist.reduce_scatter_tensor(self.output, self.input, group=group)
        elif self.name == "all_to_all":
            dist.all_to_all_single(self.output, self.input, group=group)
        elif self.name == "broadcast":
            dist.broadcast(self.input, src=0, group=group)
        elif self.name == "reduce":
            dist.reduce(self.input, dst=0, group=group)
        elif self.name == "gather":
            dist.gather(self.input, list(self.output.chunk(self.world)) if self.rank == 0 else None, dst=0, group=group)
        elif self.name == "scatter":
            dist.scatter(self.output, list(self.input.chunk(self.world)) if self.rank == 0 else None, src=0, group=group)
        elif self.name == "send_recv":
            after, before = (self.rank + 1) % self.world, (self.rank - 1) % self.world
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, self.input, after, group), dist.P2POp(dist.irecv, self.output, before, group)]):
                work.wait()
        else:
            raise ValueError(f"no operation {self.name}")

    def fill(self, seed: int) -> None:
        """Fresh random input, uniform in [-1, 1), and an output of NaN."""
        self._data(seed, self.rank, out=self.input)
        if not self.in_place:
            self.output.fill_(float("nan"))

    def wrong(self, seed: int) -> int:
        """How many elements of this rank's result are not what fill(seed) on every rank and one call give."""
        wrong = 0
        for start in range(0, self.output.numel(), CHECK_ELEMENTS):
            stop = min(start + CHECK_ELEMENTS, self.output.numel())
            expected, bound = self._expected(seed, start, stop)
            if expected is None:
                continue
            got = self.output[start:stop].float()
            # Written so that NaN counts as wrong.
            wrong += (stop - start) - int(((got - expected).abs() <= bound).sum().item())
        return wrong

    def _data(self, seed: int, rank: int, out: torch.Tensor | None = None) -> torch.Tensor:
        tensor = out if out is not None else torch.empty(self.input_elements, dtype=self.dtype, device=self.device)
        self._generator.manual_seed(seed * 1009 + rank)
        return tensor.uniform_(-1, 1, generator=self._generator)

    def _expected(self, seed: int, start: int, stop: int) -> tuple[torch.Tensor | None, torch.Tensor | float]:
        """The right values of output[start:stop] and how far off each may be; (None, 0) where this rank has no result."""
        if self.name in ("all_reduce", "reduce", "reduce_scatter"):
            if self.name == "reduce" and self.rank != 0:
                return None, 0.0
            offset = self.rank * self.part if self.name == "reduce_scatter" else 0
            total = torch.zeros(stop - start, dtype=torch.float32, device=self.device)
            magnitude = torch.zeros_like(total)
            for rank in range(self.world):
                part = self._data(seed, rank)[offset + start : offset + stop].float()
                total += part
                magnitude += part.abs()
            # Higham, Accuracy and Stability of Numerical Algorithms, (4.6): |error| <= (n-1)u / (1 - (n-1)u) * sum |x|;
            # fp32's own part stands for the reference, which is summed in fp32.
            unit = ROUNDOFF[self.dtype] + ROUNDOFF[torch.float32]
            steps = (self.world - 1) * unit
            return total, magnitude * (steps / (1 - steps)) + 1e-30
        if self.name == "broadcast":
            return self._data(seed, 0)[start:stop].float(), 0.0
        if self.name == "send_recv":
            return self._data(seed, (self.rank - 1) % self.world)[start:stop].float(), 0.0
        if self.name == "scatter":
            return self._data(seed, 0)[self.rank * self.part :][start:stop].float(), 0.0
        if self.name == "gather" and self.rank != 0:
            return None, 0.0
        # What is gathered from rank r is its whole input or, for AllToAll, its part for this rank.
        inside = self.rank * self.part if self.name == "all_to_all" else 0
        parts = [self._data(seed, rank)[inside : inside + self.part] for rank in range(start // self.part, (stop - 1) // self.part + 1)]
        first = start // self.part * self.part
        return torch.cat(parts)[start - first : stop - first].float(), 0.0
