# SPDX-License-Identifier: Apache-2.0
"""The program of one rank: python -m gpubench.rank TASK.json. Rank 0 prints an event for each case."""
from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from . import memory, models, overlap
from .job import GROUP_OF, Job
from .launcher import emit
from .operations import Operation
from .plan import Case
from .stats import slowest_rank
from .timing import Timer, repeats_for

WARM_UP_CALLS = 5


def versions(job: Job) -> dict:
    """What ran: for the result file."""
    found: dict = {"python": sys.version.split()[0], "torch": torch.__version__}
    if job.cuda:
        found["cuda"] = torch.version.cuda
        found["gpu"] = torch.cuda.get_device_name(job.device)
        found["gpus_visible"] = torch.cuda.device_count()
        found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    if "stepccl" in sys.modules:
        found["stepccl"] = sys.modules["stepccl"].__version__
    return found


class Run:
    """One backend in one case: its buffers and what a turn launches."""

    def __init__(self, job: Job, timer: Timer, case: Case, backend: str, seed: int) -> None:
        self.job, self.timer, self.backend, self.group = job, timer, backend, job.open(backend)
        self.operation = Operation(case.operation, case.size_bytes, job.rank, job.world, job.dtype, job.device, job.allocator(backend))
        job.register_buffers(backend)
        self.operation.fill(seed)
        job.together()
        with timer.on_stream():
            for _ in range(WARM_UP_CALLS):
                self.call()
        job.together()
        self.graphs: list[torch.cuda.CUDAGraph] = []
        if case.mode == "graph":
            self.graphs = [timer.capture(self.call, job.options["graph_calls"]), timer.capture(self.call, 1)]
            with timer.on_stream():
                self.graphs[0].replay()

    def call(self) -> None:
        self.operation.call(self.group)

    def launch(self) -> None:
        """A graph of several calls, or one call."""
        if self.graphs:
            self.graphs[0].replay()
        else:
            self.call()

    def check(self, seed: int) -> int:
        """Wrong elements over all ranks of one call on data that no captured or warmed-up call has seen."""
        # A replay may still run on the timer's stream, for which the stream that fills does not wait.
        self.job.together()
        self.operation.fill(seed)
        self.job.together()
        with self.timer.on_stream():
            if self.graphs:
                self.graphs[1].replay()
            else:
                self.call()
        self.job.together()
        return sum(self.job.gathered(self.operation.wrong(seed)))

    def way(self) -> dict | None:
        """How StepCCL's last call went on a GPU: path, thread blocks (0 = copy engines alone), multiprocessor time of one run."""
        if not self.job.cuda or GROUP_OF.get(self.backend, self.backend) != "stepccl":
            return None
        receipt = sys.modules["stepccl"].receipt(self.group)
        return {"path": receipt["path"], "blocks": receipt["blocks"], "copies": receipt["copies"], "sm_us": round(receipt["sm_ns"] / max(1, receipt["runs"]) / 1e3, 2)}

    def close(self) -> None:
        """Graphs first: they use the buffers."""
        self.job.together()
        self.graphs.clear()
        del self.operation
        self.job.release_buffers(self.backend)


def collective(job: Job, case: Case, backends: list[str], seed: int) -> dict:
    """The backends in turns at one operation, size and mode. Every turn begins with the ranks together."""
    timer = Timer(job.device)
    runs: dict[str, Run] = {}
    wrong: dict[str, int] = {}
    ways: dict[str, dict] = {}
    for backend in backends:
        runs[backend] = Run(job, timer, case, backend, seed)
        wrong[backend] = runs[backend].check(seed + 1)
        way = runs[backend].way()
        if way is not None:
            ways[backend] = way
    calls = job.options["graph_calls"] if case.mode == "graph" else 1
    repeats = max(1, repeats_for(case.size_bytes, job.options["turn_ms"]) // calls)
    own: dict[str, list[float]] = {backend: [] for backend in backends}
    for turn in range(job.options["turns"]):
        first = turn % len(backends)
        for backend in backends[first:] + backends[:first]:
            runs[backend].operation.fill(seed + 2 + turn)
            job.together()
            own[backend].append(timer.time_us(runs[backend].launch, repeats) / calls)
    times = {backend: slowest_rank(job.gathered(own[backend])) for backend in backends}
    actual_bytes = runs[backends[0]].operation.bytes
    for backend in backends:
        runs[backend].close()
    return {"times_us": times, "wrong": wrong, "ways": ways, "bytes": actual_bytes, "calls_a_turn": repeats * calls}


RUNNERS = {
    "collective": collective,
    "memory": memory.held,
    "matmul": overlap.matmul_kept,
    "tensor_parallel": models.tensor_parallel,
    "ddp": models.ddp_step,
}


def main(task_file: str) -> int:
    task = json.loads(Path(task_file).read_text())
    job = Job(task)
    backends = list(task["backends"])
    if not task["stage"].startswith("memory"):  # that one wants to see the backend come
        for backend in backends:
            job.open(backend)
    if job.rank == 0:
        emit({"event": "start", "versions": versions(job)})
    seed = int(job.options["seed"])
    for number, entry in enumerate(task["cases"]):
        case = Case(**entry)
        if not job.time_left():
            if job.rank == 0:
                emit({"event": "left_out", "cases": [Case(**left).key for left in task["cases"][number:]]})
            break
        if job.rank == 0:
            emit({"event": "begin", "case": case.key})
        try:
            row = RUNNERS[case.kind](job, case, backends, seed + 1000 * number)
        except Exception:
            # A communicator after an error is of no use: the launcher starts anew with the cases that are left. At once: an
            # orderly end would wait for ranks that may hang.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        if job.rank == 0:
            emit({"event": "row", "stage": task["stage"], "case": case.key, **case.as_dict(), **row})
        gc.collect()
        if job.cuda:
            torch.cuda.empty_cache()
    job.together()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
