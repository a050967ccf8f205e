# SPDX-License-Identifier: Apache-2.0
"""What is run: stages, each one set of rank processes with its backends and cases."""
from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from .options import ZERO_SM_OPERATIONS

# Below this NCCL's zero-SM mode is far from its own default.
ZERO_SM_FROM_BYTES = 1 << 20


@dataclass(frozen=True)
class Case:
    """One measurement that both backends take turns at."""

    kind: str  # collective, memory, matmul, tensor_parallel, ddp
    operation: str = ""
    size_bytes: int = 0
    mode: str = ""

    @property
    def key(self) -> str:
        return "/".join(str(part) for part in (self.kind, self.operation, self.size_bytes or "", self.mode) if part != "")

    @property
    def family(self) -> str:
        """Cases that fail for the same reason: every size of an operation in a mode."""
        return "/".join(part for part in (self.kind, self.operation, self.mode) if part)

    def as_dict(self) -> dict[str, str | int]:
        return {"kind": self.kind, "operation": self.operation, "size_bytes": self.size_bytes, "mode": self.mode}


@dataclass(frozen=True)
class Stage:
    """One set of processes and the backends that take turns in it. StepCCL comes first."""

    name: str
    backends: tuple[str, ...]
    cases: tuple[Case, ...]
    share: float  # of the budget that is left when it starts, relative to the stages still to come
    environment: dict[str, str] = field(default_factory=dict)


# NVLink multicast stays off: on a shared host it can put GPUs out of service.
ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "STEPCCL_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}
ZERO_SM_ENVIRONMENT = {"NCCL_CTA_POLICY": "2"}


def collective_cases(operations: list[str], sizes: list[int], modes: list[str]) -> tuple[Case, ...]:
    """By size first, so that a budget that runs out leaves every operation with some sizes."""
    ordered = sorted(sizes, key=lambda size: (size not in (8, 1 << 20, 64 << 20, 1 << 30), size))
    return tuple(Case("collective", operation, size, mode) for size in ordered for operation in operations for mode in modes)


def stages(options: argparse.Namespace) -> list[Stage]:
    """The stages in the order in which they run, the ones that matter most first."""
    peer = "nccl" if options.device == "cuda" else "gloo"
    overlap = "graph" if "graph" in options.modes else "eager"
    made: list[Stage] = []
    if "collectives" in options.stages:
        # stepccl: buffers from stepccl.empty, which the other GPUs see; stepccl_plain: any tensor.
        own = ("stepccl", "stepccl_plain") if options.device == "cuda" else ("stepccl",)
        made.append(Stage("collectives", (*own, peer), collective_cases(options.operations, options.sizes, options.modes), 5.0))
    if "memory" in options.stages:
        for backend in ("stepccl", "nccl"):
            made.append(Stage(f"memory_{backend}", (backend,), (Case("memory"),), 0.6))
    if "matmul" in options.stages:
        cases = tuple(Case("matmul", operation, options.overlap_bytes) for operation in ("all_gather", "all_to_all", "all_reduce"))
        made.append(Stage("matmul", ("stepccl", "nccl"), cases, 1.2))
    zero_operations = [operation for operation in options.operations if operation in ZERO_SM_OPERATIONS]
    zero_sizes = [size for size in options.sizes if size >= ZERO_SM_FROM_BYTES]
    if "zero_sm" in options.stages and zero_operations and zero_sizes:
        cases = collective_cases(zero_operations, zero_sizes, options.modes)
        if "matmul" in options.stages:
            cases += tuple(Case("matmul", operation, options.overlap_bytes) for operation in ("all_gather", "all_to_all"))
        made.append(Stage("zero_sm", ("stepccl", "nccl_zero_sm"), cases, 2.0, dict(ZERO_SM_ENVIRONMENT)))
    model_cases = tuple(
        Case(kind, mode=overlap if kind == "tensor_parallel" else "eager") for kind in ("tensor_parallel", "ddp") if kind in options.stages
    )
    if model_cases:
        made.append(Stage("models", ("stepccl", "nccl"), model_cases, 1.5))
    return made
