# SPDX-License-Identifier: Apache-2.0
"""Times of calls: with events on a GPU, with a clock on host memory; directly and in CUDA graphs."""
from __future__ import annotations

import contextlib
import time
from typing import Callable

import torch


class Timer:
    """Runs and times on one device, on a stream of its own (copy-engine paths refuse the default stream)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cuda = device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if self.cuda else None

    def on_stream(self):
        """Context: what is launched inside goes to this timer's stream."""
        return torch.cuda.stream(self.stream) if self.cuda else contextlib.nullcontext()

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def event(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)

    def time_us(self, launch: Callable[[], None], repeats: int) -> float:
        """Microseconds for one launch() out of `repeats` in a row."""
        if not self.cuda:
            began = time.perf_counter()
            for _ in range(repeats):
                launch()
            return (time.perf_counter() - began) * 1e6 / repeats
        with self.on_stream():
            start, end = self.event(), self.event()
            start.record()
            for _ in range(repeats):
                launch()
            end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / repeats

    def capture(self, call: Callable[[], None], calls: int) -> torch.cuda.CUDAGraph:
        """A graph of `calls` calls. NCCL's watchdog queries events from its thread: the capture is this thread's only."""
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            for _ in range(calls):
                call()
        return graph


# A guess of a call's time, for the number of repeats only: 25 us and 250 GB/s.
def repeats_for(size_bytes: int, turn_ms: float, most: int = 100) -> int:
    """How many calls fill about turn_ms, 3..most."""
    guess_us = 25 + size_bytes / 250e3
    return max(3, min(most, int(turn_ms * 1e3 / guess_us)))
