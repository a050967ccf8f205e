# SPDX-License-Identifier: Apache-2.0
"""GPU memory that a backend holds beside the tensors."""
from __future__ import annotations

import torch

from .job import Job
from .operations import Operation
from .plan import Case

SIZE_BYTES = 64 << 20


def held(job: Job, case: Case, backends: list[str], seed: int) -> dict:
    """
    Bytes on the device that appear with the backend, the largest over ranks: after the first AllReduce, then after
    AllGather, ReduceScatter, AllToAll and Broadcast too, each of 64 MiB. Counted for the whole device (contexts that a peer
    opens on it included), less what PyTorch's allocator reserved meanwhile. Alone in its process: one backend a process.
    """
    (backend,) = backends
    operations = [Operation(name, SIZE_BYTES, job.rank, job.world, job.dtype, job.device) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")]
    for operation in operations:
        operation.fill(seed)
    # The context, cuBLAS and the allocator's first blocks are nobody's.
    left = torch.ones(256, 256, dtype=job.dtype, device=job.device)
    (left @ left).sum().item()

    def used() -> int:
        job.together()
        free, total = torch.cuda.mem_get_info(job.device)
        taken = total - free - torch.cuda.memory_reserved(job.device)
        job.together()
        return taken

    before = used()
    group = job.open(backend)
    with torch.cuda.stream(torch.cuda.Stream(job.device)):
        operations[0].call(group)
        first = used() - before
        for operation in operations:
            operation.call(group)
            operation.call(group)
        every = used() - before
    return {
        "backend": backend,
        "after_all_reduce_bytes": max(job.gathered(first)),
        "after_all_bytes": max(job.gathered(every)),
    }
