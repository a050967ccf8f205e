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
REDUCTIONS: dict[Any, int] = {
    ReduceOp.RedOpType.SUM: SUM,
    ReduceOp.RedOpType.PRODUCT: PROD,
    ReduceOp.RedOpType.MIN: MIN,
    ReduceOp.RedOpType.MAX: MAX,
    ReduceOp.RedOpType.AVG: AVG,
}
# On bool, stored as 0 and 1: OR and AND.
_BOOL_REDUCTIONS: dict[Any, int] = {
    ReduceOp.RedOpType.SUM: MAX,
    ReduceOp.RedOpType.MAX: MAX,
    ReduceOp.RedOpType.BOR: MAX,
    ReduceOp.RedOpType.PRODUCT: MIN,
    ReduceOp.RedOpType.MIN: MIN,
    ReduceOp.RedOpType.BAND: MIN,
}


def kind_of(op: Any) -> Any:
    """The RedOpType of a ReduceOp."""
    return op.op if hasattr(op, "op") else op


def reduction(op: Any, dtype: torch.dtype) -> tuple[int, int]:
    """(datatype, redop) of the library for a reduction of this type. StepcclError R103 where there is none."""
    kind = kind_of(op)
    if dtype is torch.bool:
        if kind in _BOOL_REDUCTIONS:
            return _UINT8, _BOOL_REDUCTIONS[kind]
    elif dtype in DATATYPES and kind in REDUCTIONS:
        return DATATYPES[dtype], REDUCTIONS[kind]
    raise unsupported(f"there is no {str(kind).rsplit('.', 1)[-1]} of {dtype}")


def premultiplier(op: Any) -> Any:
    """The factor (a number or a tensor) of ReduceOp.PREMUL_SUM, None for every other reduction."""
    premul = getattr(ReduceOp.RedOpType, "PREMUL_SUM", None)
    return op.__getstate__()[1] if premul is not None and kind_of(op) == premul else None


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
