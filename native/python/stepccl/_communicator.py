# SPDX-License-Identifier: Apache-2.0
"""A communicator of the library and, once CUDA tensors come, its GPU engine."""
from __future__ import annotations

import itertools
import os
import threading
from ctypes import addressof, c_double, c_int, c_uint32, c_uint64, c_void_p, create_string_buffer
from typing import Any, Sequence

import torch

from . import _settings
from ._errors import INVALID_USAGE, NO_GPU, TIMEOUT, WRONG_DEVICE, StepcclError, bad_argument, check, check_cuda, unsupported
from ._library import Call, CommInfo, CudaCall, CudaInfo, CudaPoolInfo, CudaReceipt, UniqueId, byref, lib

_numbers = itertools.count()
# An operation in the library's words: the C function without its prefix, and its arguments from the buffers on.
NORMAL, HIGH = 0, 1
Operation = tuple  # (name, *arguments)
TRANSPORTS = ("none", "shm", "tcp", "rdma", "dma", "gpu_peer")
ASYNC_LEVELS = ("none", "stream", "nic")
PATHS = ("auto", "flagged", "staged", "direct", "bulk", "copy_engine", "paged", "pipeline", "packed")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather", "all_to_all", "send_recv", "barrier")


def gpu(device: Any) -> torch.device:
    """A CUDA device with its number; without one the current device's. StepcclError R601 without a GPU, R101 for another kind."""
    found = torch.device(device)
    if found.type != "cuda":
        raise bad_argument(f"the device is {found}, and must be a GPU")
    if not torch.cuda.is_available():
        raise StepcclError(NO_GPU, "PyTorch sees no GPU here")
    return found if found.index is not None else torch.device("cuda", torch.cuda.current_device())


class Request:
    """A handle of an asynchronous operation on host memory; freed with this object."""

    __slots__ = ("_handle", "_rank")

    def __init__(self, handle: c_void_p, rank: int) -> None:
        self._handle, self._rank = handle, rank

    def wait(self, timeout_ms: int = 0) -> bool:
        """
        Blocks without the GIL, at most timeout_ms (0 = until the operation ends). False: it goes on. StepcclError: the
        operation's.
        """
        try:
            check(lib.request_wait(self._handle, timeout_ms), self._rank)
        except StepcclError as problem:
            # The library says so by the phase: a time-out of the operation itself has one.
            if problem.result == TIMEOUT and problem.phase == 0:
                return False
            raise
        return True

    def wait_page(self, page: int, timeout_ms: int = 0) -> None:
        """Until page `page` of a paged operation is there. StepcclError, R203 when timeout_ms passes."""
        check(lib.request_wait_page(self._handle, page, timeout_ms), self._rank)

    def done(self) -> bool:
        """Whether the operation has ended, well or not. Does not block or raise."""
        ended = c_int()
        lib.request_test(self._handle, byref(ended))
        return bool(ended.value)

    def __del__(self) -> None:
        if lib is not None and self._handle:
            lib.request_free(self._handle)


class Communicator:
    """
    One rank's membership. Every method may be called from any thread; operations start in the order of the calls.
    open: False once it is closed.
    """

    def __init__(self, unique_id: UniqueId, rank: int, world: int, timeout_s: float, configuration: _settings.Configuration) -> None:
        self.rank, self.world = rank, world
        self.number = next(_numbers)
        self.configuration = configuration
        self.timeout_ms = _settings.timeout_ms(timeout_s)
        self.device: torch.device | None = None  # of the GPU engine
        self.open = False
        self._lock = threading.RLock()
        self._comm = c_void_p()
        self._engine = c_void_p()
        self._stream: Any = None
        # Without copy engines the kernels that take any pointer move the bytes. One struct serves all calls.
        self._cuda_call = CudaCall(path=PATHS.index("auto" if configuration.enable_dma else "staged"))
        config = configuration.host(self.timeout_ms)
        check(lib.comm_init_rank(byref(self._comm), world, byref(unique_id), rank, byref(config)))
        self.open = True
        self._process = os.getpid()
        _settings.remember(self)

    # -- host memory -------------------------------------------------------

    def start(self, operations: Sequence[Operation], timeout_ms: int = 0, priority: int = NORMAL) -> list[Request]:
        """
        Starts operations on host memory, several as one group; gives a request for each. Those of one priority run in order,
        and do not wait for those of another. StepcclError: nothing has started.
        """
        with self._lock:
            self._check_open()
            handles = [c_void_p() for _ in operations]
            calls = [Call(timeout_ms=timeout_ms, request=addressof(handle), priority=priority) for handle in handles]
            grouped = len(operations) > 1
            if grouped:
                check(lib.group_start())
            first = 0
            for (name, *arguments), call in zip(operations, calls):
                first = lib.operations[name](self._comm, *arguments, byref(call))
                if first:
                    break
            if grouped:
                ended = lib.group_end()
                first = first or ended
            check(first, self.rank)
            return [Request(handle, self.rank) for handle in handles]

    # -- GPU ---------------------------------------------------------------

    def attach(self, device: torch.device) -> None:
        """Opens the GPU engine; a collective call the first time, nothing later. StepcclError."""
        with self._lock:
            self._check_open()
            if self._engine:
                if device != self.device:
                    raise StepcclError(WRONG_DEVICE, f"the tensor is on {device}, and this group works on {self.device}: one GPU for each process and group", self.rank)
                return
            if not lib.has_cuda:
                raise unsupported(f"libstepccl {lib.version} at {lib.path} has no GPU part: install one that was built with USE_CUDA=ON")
            if torch.cuda.is_current_stream_capturing():
                raise StepcclError(INVALID_USAGE, "the first operation of a group on CUDA tensors can't be captured: run one before the capture")
            with torch.cuda.device(device):
                torch.cuda.synchronize()  # the engine needs the device's context
                config = self.configuration.cuda(device.index, self.timeout_ms)
                check_cuda(lib.cuda_attach(byref(self._engine), self._comm, byref(config)), self.rank)
                self.device = device
                priority = -1 if self.configuration.high_priority_stream else 0
                self._stream = torch.cuda.Stream(device, priority=priority)
            if self.configuration.page_size:
                check_cuda(lib.cuda_paging(self._engine, self.configuration.page_size, self.configuration.prefetch_depth), self.rank)
            if self.configuration.defrag_interval_ms:
                check_cuda(lib.cuda_defrag(self._engine, self.configuration.defrag_interval_ms), self.rank)

    @property
    def stream(self) -> Any:
        """The stream of asynchronous operations; only after attach."""
        return self._stream

    def enqueue(self, operations: Sequence[Operation], stream: int) -> int:
        """Queues operations on device memory on a raw stream, several as one group; gives the ticket of the last. StepcclError."""
        with self._lock:
            self._check_open()
            engine = self._engine
            if len(operations) == 1:
                name, *arguments = operations[0]
                result = lib.cuda_operations[name](engine, *arguments, stream, self._cuda_call)
                if result:
                    check_cuda(result, self.rank)
                return self._cuda_call.ticket
            check_cuda(lib.cuda_group_start(engine), self.rank)
            first = 0
            for name, *arguments in operations:
                first = lib.cuda_operations[name](engine, *arguments, stream, self._cuda_call)
                if first:
                    break
            ended = lib.cuda_group_end(engine)
            check_cuda(first or ended, self.rank)
            return self._cuda_call.ticket

    @property
    def last_ticket(self) -> int:
        """Of the last operation on device memory; 0 before one."""
        return self._cuda_call.ticket

    def receipt(self, ticket: int) -> dict[str, Any]:
        """What an operation on device memory took; see stepccl.receipt. StepcclError."""
        raw = CudaReceipt()
        check_cuda(lib.cuda_receipt(self._engine, ticket, byref(raw)), self.rank)
        found = _values(raw)
        found["path"] = _named(PATHS, raw.path)
        return found

    def wait_page(self, ticket: int, page: int, stream: int) -> None:
        """The stream waits for one page of a paged operation; without a stream (0) the host does. StepcclError."""
        check_cuda(lib.cuda_wait_page(self._engine, ticket, page, stream or None), self.rank)

    def register(self, address: int, size_bytes: int) -> None:
        """Lets the other ranks see existing device memory. A collective call. StepcclError."""
        check_cuda(lib.cuda_register(self._engine, address, size_bytes), self.rank)

    def deregister(self, address: int) -> None:
        """Undoes register. A collective call. StepcclError."""
        check_cuda(lib.cuda_deregister(self._engine, address), self.rank)

    def check_engine(self) -> None:
        """Raises the error that ended the engine (a peer's death, a timeout). Does not block."""
        if self._engine:
            result = lib.cuda_status(self._engine)
            if result:
                check_cuda(result, self.rank)

    def allocate(self, size_bytes: int) -> int:
        """Address of device memory that all ranks see. A collective call. StepcclError."""
        pointer = c_void_p()
        check_cuda(lib.cuda_mem_alloc(self._engine, byref(pointer), size_bytes), self.rank)
        assert pointer.value is not None
        return pointer.value

    def release(self, address: int) -> None:
        """Gives memory of allocate back, once what was queued before is done."""
        with self._lock:
            if self.open and self._engine and not self.is_a_copy:
                check_cuda(lib.cuda_mem_free(self._engine, address), self.rank)

    # -- settings and state --------------------------------------------------

    def set_pipeline_depth(self, depth: int) -> None:
        check(lib.comm_set_pipeline_depth(self._comm, depth), self.rank)
        if self._engine:
            check_cuda(lib.cuda_set_pipeline_depth(self._engine, depth), self.rank)
        self._reconfigure(pipeline_depth=depth)

    def set_sm_budget(self, blocks: int) -> None:
        if self._engine:
            check_cuda(lib.cuda_set_sm_budget(self._engine, blocks), self.rank)
        self._reconfigure(sm_budget=blocks or None)

    def tune_pipeline_depth(self) -> int:
        depth, latency_us = c_uint32(), c_double()
        check(lib.comm_tune_pipeline_depth(self._comm, byref(depth), byref(latency_us)), self.rank)
        return depth.value

    def set_paging(self, page_size: int, prefetch_depth: int) -> None:
        check(lib.comm_enable_paging(self._comm, page_size, prefetch_depth), self.rank)
        if self._engine:
            check_cuda(lib.cuda_paging(self._engine, page_size, prefetch_depth), self.rank)
        self._reconfigure(page_size=page_size, prefetch_depth=prefetch_depth)

    def set_defrag(self, interval_ms: int) -> None:
        if self._engine:
            check_cuda(lib.cuda_defrag(self._engine, interval_ms), self.rank)
        self._reconfigure(defrag_interval_ms=interval_ms)

    def _reconfigure(self, **changes: Any) -> None:
        self.configuration = _settings.replace(self.configuration, **changes)

    def defrag_now(self) -> int:
        """One epoch of compaction, a collective call; bytes given back to the GPU."""
        released = c_uint64()
        check_cuda(lib.cuda_defrag_now(self._engine, byref(released)), self.rank)
        return released.value

    def info(self) -> dict[str, Any]:
        """State of the communicator, and under "gpu" and "pool" of its GPU engine where it has one."""
        raw = CommInfo()
        check(lib.comm_query(self._comm, byref(raw)), self.rank)
        found = _values(raw)
        found["transport"] = _named(TRANSPORTS, raw.transport)
        found["state"] = lib.result_code(raw.state).decode()
        if self._engine:
            gpu, pool = CudaInfo(), CudaPoolInfo()
            check_cuda(lib.cuda_query(self._engine, byref(gpu)), self.rank)
            check_cuda(lib.cuda_pool_query(self._engine, byref(pool)), self.rank)
            found["gpu"], found["pool"] = _values(gpu), _values(pool)
            found["gpu"]["async_level"] = _named(ASYNC_LEVELS, gpu.async_level)
            found["gpu"]["last_path"] = _named(PATHS, gpu.last_path)
        return found

    def explain(self, collective: str, size_bytes: int) -> str:
        """What an operation on host memory would run as, and why: one line for each algorithm."""
        if collective not in COLLECTIVES:
            raise bad_argument(f"there is no collective {collective!r}; there are {', '.join(COLLECTIVES)}")
        text = create_string_buffer(16384)
        check(lib.comm_explain(self._comm, COLLECTIVES.index(collective), size_bytes, None, None, text, len(text)), self.rank)
        return text.value.decode()

    def abort(self) -> None:
        """Ends what runs, here with R205 and elsewhere with R206. Later operations fail likewise."""
        if not self.open:
            return
        if self._engine:
            check_cuda(lib.cuda_abort(self._engine), self.rank)
        check(lib.comm_abort(self._comm), self.rank)

    def close(self) -> None:
        """Leaves: waits for the other ranks unless the communicator has failed. Does nothing the second time."""
        with self._lock:
            if not self.open:
                return
            self.open = False
            if self.is_a_copy:
                return  # a forked child (of a data loader, say) has a copy of the object, but no part in the job
            engine, self._engine = self._engine, c_void_p()
            try:
                if engine:
                    check_cuda(lib.cuda_detach(engine), self.rank)
            finally:
                check(lib.comm_destroy(self._comm), self.rank)

    @property
    def is_a_copy(self) -> bool:
        """In a forked child, which must not touch the parent's communicator."""
        return os.getpid() != self._process

    def _check_open(self) -> None:
        if self.is_a_copy:
            raise StepcclError(INVALID_USAGE, "the process group belongs to the process that this one was forked from: make one here")
        if not self.open:
            raise StepcclError(INVALID_USAGE, "the process group is closed")


def _named(names: Sequence[str], number: int) -> str:
    """The library may be newer and have more."""
    return names[number] if number < len(names) else str(number)


def _values(struct: Any) -> dict[str, Any]:
    found = {}
    for name, _ in struct._fields_[1:]:
        value = getattr(struct, name)
        found[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return found
