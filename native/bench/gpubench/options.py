# SPDX-License-Identifier: Apache-2.0
"""Command line of gpu_vs_nccl.py."""
from __future__ import annotations

import argparse
import re
from pathlib import Path

DEFAULT_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
OPERATIONS = DEFAULT_OPERATIONS + ("reduce", "gather", "scatter", "send_recv")
# NCCL's zero-SM mode moves data only; for the rest it is slower than NCCL's default.
ZERO_SM_OPERATIONS = ("all_gather", "all_to_all", "gather", "scatter")
MODES = ("eager", "graph")
STAGES = ("collectives", "zero_sm", "memory", "matmul", "tensor_parallel", "ddp")
UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20, "G": 1 << 30, "GIB": 1 << 30}


def parse_size(text: str) -> int:
    """'8', '64K', '1MiB', '1G' -> bytes (binary units). argparse.ArgumentTypeError for anything else."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip())
    if not match or match.group(2).upper() not in UNITS or int(match.group(1)) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 8, 64K, 16M or 1G")
    return int(match.group(1)) * UNITS[match.group(2).upper()]


def size_name(size_bytes: int) -> str:
    """The shortest exact name in binary units: 65536 -> '64 KiB'."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def _list_of(known: tuple[str, ...]):
    def parse(text: str) -> list[str]:
        names = list(known) if text == "all" else [name for name in text.split(",") if name]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        if not names:
            raise argparse.ArgumentTypeError("the list is empty")
        return names

    return parse


def parser() -> argparse.ArgumentParser:
    """Every option of the benchmark, with its default."""
    p = argparse.ArgumentParser(
        prog="gpu_vs_nccl.py",
        description="Times StepCCL and NCCL in turns in the same processes, one process a GPU, and checks every element.",
    )
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: StepCCL against Gloo on host memory, to try the script out")
    p.add_argument("--ranks", type=int, default=0, help="processes, one a GPU (0 = all GPUs; with --device cpu: 2)")
    p.add_argument("--operations", type=_list_of(OPERATIONS), default=list(DEFAULT_OPERATIONS), help=f"comma list or all: {', '.join(OPERATIONS)}")
    p.add_argument(
        "--sizes",
        type=lambda text: sorted({parse_size(part) for part in text.split(",")}),
        default=[8, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30],
        help="comma list of sizes of the whole array, e.g. 8,64K,1M,1G",
    )
    p.add_argument("--modes", type=_list_of(MODES), default=list(MODES), help="eager, graph or both")
    p.add_argument("--stages", type=_list_of(STAGES), default=list(STAGES), help=f"comma list or all: {', '.join(STAGES)}")
    p.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    p.add_argument("--turns", type=int, default=9, help="turns of each backend for each case")
    p.add_argument("--turn-ms", type=float, default=6.0, help="about how long one turn takes")
    p.add_argument("--graph-calls", type=int, default=20, help="calls in one CUDA graph")
    p.add_argument("--overlap-turns", type=int, default=15, help="turns of the matmul, tensor-parallel and DDP stages")
    p.add_argument("--matmul-size", type=int, default=8192, help="n of the n x n x n product")
    p.add_argument("--overlap-bytes", type=parse_size, default=256 << 20, help="size of the collectives beside the product")
    p.add_argument("--budget-s", type=float, default=450.0, help="seconds for everything; cases that do not fit are left out and named")
    p.add_argument("--case-timeout-s", type=float, default=60.0, help="seconds without any news after which the ranks are ended")
    p.add_argument("--seed", type=int, default=None, help="of the random data (default: new each time)")
    p.add_argument("--output", type=Path, default=None, help="JSON file (default: native/bench/results/gpu-<date>.json)")
    return p


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Checked options; exits with status 2 and a sentence for bad ones."""
    p = parser()
    options = p.parse_args(arguments)
    if options.ranks < 0 or options.ranks == 1:
        p.error("--ranks must be 0 or at least 2")
    for name in ("turns", "graph_calls", "overlap_turns", "matmul_size"):
        if getattr(options, name) < 1:
            p.error(f"--{name.replace('_', '-')} must be at least 1")
    for name in ("turn_ms", "budget_s", "case_timeout_s"):
        if not getattr(options, name) > 0:
            p.error(f"--{name.replace('_', '-')} must be above 0")
    if options.device == "cpu":
        options.modes = ["eager"]
        options.stages = [stage for stage in options.stages if stage == "collectives"]
        if not options.stages:
            p.error("--device cpu knows the stage collectives only")
        # Gloo has no reduce_scatter_tensor and all_to_all_single on every version.
        options.operations = [name for name in options.operations if name in ("all_reduce", "broadcast")]
        if not options.operations:
            p.error("--device cpu knows the operations all_reduce and broadcast only")
    return options
