# SPDX-License-Identifier: Apache-2.0
"""Work of a model, end to end: a tensor-parallel block and a data-parallel training step."""
from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .job import Job
from .plan import Case
from .stats import slowest_rank
from .timing import Timer

TOKENS, HIDDEN, INNER = 8192, 8192, 28672  # the second half of a feed-forward block of a 70B model
SPLITS = (1, 2, 4, 8)
DDP_LAYERS, DDP_WIDTH, DDP_BATCH = 12, 4096, 8192


def tensor_parallel(job: Job, case: Case, backends: list[str], seed: int) -> dict:
    """
    Row-parallel product and its AllReduce: y = all_reduce(x @ w), the tokens split into 1, 2, 4 or 8 pieces so that the
    AllReduce of one piece runs beside the product of the next. The same code for both backends; times of each split, and
    which is best for each.
    """
    timer = Timer(job.device)
    generator = torch.Generator(device=job.device)
    generator.manual_seed(seed * 1009 + job.rank)
    inner = INNER // job.world
    x = torch.empty(TOKENS, inner, dtype=torch.bfloat16, device=job.device).uniform_(-1, 1, generator=generator)
    w = torch.empty(inner, HIDDEN, dtype=torch.bfloat16, device=job.device).uniform_(-0.01, 0.01, generator=generator)
    outputs = {}
    for backend in backends:
        # Each backend gets its buffer where it wants it.
        allocate = job.allocator(backend) or (lambda elements: torch.empty(elements, dtype=torch.bfloat16, device=job.device))
        outputs[backend] = allocate(TOKENS * HIDDEN).view(TOKENS, HIDDEN)

    def block(backend: str, pieces: int) -> None:
        group, y = job.open(backend), outputs[backend]
        pending = []
        for rows, target in zip(x.chunk(pieces), y.chunk(pieces)):
            torch.mm(rows, w, out=target)
            pending.append(dist.all_reduce(target, group=group, async_op=True))
        for work in pending:
            work.wait()

    launches: dict = {}
    for backend in backends:
        for pieces in SPLITS:
            def call(backend: str = backend, pieces: int = pieces) -> None:
                block(backend, pieces)

            job.together()
            with timer.on_stream():
                call()
                call()
            job.together()
            launches[backend, pieces] = timer.capture(call, 1).replay if case.mode == "graph" else call
    exact = torch.mm(x, w).float()
    dist_sum = exact.cpu()
    dist.all_reduce(dist_sum, group=job.control)
    scale = dist_sum.abs().max().item()
    wrong = {}
    for backend in backends:
        outputs[backend].fill_(float("nan"))
        with timer.on_stream():
            launches[backend, SPLITS[-1]]()
        job.together()
        error = (outputs[backend].float().cpu() - dist_sum).abs()
        # Each rank's part is rounded to bf16 before it is summed, the sum once more.
        wrong[backend] = sum(job.gathered(int((~(error <= 2.0**-6 * scale)).sum().item())))
    own: dict = {f"{backend}/{pieces}": [] for backend in backends for pieces in SPLITS}
    for turn in range(job.options["overlap_turns"]):
        for pieces in SPLITS:
            for backend in backends if turn % 2 == 0 else reversed(backends):
                job.together()
                own[f"{backend}/{pieces}"].append(timer.time_us(launches[backend, pieces], 3))
    times: dict = {backend: {} for backend in backends}
    for backend in backends:
        for pieces in SPLITS:
            times[backend][str(pieces)] = slowest_rank(job.gathered(own[f"{backend}/{pieces}"]))
    launches.clear()  # graphs go before the buffers that they use
    return {"times_us": times, "wrong": wrong, "shape": {"tokens": TOKENS, "hidden": HIDDEN, "inner": INNER}}


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def ddp_step(job: Job, case: Case, backends: list[str], seed: int) -> dict:
    """
    Forward, backward with DistributedDataParallel's own overlap, and an SGD step: 12 feed-forward blocks of width 4096 in
    bf16 (1.6 billion parameters), 8192 tokens a rank. The gradients of the first step are compared between the backends.
    """
    timer = Timer(job.device)
    steps: dict = {}
    gradients: dict = {}
    for backend in backends:
        torch.manual_seed(seed)  # the same parameters on every rank and for both
        network = nn.Sequential(*[_Block(DDP_WIDTH) for _ in range(DDP_LAYERS)]).to(device=job.device, dtype=torch.bfloat16)
        model = DistributedDataParallel(network, process_group=job.open(backend), gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        generator = torch.Generator(device=job.device)
        generator.manual_seed(seed * 1009 + job.rank)
        x = torch.empty(DDP_BATCH, DDP_WIDTH, dtype=torch.bfloat16, device=job.device).uniform_(-1, 1, generator=generator)

        def step(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer, x: torch.Tensor = x) -> None:
            optimizer.zero_grad(set_to_none=False)
            model(x).square().mean().backward()
            optimizer.step()

        job.together()
        with timer.on_stream():
            model(x).square().mean().backward()
        job.together()
        gradients[backend] = [parameter.grad.float().norm().item() for parameter in model.parameters()]
        with timer.on_stream():
            for _ in range(3):
                step()
        steps[backend] = step
    job.together()
    reference = gradients[backends[-1]]
    difference = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(gradients[backends[0]], reference))
    if not difference < 0.02:
        raise RuntimeError(f"the gradients of {backends[0]} and {backends[-1]} differ by {difference:.3g} of their norm")
    own: dict[str, list[float]] = {backend: [] for backend in backends}
    for turn in range(job.options["overlap_turns"]):
        for backend in backends if turn % 2 == 0 else reversed(backends):
            job.together()
            own[backend].append(timer.time_us(steps[backend], 2))
    return {
        "times_us": {backend: slowest_rank(job.gathered(own[backend])) for backend in backends},
        "gradient_difference": max(job.gathered(difference)),
        "shape": {"layers": DDP_LAYERS, "width": DDP_WIDTH, "batch": DDP_BATCH},
    }
