# SPDX-License-Identifier: Apache-2.0
"""Types, reductions and tensors of PyTorch in the library's words, and what is refused."""
from __future__ import annotations

from typing import Any, Iterable, Sequence

import torch
from torch.distributed import ReduceOp

from ._errors import bad_argument, unsupported

_UINT8 = 1
# torch's names, as not every version has every type.
DATATYPES: dict[torch.dtype, int] = {
    getattr(torch, name): number
    for name, number in {
        "int8": 0, "uint8": _UINT8, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
        "float16": 6, "bfloat16": 7, "float32": 8, "float64": 9,
    }.items()
    if hasattr(torch, name)
}  # fmt: skip
SUM, PROD, MIN, MAX, AVG = range(5)
# torch's RedOpType by its number: comparing and hashing the enumeration itself costs microseconds in every call.
_KINDS: dict[str, int] = {name: member.value for name, member in ReduceOp.RedOpType.__members__.items()}
_NAMES = {number: name for name, number in _KINDS.items()}
_PREMUL_SUM = _KINDS.get("PREMUL_SUM", -1)
_REDUCTIONS: dict[tuple[int, torch.dtype], tuple[int, int]] = {
    (_KINDS[name], dtype): (datatype, redop)
    for name, redop in (("SUM", SUM), ("PRODUCT", PROD), ("MIN", MIN), ("MAX", MAX), ("AVG", AVG), ("PREMUL_SUM", SUM))
    if name in _KINDS
    for dtype, datatype in DATATYPES.items()
}
# On bool, stored as 0 and 1: OR and AND.
_REDUCTIONS.update({(_KINDS[name], torch.bool): (_UINT8, MAX) for name in ("SUM", "MAX", "BOR")})
_REDUCTIONS.update({(_KINDS[name], torch.bool): (_UINT8, MIN) for name in ("PRODUCT", "MIN", "BAND")})


def reduction(opts: Any, dtype: torch.dtype) -> tuple[int, int, Any]:
    """
    (datatype, redop, factor) of an options object's reduceOp (SUM without one) on a type. factor: a number or tensor that the
    input is multiplied with first (PREMUL_SUM), None mostly. StepcclError R103 where there is no such reduction.
    """
    op = getattr(opts, "reduceOp", None)
    number = _KINDS["SUM"] if op is None else getattr(op, "op", op).value
    try:
        datatype, redop = _REDUCTIONS[number, dtype]
    except KeyError:
        raise unsupported(f"there is no {_NAMES.get(number, number)} of {dtype}") from None
    return datatype, redop, _factor(op) if number == _PREMUL_SUM else None


def _factor(op: Any) -> Any:
    """Of a PREMUL_SUM; torch shows it in what it pickles only, from 2.0 on."""
    state = op.__getstate__()
    if not isinstance(state, tuple):
        raise unsupported("this version of torch does not tell the factor of PREMUL_SUM: multiply before a SUM")
    return state[1]


def movement(dtype: torch.dtype, elements: int, element_size: int) -> tuple[int, int]:
    """(datatype, count) to move elements of any type; those that the library does not know travel as bytes."""
    known = DATATYPES.get(dtype)
    return (known, elements) if known is not None else (_UINT8, elements * element_size)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Contiguous, or in the channels-last order: the elements fill their memory without a gap."""
    if tensor.is_contiguous():
        return True
    if tensor.dim() == 4:
        return tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d)


def check_tensor(tensor: Any, name: str, dense: bool = False) -> torch.Tensor:
    """
    Refuses (R101) what is no plain, contiguous tensor on CPU or CUDA. dense: channels-last will do too, where the tensor has the
    same layout on all ranks and no place in it means a rank.
    """
    if not isinstance(tensor, torch.Tensor):
        raise bad_argument(f"{name} is a {type(tensor).__name__}, and must be a tensor")
    if tensor.layout is not torch.strided:
        raise bad_argument(f"{name} is {tensor.layout}, and must be dense: call .to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise bad_argument(f"{name} is on {tensor.device}, and must be on cpu or cuda")
    if not (_is_dense(tensor) if dense else tensor.is_contiguous()):
        raise bad_argument(f"{name} is not contiguous (strides {tuple(tensor.stride())}): call .contiguous() before the collective")
    return tensor


def check_alike(tensors: Sequence[torch.Tensor], name: str) -> None:
    """Refuses tensors of one operation that differ in device or type."""
    first = tensors[0]
    for tensor in tensors:
        if tensor.device != first.device:
            raise bad_argument(f"{name} are on {first.device} and on {tensor.device}, and must be on one device")
        if tensor.dtype != first.dtype:
            raise bad_argument(f"{name} are {first.dtype} and {tensor.dtype}, and must be of one type")


def check_elements(tensor: torch.Tensor, name: str, wanted: int) -> None:
    """Refuses a tensor of another size."""
    if tensor.numel() != wanted:
        raise bad_argument(f"{name} has {tensor.numel()} elements, and must have {wanted}")


def one(tensors: Sequence[Any], name: str) -> Any:
    """The only entry of a list that the interface of torch wants to be a list."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) != 1:
        raise bad_argument(f"{name} must be a list of one")
    return tensors[0]


def lie_in_row(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the tensors lie one behind the other in memory, so that the first address stands for all."""
    place = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != place:
            return False
        place += tensor.numel() * tensor.element_size()
    return True


def offsets(counts: Iterable[int]) -> list[int]:
    """Where each block begins when they lie one behind the other."""
    begin, found = 0, []
    for count in counts:
        found.append(begin)
        begin += count
    return found
