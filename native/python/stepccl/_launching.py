# SPDX-License-Identifier: Apache-2.0
"""How an operation starts: on host memory, on a stream, or collected into a coalesced group."""
from __future__ import annotations

import threading
from collections import deque
from typing import Any, Sequence

import torch

from ._communicator import NORMAL, Communicator, Operation, gpu
from ._errors import INVALID_USAGE, StepcclError, unsupported
from ._work import AllWork, Completer, Copies, DeviceWork, HostWork

Tensors = Sequence[torch.Tensor]
_MANY = 64


def timeout_ms(opts: Any) -> int:
    """Of an options object: torch says "unset" with -1 ms."""
    timeout = getattr(opts, "timeout", None)
    if timeout is None:
        return 0
    seconds = timeout.total_seconds()
    return min(int(seconds * 1000), 0xFFFFFFFE) if seconds > 0 else 0


class Launching:
    """Needs `communicator` of the class that it is mixed into, which calls _prepare once it is there."""

    communicator: Communicator

    def _prepare(self) -> None:
        self._completer = Completer()
        # Operations on host memory that are not known to have ended: their tensors must stay.
        self._running: deque[HostWork] = deque()
        self._running_lock = threading.Lock()
        self._host_batch: list[Any] | None = None
        self._batch: tuple[DeviceWork, list[Operation], list[torch.Tensor]] | None = None
        self._sequence = 0

    def _launch(self, operations: Sequence[Operation], tensors: Tensors, result: list, opts: Any = None, before: Copies = (), after: Copies = (), priority: int = NORMAL) -> Any:
        """
        Starts `operations` on the device of tensors[0]. `tensors` are kept until they have ended. before, after: copies of
        (to, from) that belong in front and behind. priority: on host memory, see Communicator.start.
        """
        self._sequence += 1
        first = tensors[0]
        if first.is_cuda or self._is_paged_on_gpu(first):
            return self._launch_device(operations, tensors, result, opts, before, after)
        for target, source in before:
            target.copy_(source)
        requests = self.communicator.start(operations, timeout_ms(opts), priority) if operations else []
        return self._keep(HostWork(self.communicator, requests, (tensors, before), after, result, self._completer))

    def _keep(self, work: HostWork) -> HostWork:
        """Holds a handle until its operation has ended, whoever else drops it."""
        with self._running_lock:
            running = self._running
            while running and running[0].is_completed():
                running.popleft()
            if len(running) >= _MANY:  # the first may be a receive that comes late
                self._running = running = deque(one for one in running if not one.is_completed())
            running.append(work)
        if self._host_batch is not None:
            self._host_batch.append(work)
        return work

    def _is_paged_on_gpu(self, tensor: torch.Tensor) -> bool:
        """Pinned host memory goes through the GPU's pool once paging is on and the group has a GPU."""
        communicator = self.communicator
        return bool(communicator.configuration.page_size and communicator.device is not None and tensor.is_pinned())

    def _launch_device(self, operations: Sequence[Operation], tensors: Tensors, result: list, opts: Any, before: Copies, after: Copies) -> Any:
        communicator = self.communicator
        if communicator.device is None or tensors[0].is_cuda and tensors[0].device != communicator.device:
            communicator.attach(tensors[0].device)
        device = communicator.device
        assert device is not None
        if self._batch is not None:
            work, batched, kept = self._batch
            if before or after:
                raise unsupported("a coalesced group takes lists of tensors only where they lie one behind the other")
            batched.extend(operations)
            kept.extend(tensors)
            return work
        on_host = not tensors[0].is_cuda
        if not on_host and not getattr(opts, "asyncOp", True):
            # Nobody overlaps with it: queued where the caller computes, without an event.
            ticket = 0
            for target, source in before:
                target.copy_(source)
            if operations:
                ticket = communicator.enqueue(operations, torch._C._cuda_getCurrentRawStream(device.index))
            for target, source in after:
                target.copy_(source)
            return DeviceWork(communicator, tensors, result, None, ticket)
        stream = communicator.stream
        stream.wait_stream(torch.cuda.current_stream(device))
        kept = [*tensors, *(source for _, source in before), *(target for target, _ in after)]
        work = DeviceWork(communicator, kept, result, stream, on_host=on_host)
        with torch.cuda.stream(stream):
            for target, source in before:
                target.copy_(source)
            if operations:
                work.ticket = communicator.enqueue(operations, stream.cuda_stream)
            for target, source in after:
                target.copy_(source)
        work.queued()
        return work

    def _start_coalescing(self, device: Any = None) -> None:
        """
        From here to _end_coalescing the operations belong together. On CUDA they are collected and then run as one exchange; on
        host memory they move side by side as they come.
        """
        if self._batch is not None or self._host_batch is not None:
            raise StepcclError(INVALID_USAGE, "a coalesced group has begun already")
        device = torch.device(device) if device is not None else self.communicator.device
        if device is None or device.type != "cuda":
            self._host_batch = []
            return
        self.communicator.attach(gpu(device))
        self._batch = (DeviceWork(self.communicator, [], [], self.communicator.stream), [], [])

    def _end_coalescing(self, device: Any = None) -> Any:
        """One handle for all of them."""
        if self._host_batch is not None:
            works, self._host_batch = self._host_batch, None
            return AllWork(self.communicator, works)
        if self._batch is None:
            raise StepcclError(INVALID_USAGE, "no coalesced group has begun")
        (work, operations, tensors), self._batch = self._batch, None
        communicator = self.communicator
        communicator.stream.wait_stream(torch.cuda.current_stream(communicator.device))
        if operations:
            work.ticket = communicator.enqueue(operations, communicator.stream.cuda_stream)
        work._tensors = work._result = tensors
        work.queued()
        return work

    def _drop_coalescing(self) -> None:
        """After an error inside a coalesced group: what was collected does not run."""
        self._batch = self._host_batch = None
