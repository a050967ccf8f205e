# SPDX-License-Identifier: Apache-2.0
"""One exception for every error of the library, with its stable code."""
from __future__ import annotations

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


def _details(result: int, info: ErrorInfo) -> StepcclError:
    if info.code != result:  # the details belong to an earlier error
        return StepcclError(result, "the library left no details")
    return StepcclError(result, info.text.decode(errors="replace"), info.rank, info.peer, info.phase)


def check(result: int, rank: int = -1) -> None:
    """Raises what a function of stepccl.h returned in this thread, unless it is success. rank: of the communicator, if there is one."""
    if result:
        info = ErrorInfo()
        lib.last_error(None, byref(info))
        problem = _details(result, info)
        problem.rank = rank if rank >= 0 else problem.rank
        raise problem


def check_cuda(result: int, engine: object = None) -> None:
    """Raises what a function of cuda.h returned, unless it is success."""
    if result:
        info = ErrorInfo()
        lib.cuda_last_error(engine, byref(info))
        raise _details(result, info)
