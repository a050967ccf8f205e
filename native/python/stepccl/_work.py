# SPDX-License-Identifier: Apache-2.0
"""Handles of operations, as torch.distributed wants them."""
from __future__ import annotations

import datetime
import threading
import time
from typing import Any, Sequence

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future

from ._communicator import Communicator, Request
from ._errors import INVALID_USAGE, TIMEOUT, StepcclError, bad_argument

Copies = Sequence[tuple[torch.Tensor, torch.Tensor]]  # (to, from)
_POLL_S = 0.0002
_LOOK_MS = 2


def _limit_ms(timeout: Any) -> int:
    """Of wait(timeout): milliseconds, 0 where there is no limit (None, zero or a negative time, torch's ways to say so)."""
    if timeout is None:
        return 0
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
    return max(1, int(seconds * 1000)) if seconds > 0 else 0


class _BaseWork(Work):
    """What torch asks of a handle beside wait(): its result, its error, its future."""

    def __init__(self, communicator: Communicator, result: list) -> None:
        super().__init__()
        self._communicator = communicator
        self._result = result
        self._error: Exception | None = None
        self._future: Future | None = None

    def exception(self) -> Exception | None:
        return self._error

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def is_completed(self) -> bool:
        raise NotImplementedError

    def result(self) -> list:
        """The output tensors, after waiting for them."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def wait(self, timeout: Any = None) -> bool:
        raise NotImplementedError


class HostWork(_BaseWork):
    """
    Operations on host memory. Holds the tensors until the operations are done, also when nobody waits: the communicator's
    group keeps it until then (see Collectives._launch_host).
    """

    def __init__(self, communicator: Communicator, requests: list[Request], tensors: Any, copies: Copies, result: list, completer: "Completer") -> None:
        super().__init__(communicator, result)
        self._requests, self._tensors, self._copies = requests, tensors, copies
        self._completer = completer
        self._lock = threading.Lock()
        self._finished = not requests

    def wait(self, timeout: Any = None) -> bool:
        """Blocks until the tensors may be used. StepcclError: the operation's, or R203 when `timeout` passes (it goes on then)."""
        limit_ms = _limit_ms(timeout)
        if not self._wait(limit_ms):
            raise StepcclError(TIMEOUT, f"the operation has not ended within {limit_ms} ms; it goes on", self._communicator.rank)
        if self._error is not None:
            raise self._error
        return True

    def _wait(self, limit_ms: int) -> bool:
        """Whether the operations have ended, well or not, within the limit (0 = none)."""
        until = time.monotonic() + limit_ms / 1000
        for request in self._requests:
            try:
                if not request.wait(max(1, int((until - time.monotonic()) * 1000)) if limit_ms else 0):
                    return False
            except StepcclError as problem:
                self._error = problem
                break
        self._end()
        return True

    def is_completed(self) -> bool:
        if not self._finished and all(request.done() for request in self._requests):
            self._wait(0)
        return self._finished

    def wait_page(self, page: int, timeout: Any = None) -> None:
        """
        Blocks until page `page` (from 0) of a paged operation is in its place, while later pages move. StepcclError: R101 where
        there is no such page, or the outputs are a list that is put together at the end.
        """
        if len(self._requests) != 1 or self._copies:
            raise bad_argument("the operation has no pages of its own: use one tensor for all ranks' parts")
        self._requests[0].wait_page(page, _limit_ms(timeout))

    def get_future(self) -> Future:
        """Completed with the output tensors by a thread of the group."""
        with self._lock:
            if self._future is None:
                ended: Future = Future()
                # An exception as the value would reach C++ code as an object that it takes for tensors; raised in a
                # callback it becomes an error of the future.
                self._future = ended.then(self._value)
                self._completer.add(self, ended)
            return self._future

    def _value(self, _: Future) -> list:
        if self._error is not None:
            raise self._error
        return self._result

    def _end(self) -> None:
        with self._lock:
            if self._finished:
                return
            if self._error is None:
                for target, source in self._copies:
                    target.copy_(source)
            self._finished = True
            self._tensors = self._copies = ()


class AllWork(_BaseWork):
    """Several handles as one."""

    def __init__(self, communicator: Communicator, works: Sequence[_BaseWork]) -> None:
        super().__init__(communicator, [tensor for work in works for tensor in work._result])
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def exception(self) -> Exception | None:
        return next((work.exception() for work in self._works if work.exception() is not None), None)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def get_future(self) -> Future:
        return torch.futures.collect_all([work.get_future() for work in self._works])


class Completer:
    """Completes futures of operations on host memory: one thread for each group, from the first future on."""

    def __init__(self) -> None:
        self._waiting: list[tuple[HostWork, Future]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, work: HostWork, future: Future) -> None:
        with self._changed:
            self._waiting.append((work, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stepccl-futures", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread; futures that are not complete by then get their operation's error."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                waiting = list(self._waiting)
            # Mostly they end in order: sleep in the first, but look at the others too, as a receive may come late.
            waiting[0][0]._wait(_LOOK_MS)
            for entry in waiting:
                if entry[0].is_completed():
                    with self._changed:
                        self._waiting.remove(entry)
                    entry[1].set_result(None)


class DeviceWork(_BaseWork):
    """
    Operations queued on a GPU. stream: where; None = on the stream that was current, so that nothing has to be waited for.
    on_host: the tensors are host memory, so that the host has to wait. Holds the tensors until a stream waits, or tells the
    allocator that `stream` uses them when it is dropped before.
    """

    def __init__(self, communicator: Communicator, tensors: Sequence[torch.Tensor], result: list, stream: Any, ticket: int = 0, on_host: bool = False) -> None:
        super().__init__(communicator, result)
        self.ticket = ticket  # of the last operation, for receipt and wait_page; 0 = there is none
        self._tensors: Sequence[torch.Tensor] = tensors
        self._stream, self._on_host = stream, on_host
        self._event: Any = None

    def queued(self) -> None:
        """The operations are on the stream now."""
        if self._stream is not None:
            self._event = self._stream.record_event()

    def _check_queued(self) -> None:
        if self._stream is not None and self._event is None:
            raise StepcclError(INVALID_USAGE, "the operation belongs to a coalesced group that has not ended yet: wait after it")

    def wait(self, timeout: Any = None) -> bool:
        """
        Makes the current stream wait for the operations and returns at once; with a timeout the host waits too. StepcclError:
        the engine's (a peer has died, say), or R203 when `timeout` passes.
        """
        self._check_queued()
        self._communicator.check_engine()
        limit_ms = _limit_ms(timeout)
        device = self._communicator.device
        if self._event is not None:
            torch.cuda.current_stream(device).wait_event(self._event)
        if limit_ms or self._on_host:
            event = self._event or torch.cuda.current_stream(device).record_event()
            until = time.monotonic() + limit_ms / 1000
            while not event.query():
                self._communicator.check_engine()
                if limit_ms and time.monotonic() > until:
                    raise StepcclError(TIMEOUT, f"the operation has not ended within {limit_ms} ms; it goes on", self._communicator.rank)
                time.sleep(_POLL_S)
            self._communicator.check_engine()
        self._tensors = ()
        return True

    def is_completed(self) -> bool:
        if self._stream is not None and self._event is None:
            return False
        try:
            self._communicator.check_engine()
        except StepcclError as problem:
            self._error = problem
            return True
        if self._event is None:
            self._event = torch.cuda.current_stream(self._communicator.device).record_event()
        return bool(self._event.query())

    def wait_page(self, page: int) -> None:
        """The current stream (for pinned host memory: the host) waits for one page of a paged operation. StepcclError."""
        self._check_queued()
        stream = 0 if self._on_host else torch.cuda.current_stream(self._communicator.device).cuda_stream
        self._communicator.wait_page(self.ticket, page, stream)

    def receipt(self) -> dict[str, Any]:
        """See stepccl.receipt. StepcclError."""
        return self._communicator.receipt(self.ticket)

    def get_future(self) -> Future:
        """Complete at once: whoever waits for it has its stream wait for the operations."""
        self._check_queued()
        if self._future is None:
            device = self._communicator.device
            assert device is not None
            future: Future = Future(devices=[device])
            with torch.cuda.stream(self._stream or torch.cuda.current_stream(device)):
                future.set_result(self._result)
            self._future = future
        return self._future

    def __del__(self) -> None:
        if self._stream is not None:
            for tensor in self._tensors:
                if tensor.is_cuda:
                    tensor.record_stream(self._stream)
