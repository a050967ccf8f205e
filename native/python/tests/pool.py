# SPDX-License-Identifier: Apache-2.0
"""Rank processes that stay: each test sends them one function, which they run in a fresh process group."""
from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Callable

DEVICE = os.environ.get("STEPCCL_TEST_DEVICE", "cpu")
JOB_TIMEOUT_S = 60.0


# Two ranks on one GPU, for a machine that has no second.
SHARED = DEVICE == "cuda" and os.environ.get("STEPCCL_CUDA_SHARED_GPU") == "1"


def world_size() -> int:
    """Three processes on host memory (no power of two), one a GPU on GPUs."""
    if DEVICE == "cpu":
        return 3
    import torch

    return max(2, torch.cuda.device_count()) if SHARED else torch.cuda.device_count()


def _serve(rank: int, world: int, line: Connection) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    import torch

    if DEVICE == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.set_num_threads(1)
    import torch.distributed as dist

    import stepccl  # noqa: F401  registers the backend

    while True:
        job = line.recv()
        if job is None:
            return
        function, arguments, store, timeout_s, own_group = job
        try:
            if own_group:
                dist.init_process_group("stepccl", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s))
            try:
                result = function(rank, world, *arguments)
            finally:
                if own_group and dist.is_initialized():
                    dist.destroy_process_group()
            line.send(("ok", result))
        except BaseException as problem:  # the test that sent the job raises it
            line.send(("error", f"{type(problem).__name__}: {problem}\n{traceback.format_exc()}"))


class World:
    """`size` rank processes. run() starts them, and anew after a job that lost one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._lines: list[Connection] = []

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self.size, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._lines.append(ours)

    def run(self, function: Callable[..., Any], *arguments: Any, timeout_s: float = 20.0, own_group: bool = True) -> list[Any]:
        """function(rank, world, *arguments) on every rank -> results by rank. AssertionError with the ranks' errors."""
        outcomes = self.outcomes(function, *arguments, timeout_s=timeout_s, own_group=own_group)
        errors = [f"rank {rank}: {text}" for rank, (kind, text) in enumerate(outcomes) if kind != "ok"]
        assert not errors, "\n".join(errors)
        return [value for _, value in outcomes]

    def outcomes(self, function: Callable[..., Any], *arguments: Any, timeout_s: float = 20.0, own_group: bool = True) -> list[tuple[str, Any]]:
        """As run(), but ("ok", result), ("error", text), ("died", status) or ("hangs", None) for each rank."""
        if not self._processes:
            self._start()
        found: list[tuple[str, Any]] = [("hangs", None)] * self.size
        with tempfile.TemporaryDirectory(prefix="stepccl-test-") as folder:
            job = (function, arguments, str(Path(folder) / "store"), timeout_s, own_group)
            for line in self._lines:
                line.send(job)
            until = time.monotonic() + JOB_TIMEOUT_S
            waiting = dict(zip(self._lines, range(self.size)))
            while waiting and time.monotonic() < until:
                for line in wait(list(waiting), timeout=0.5):
                    assert isinstance(line, Connection)
                    rank = waiting.pop(line)
                    try:
                        found[rank] = line.recv()
                    except EOFError:
                        self._processes[rank].join(5)
                        found[rank] = ("died", self._processes[rank].exitcode)
        if any(kind in ("died", "hangs") for kind, _ in found):
            self.close()
        return found

    def close(self) -> None:
        for process, line in zip(self._processes, self._lines):
            if process.is_alive():
                try:
                    line.send(None)
                except OSError:
                    pass
        for process in self._processes:
            process.join(3)
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
                process.join(5)
        self._processes, self._lines = [], []
