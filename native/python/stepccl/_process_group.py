# SPDX-License-Identifier: Apache-2.0
"""The backend "stepccl" of torch.distributed: how ranks meet, and the class that torch drives."""
from __future__ import annotations

import atexit
import functools
import time
import weakref
from datetime import timedelta
from typing import Any, Iterable, Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import _memory, _settings
from ._collectives import Collectives
from ._communicator import Communicator
from ._errors import RENDEZVOUS, StepcclError, bad_argument, check
from ._library import UniqueId, byref, lib

NAME = "stepccl"
_KEY = "stepccl/unique_id"
_ID, _FAILED = b"I", b"E"
# Creation waits for other processes at most so long, also where operations may take longer.
_MOST_JOIN_S = 300.0
_LEAVE_S = 30.0

_groups: "weakref.WeakSet[ProcessGroupStepCCL]" = weakref.WeakSet()


def _meet(store: Any, rank: int, world: int, timeout: timedelta, configuration: _settings.Configuration) -> Communicator:
    """
    Rank 0 makes the unique id and leaves it in the store for the others. The id holds the job's secret: whoever can read the
    store while the ranks join can join too, so it goes when they have.
    """
    unique_id = UniqueId()
    if rank == 0:
        try:
            check(lib.unique_id_create(None, byref(unique_id)))
        except StepcclError as problem:
            if world > 1:
                store.set(_KEY, _FAILED + str(problem).encode())
            raise
        if world > 1:
            store.set(_KEY, _ID + bytes(unique_id.bytes))
    else:
        value = bytes(_fetch(store, timeout))
        if value[:1] != _ID or len(value) != 1 + len(bytes(unique_id.bytes)):
            said = value[1:].decode(errors="replace") if value[:1] == _FAILED else "what is in the store is no unique id"
            raise StepcclError(RENDEZVOUS, f"rank 0 could not begin: {said}", rank, 0)
        unique_id = UniqueId.from_buffer_copy(value[1:])
    try:
        return Communicator(unique_id, rank, world, timeout.total_seconds(), configuration)
    finally:
        if rank == 0 and world > 1:
            store.delete_key(_KEY)


def _fetch(store: Any, timeout: timedelta) -> bytes:
    try:
        store.wait([_KEY], min(timeout, timedelta(seconds=_MOST_JOIN_S)))
    except RuntimeError as problem:
        raise StepcclError(RENDEZVOUS, f"rank 0 has left no unique id in torch's store: {problem}", peer=0) from problem
    return store.get(_KEY)


class ProcessGroupStepCCL(Collectives, dist.ProcessGroup):
    """What init_process_group and new_group give for backend="stepccl". Made by every member at once."""

    def __init__(self, store: Any, rank: int, world: int, timeout: timedelta, options: Any = None) -> None:
        dist.ProcessGroup.__init__(self, rank, world)
        self._name = self._description = ""
        self.communicator = _meet(store, rank, world, timeout, _settings.from_options(options))
        self._prepare()
        self._registered: dict[int, torch.Tensor] = {}
        self._windows = _memory.WindowCache(self.communicator)
        _groups.add(self)

    # The names that C++ code calls.
    def getBackendName(self) -> str:
        return NAME

    def getRank(self) -> int:
        return self.communicator.rank

    def getSize(self) -> int:
        return self.communicator.world

    # torch leaves a group's names to backends that are registered in C++, of which this group has none. Below under the
    # names that C++ calls, and as Python callers know them.
    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    # The same for Python callers, without a way through C++.
    def name(self) -> str:
        return NAME

    def rank(self) -> int:
        return self.communicator.rank

    def size(self) -> int:
        return self.communicator.world

    def _get_backend_name(self) -> str:
        return NAME

    # torch asks the backend of a device for abilities; this group is its own backend on every device.
    def _get_backend(self, device: Any) -> "ProcessGroupStepCCL":
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError(f"the backend {NAME} does not work on {device}")
        return self

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        return torch.device(device).type == "cuda" and lib.has_cuda

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
        """A tensor of `size` elements that all ranks see; every rank asks for the same sizes in the same order."""
        return self._windows.empty(size, dtype, torch.device(device))

    # Newer names of torch for the same operations.
    all_gather_single = Collectives._allgather_base
    all_gather_single_coalesced = Collectives.allgather_into_tensor_coalesced
    reduce_scatter_single = Collectives._reduce_scatter_base
    reduce_scatter_single_coalesced = Collectives.reduce_scatter_tensor_coalesced
    all_to_all_single = Collectives.alltoall_base
    start_coalescing = Collectives._start_coalescing
    end_coalescing = Collectives._end_coalescing

    def abort(self) -> None:
        """Ends what runs: here with R205, on the other ranks with R206."""
        self.communicator.abort()

    def shutdown(self) -> None:
        """
        Waits for what runs, then leaves; destroy_process_group calls it. What has not ended after a while (a receive without
        its message, say) is aborted.
        """
        if not self.communicator.open:
            return
        if self.communicator.is_a_copy:
            self.communicator.close()
            return
        until = time.monotonic() + _LEAVE_S
        # Errors are for the handles' owners.
        if not all([work._wait(max(1, int((until - time.monotonic()) * 1000))) for work in list(self._running)]):
            self.communicator.abort()
            for work in self._running:
                work._wait(0)
        self._running.clear()
        self._completer.close()
        self.communicator.close()

    _shutdown = shutdown

    def __del__(self) -> None:
        if getattr(self, "communicator", None) is not None:
            self.shutdown()


def create(options: Any, pg_options: Any) -> ProcessGroupStepCCL:
    """torch's creator function, in its extended form."""
    return ProcessGroupStepCCL(options.store, options.group_rank, options.group_size, options.timeout, pg_options)


def register() -> None:
    """Makes the backend known to torch.distributed, once."""
    if NAME.upper() in distributed_c10d.Backend._plugins:
        return
    try:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    except TypeError:  # before torch 2.0 a backend had no devices
        dist.Backend.register_backend(NAME, create, extended_api=True)
    _batch_messages()
    if not hasattr(dist.ProcessGroup, "shutdown"):
        _leave_on_destroy()
    atexit.register(_leave)


def _batch_messages() -> None:
    """
    torch coalesces batch_isend_irecv only for its own class of group and issues the messages one by one for others; on a
    stream two ranks that both send first would wait for each other. For our groups this does the coalescing.
    """
    original = distributed_c10d.batch_isend_irecv

    @functools.wraps(original)
    def batch_isend_irecv(p2p_op_list: Sequence[Any]) -> list[Any]:
        group = p2p_op_list[0].group if p2p_op_list else None
        if group is None and dist.is_initialized():
            group = dist.group.WORLD
        if not isinstance(group, ProcessGroupStepCCL):
            return original(p2p_op_list)
        distributed_c10d._check_p2p_op_list(p2p_op_list)
        group._start_coalescing(p2p_op_list[0].tensor.device)
        try:
            works = [op.op(op.tensor, op.peer, op.group, op.tag) for op in p2p_op_list]
        except BaseException:
            group._drop_coalescing()
            raise
        together = group._end_coalescing()
        return [together] if p2p_op_list[0].tensor.is_cuda else works

    distributed_c10d.batch_isend_irecv = batch_isend_irecv
    dist.batch_isend_irecv = batch_isend_irecv


def _leave_on_destroy() -> None:
    """Older versions of torch only drop their references to a group; others (DDP's, say) would keep it in the job."""
    original = distributed_c10d.destroy_process_group

    @functools.wraps(original)
    def destroy_process_group(group: Any = None) -> None:
        leaving = list(_groups) if group is None or group is dist.group.WORLD else [group]
        original(group)
        _shut_down(one for one in leaving if isinstance(one, ProcessGroupStepCCL))

    distributed_c10d.destroy_process_group = destroy_process_group
    dist.destroy_process_group = destroy_process_group


def _shut_down(groups: Iterable[ProcessGroupStepCCL]) -> None:
    """The youngest first, on every rank alike."""
    for group in sorted(groups, key=lambda one: one.communicator.number, reverse=True):
        group.shutdown()


def _leave() -> None:
    """At the interpreter's end: groups that nobody destroyed leave, so that the other ranks do not take it for a death."""
    _shut_down(list(_groups))


def group_of(group: Any = None) -> ProcessGroupStepCCL:
    """A group of ours: the one given, or the default group. StepcclError R101 for any other."""
    group = group if group is not None else dist.group.WORLD
    if not isinstance(group, ProcessGroupStepCCL):
        raise bad_argument(f"the group is {type(group).__name__}, and must be one of the backend {NAME}")
    return group
