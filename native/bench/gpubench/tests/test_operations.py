# SPDX-License-Identifier: Apache-2.0
"""The check finds what is wrong; and the whole script, on host memory against Gloo."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python (Debian: python3-torch)")

from gpubench.operations import Operation  # noqa: E402
from gpubench.options import OPERATIONS  # noqa: E402

WORLD = 3
HAS_RESULT = {"reduce": (0,), "gather": (0,)}


def right(name: str, rank: int, elements: int, seed: int) -> torch.Tensor:
    """The result by the operation's definition, from the inputs of all ranks."""
    made = []
    for other in range(WORLD):
        operation = Operation(name, elements * 2, other, WORLD, torch.bfloat16, torch.device("cpu"))
        operation.fill(seed)
        made.append(operation)
    inputs = [operation.input for operation in made]
    part = made[0].part
    if name in ("all_reduce", "reduce"):
        return sum(tensor.double() for tensor in inputs).to(torch.bfloat16)
    if name == "reduce_scatter":
        return sum(tensor.double() for tensor in inputs)[rank * part : (rank + 1) * part].to(torch.bfloat16)
    if name in ("all_gather", "gather"):
        return torch.cat(inputs)
    if name == "all_to_all":
        return torch.cat([tensor[rank * part : (rank + 1) * part] for tensor in inputs])
    if name == "scatter":
        return inputs[0][rank * part : (rank + 1) * part]
    return inputs[0] if name == "broadcast" else inputs[(rank - 1) % WORLD]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("elements", [1, 1000])
def test_the_check(name: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubench.operations.CHECK_ELEMENTS", 257)  # several pieces
    for rank in range(WORLD):
        operation = Operation(name, elements * 2, rank, WORLD, torch.bfloat16, torch.device("cpu"))
        operation.fill(5)
        if rank not in HAS_RESULT.get(name, (rank,)):
            assert operation.wrong(5) == 0
            continue
        if not operation.in_place:
            assert operation.wrong(5) == operation.output.numel()  # nothing was written
        operation.output.copy_(right(name, rank, elements, 5))
        assert operation.wrong(5) == 0
        operation.output[-1] = float("nan")
        assert operation.wrong(5) == 1
        operation.output.copy_(right(name, rank, elements, 6))
        assert operation.wrong(5) > 0.5 * operation.output.numel()


def test_the_whole_script_on_host_memory(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    script = Path(__file__).resolve().parents[2] / "gpu_vs_nccl.py"
    done = subprocess.run(
        [sys.executable, str(script), "--device", "cpu", "--sizes", "8,64K", "--turns", "3", "--turn-ms", "1", "--dtype", "float32", "--budget-s", "60", "--output", str(output)],
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(output.read_text())
    assert set(document["ratios"]) == {"all_reduce", "broadcast"}
    assert set(document["ratios"]["all_reduce"]) == {"8", "65536"}
    assert document["wrong_elements"] == {"stepccl": 0, "gloo": 0}
    assert document["errors"] == [] and document["left_out"] == []
    assert document["versions"]["stepccl"] and "| all_reduce | 64 KiB | eager |" in done.stdout


def test_no_gpu_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    script = Path(__file__).resolve().parents[2] / "gpu_vs_nccl.py"
    done = subprocess.run([sys.executable, str(script), "--output", str(tmp_path / "x.json")], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "There is no NVIDIA GPU here" in done.stderr
    assert not (tmp_path / "x.json").exists()
