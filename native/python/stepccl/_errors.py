# SPDX-License-Identifier: Apache-2.0
"""One exception for every error of the library, with its stable code."""
from __future__ import annotations

from typing import Any

import torch.distributed as dist

from ._library import ErrorInfo, byref, lib

# torch's own class for errors of a backend, where it has one: code that catches it catches these.
_Base: type[RuntimeError] = getattr(dist, "DistBackendError", RuntimeError)

INVALID_ARGUMENT = 101
INVALID_USAGE = 102
UNSUPPORTED = 103
INVALID_CONFIGURATION = 104
TIMEOUT = 203
RENDEZVOUS = 304
NO_GPU = 601
WRONG_DEVICE = 604


class StepcclError(_Base):
    """
    code: "R203" and so on, the same in logs, daemon and console. name: "timeout". rank: of this process, -1 before it has
    one. peer: the rank at fault or waited for, -1 = none. next: what to do. str() holds all of it.
    """

    def __init__(self, result: int, sentence: str, rank: int = -1, peer: int = -1, phase: int = 0) -> None:
        self.result, self.phase = result, phase
        self.code: str = lib.result_code(result).decode()
        self.name: str = lib.result_name(result).decode()
        self.next: str = lib.result_help(result).decode()
        self.rank, self.peer = rank, peer
        head = f"{self.code} {self.name}:"
        if not sentence.startswith(head):
            sentence = f"{head} {sentence}"
        super().__init__(f"{sentence.rstrip('.')}. Next: {self.next}")


def bad_argument(text: str) -> StepcclError:
    return StepcclError(INVALID_ARGUMENT, text)


def unsupported(text: str) -> StepcclError:
    return StepcclError(UNSUPPORTED, text)


def _raise(result: int, last_error: Any, rank: int) -> None:
    info = ErrorInfo()
    last_error(None, byref(info))
    # An earlier error's details are not this one's.
    sentence = info.text.decode(errors="replace") if info.code == result else "the library left no details"
    peer, phase = (info.peer, info.phase) if info.code == result else (-1, 0)
    raise StepcclError(result, sentence, rank if rank >= 0 else info.rank, peer, phase)


def check(result: int, rank: int = -1) -> None:
    """Raises what a function of stepccl.h returned in this thread, unless it is success. rank: of the communicator, if there is one."""
    if result:
        _raise(result, lib.last_error, rank)


def check_cuda(result: int, rank: int = -1) -> None:
    """The same for a function of cuda.h."""
    if result:
        _raise(result, lib.cuda_last_error, rank)
