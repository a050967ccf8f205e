# SPDX-License-Identifier: Apache-2.0
"""What is left of a matrix product's speed while collectives run beside it."""
from __future__ import annotations

import torch
import torch.distributed as dist

from .job import Job
from .operations import Operation
from .plan import Case
from .stats import summarize
from .timing import Timer

PRODUCTS = 8  # in one turn
COVER = 1.5  # the collectives must outlast the products by this much


def matmul_kept(job: Job, case: Case, backends: list[str], seed: int) -> dict:
    """
    time alone / time beside an unbroken row of collectives, for each backend, in turns (alone, one beside, alone, other beside).
    A turn in which the collectives ended before the products is made again with more of them.
    """
    n = job.options["matmul_size"]
    compute = Timer(job.device)
    left = torch.empty(n, n, dtype=torch.bfloat16, device=job.device).uniform_(-1, 1)
    right = torch.empty(n, n, dtype=torch.bfloat16, device=job.device).uniform_(-1, 1)
    product = torch.empty(n, n, dtype=torch.bfloat16, device=job.device)

    def multiply() -> None:
        torch.mm(left, right, out=product)

    operations: dict[str, Operation] = {}
    calls: dict[str, int] = {}
    side = torch.cuda.Stream(job.device)
    for _ in range(3):
        compute.time_us(multiply, PRODUCTS)
    # One rank's figure for all: every rank has to make the same number of calls.
    alone_us = job.agreed(compute.time_us(multiply, PRODUCTS))
    for backend in backends:
        group = job.open(backend)
        operation = operations[backend] = Operation(case.operation, case.size_bytes, job.rank, job.world, job.dtype, job.device, job.allocator(backend))
        job.register_buffers(backend)
        operation.fill(seed)
        job.together()
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(side):
            operation.call(group)
            began.record()
            for _ in range(4):
                operation.call(group)
            ended.record()
        job.together()
        each_us = job.agreed(began.elapsed_time(ended) * 1e3 / 4)
        calls[backend] = max(4, int(COVER * PRODUCTS * alone_us / each_us) + 2)

    def beside(backend: str, group: dist.ProcessGroup) -> float:
        operation = operations[backend]
        for _ in range(5):
            operation.fill(seed)
            job.together()
            with torch.cuda.stream(side):
                for _ in range(2):
                    operation.call(group)
                running = torch.cuda.Event()
                running.record()
                for _ in range(calls[backend]):
                    operation.call(group)
                done = torch.cuda.Event(enable_timing=True)
                done.record()
            with compute.on_stream():
                compute.stream.wait_event(running)
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                for _ in range(PRODUCTS):
                    multiply()
                end.record()
            end.synchronize()
            done.synchronize()
            outlasted = end.elapsed_time(done) > 0
            if all(job.gathered(outlasted)):
                return start.elapsed_time(end) * 1e3 / PRODUCTS
            calls[backend] *= 2
        raise RuntimeError(f"{backend}: the collectives never outlasted the products")

    alone: dict[str, list[float]] = {backend: [] for backend in backends}
    busy: dict[str, list[float]] = {backend: [] for backend in backends}
    for turn in range(job.options["overlap_turns"]):
        for backend in backends if turn % 2 == 0 else reversed(backends):
            job.together()
            alone[backend].append(compute.time_us(multiply, PRODUCTS))
            busy[backend].append(beside(backend, job.open(backend)))
    result: dict = {"kept": {}, "alone_us": {}, "beside_us": {}, "bytes": case.size_bytes, "matmul_size": n}
    for backend in backends:
        # The rank that keeps least counts.
        kept = [a / b for a, b in zip(alone[backend], busy[backend])]
        result["kept"][backend] = summarize([min(turn) for turn in zip(*job.gathered(kept))]).as_dict("ratio")
        result["alone_us"][backend] = summarize([max(turn) for turn in zip(*job.gathered(alone[backend]))]).as_dict("us")
        result["beside_us"][backend] = summarize([max(turn) for turn in zip(*job.gathered(busy[backend]))]).as_dict("us")
    operations.clear()
    for backend in backends:
        job.release_buffers(backend)
    return result
