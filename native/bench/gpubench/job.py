# SPDX-License-Identifier: Apache-2.0
"""A rank's surroundings: its device, the groups that it measures, and a control group over Gloo for everything else."""
from __future__ import annotations

import datetime
import os
import time
from typing import Any, Callable

import torch
import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=60)
# Backends here that are a manner of using one of torch's.
GROUP_OF = {"stepccl_plain": "stepccl", "nccl_zero_sm": "nccl"}


class Job:
    """Made once in each rank process. `task` is what launcher.run_ranks wrote."""

    def __init__(self, task: dict) -> None:
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.options: dict = task["options"]
        self.deadline = time.monotonic() + float(task["deadline_s"])
        self.cuda = self.options["device"] == "cuda"
        if self.cuda:
            torch.cuda.set_device(self.rank)
            self.device = torch.device("cuda", self.rank)
        else:
            self.device = torch.device("cpu")
        self.dtype: torch.dtype = getattr(torch, self.options["dtype"])
        dist.init_process_group("gloo", init_method=f"file://{task['store']}", rank=self.rank, world_size=self.world, timeout=TIMEOUT)
        self.control = dist.group.WORLD
        self.groups: dict[str, dist.ProcessGroup] = {}
        self._pool: torch.cuda.MemPool | None = None

    def open(self, backend: str) -> dist.ProcessGroup:
        """The group of a backend, made on first use (by every rank at once)."""
        name = GROUP_OF.get(backend, backend)
        if name not in self.groups:
            if name == "stepccl":
                import stepccl  # noqa: F401  registers the backend
            self.groups[name] = dist.new_group(backend=name, timeout=TIMEOUT)
        return self.groups[name]

    def allocator(self, backend: str) -> Callable[[int], torch.Tensor] | None:
        """Where a backend wants its buffers: None = anywhere. StepCCL has windows, NCCL's zero-SM mode its symmetric pool."""
        if backend == "stepccl" and self.cuda:
            import stepccl

            group = self.open(backend)
            return lambda elements: stepccl.empty(elements, dtype=self.dtype, device=self.device, group=group)
        if backend != "nccl_zero_sm":
            return None
        inner = self.open(backend)._get_backend(self.device)
        if self._pool is None:
            self._pool = torch.cuda.MemPool(inner.mem_allocator)

        def allocate(elements: int) -> torch.Tensor:
            with torch.cuda.use_mem_pool(self._pool):
                return torch.empty(elements, dtype=self.dtype, device=self.device)

        return allocate

    def register_buffers(self, backend: str) -> None:
        """After buffers came from allocator(backend): makes them known to the backend. Collective."""
        if backend != "nccl_zero_sm" or self._pool is None:
            return
        group = self.open(backend)
        warm = torch.ones(1, dtype=self.dtype, device=self.device)
        dist.all_reduce(warm, group=group)  # a communicator must exist before memory can be registered with it
        torch.cuda.synchronize()
        group._get_backend(self.device).register_mem_pool(self._pool, symm=True)

    def release_buffers(self, backend: str) -> None:
        """Before the buffers of allocator(backend) go."""
        if backend == "nccl_zero_sm" and self._pool is not None:
            torch.cuda.synchronize()
            self.open(backend)._get_backend(self.device).deregister_mem_pool(self._pool)
            self._pool = None

    def together(self) -> None:
        """A barrier outside of what is measured; the device is idle after it."""
        if self.cuda:
            torch.cuda.synchronize()
        dist.barrier(group=self.control)

    def agreed(self, value: Any) -> Any:
        """Rank 0's value on every rank."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def gathered(self, value: Any) -> list[Any]:
        """Every rank's value on every rank."""
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.control)
        return values

    def time_left(self) -> bool:
        """Rank 0's clock decides for all."""
        return bool(self.agreed(time.monotonic() < self.deadline))
