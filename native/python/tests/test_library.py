# SPDX-License-Identifier: Apache-2.0
"""The ctypes structs have the layout of the C headers, as a C compiler sees them."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stepccl import _communicator, _errors, _library, _settings, _types
from stepccl._errors import StepcclError

INCLUDE = Path(__file__).resolve().parents[2] / "include"
STRUCTS = {
    "stepccl_unique_id_t": _library.UniqueId,
    "stepccl_config_t": _library.Config,
    "stepccl_call_t": _library.Call,
    "stepccl_comm_info_t": _library.CommInfo,
    "stepccl_error_info_t": _library.ErrorInfo,
    "stepccl_cuda_config_t": _library.CudaConfig,
    "stepccl_cuda_info_t": _library.CudaInfo,
    "stepccl_cuda_pool_info_t": _library.CudaPoolInfo,
    "stepccl_cuda_call_t": _library.CudaCall,
    "stepccl_cuda_receipt_t": _library.CudaReceipt,
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_structs_lie_as_in_c(tmp_path: Path) -> None:
    lines = ["#include <stdio.h>", "#include <stddef.h>", '#include "stepccl/stepccl.h"', '#include "stepccl/cuda.h"', "int main(void) {"]
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
    lines.append("return 0; }")
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines))
    subprocess.run(["cc", "-std=c11", f"-I{INCLUDE}", str(source), "-o", str(tmp_path / "layout")], check=True)
    seen = dict(line.split() for line in subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True, text=True).stdout.splitlines())
    import ctypes

    for name, struct in STRUCTS.items():
        # A struct may have grown at its end: its size member says which version this package speaks.
        assert int(seen[name]) >= ctypes.sizeof(struct), name
        for field, *_ in struct._fields_:
            assert int(seen[f"{name}.{field}"]) == getattr(struct, field).offset, f"{name}.{field}"


@pytest.mark.parametrize(
    ("prefix", "header", "names"),
    [
        ("STEPCCL_CUDA_PATH_", "cuda.h", _communicator.PATHS),
        ("STEPCCL_CUDA_ASYNC_", "cuda.h", _communicator.ASYNC_LEVELS),
        ("STEPCCL_TRANSPORT_", "telemetry.h", _communicator.TRANSPORTS),
    ],
)
def test_names_are_those_of_the_headers(prefix: str, header: str, names: tuple[str, ...]) -> None:
    text = (INCLUDE / "stepccl" / header).read_text()
    found = {int(number): name.lower() for name, number in re.findall(rf"\b{prefix}(\w+) = (\d+)", text)}
    assert [found[number] for number in sorted(found)][: len(names)] == list(names)  # the library may have more


def test_numbers_are_those_of_the_header() -> None:
    text = (INCLUDE / "stepccl" / "stepccl.h").read_text()
    numbers = {name: int(number) for name, number in re.findall(r"\bSTEPCCL_(\w+) = (\d+)", text)}
    for dtype, number in _types.DATATYPES.items():
        assert numbers[str(dtype).split(".")[1].upper()] == number
    assert [numbers[name] for name in ("SUM", "PROD", "MIN", "MAX", "AVG")] == [_types.SUM, _types.PROD, _types.MIN, _types.MAX, _types.AVG]
    assert [numbers[name.upper()] for name in _communicator.COLLECTIVES] == list(range(len(_communicator.COLLECTIVES)))
    for name in ("INVALID_ARGUMENT", "INVALID_USAGE", "UNSUPPORTED", "INVALID_CONFIGURATION", "TIMEOUT", "RENDEZVOUS", "NO_GPU", "WRONG_DEVICE"):
        assert numbers[f"ERROR_{name}"] == getattr(_errors, name)


def test_errors_carry_the_stable_code() -> None:
    problem = StepcclError(203, "nobody came", rank=1, peer=2)
    assert (problem.code, problem.name, problem.rank, problem.peer) == ("R203", "timeout", 1, 2)
    assert str(problem).startswith("R203 timeout: nobody came. Next: ")
    # The library's own sentences have the code already.
    assert str(StepcclError(203, "R203 timeout: nobody came.")) == str(problem)


@pytest.mark.parametrize(
    "arguments",
    [
        {"buffer_size": 0},
        {"buffer_size": True},
        {"hbm_cache_ratio": 0},
        {"hbm_cache_ratio": 1.5},
        {"sm_budget": 33},
        {"compression": "zip"},
        {"enable_dma": 1},
        {"job_name": "a\0b"},
        {"graph_lanes": "4"},
    ],
)
def test_configure_refuses(arguments: dict) -> None:
    before = _settings.current()
    with pytest.raises(StepcclError, match=f"^R101 .*{next(iter(arguments))}"):
        _settings.configure(**arguments)
    assert _settings.current() == before


def test_configure_keeps_what_is_not_given() -> None:
    try:
        _settings.configure(buffer_size=1 << 30, enable_dma=False, hbm_cache_ratio=0.2)
        _settings.configure(sm_budget=8)
        set_now = _settings.current()
        assert (set_now.buffer_size, set_now.enable_dma, set_now.hbm_cache_ratio, set_now.sm_budget) == (1 << 30, False, 0.2, 8)
        assert set_now.cuda(3, 5).pool_bytes == 1 << 30 and set_now.cuda(3, 5).device == 3
        assert set_now.host(5).transports == 0b1110  # shared memory, TCP, RDMA; not the DMA driver
    finally:
        _settings.reset_configuration()
    assert _settings.current().host(5).transports == 0


@pytest.mark.parametrize("call", [lambda: _settings.enable_paging(page_size=1 << 20), lambda: _settings.enable_paging(prefetch_depth=0), lambda: _settings.enable_paging(prefetch_depth=16), lambda: _settings.enable_hbm_defrag(-1), lambda: _settings.set_pipeline_depth(65), lambda: _settings.set_pipeline_depth("fast"), lambda: _settings.set_sm_budget(33)])
def test_bad_settings_are_refused(call) -> None:
    before = _settings.current()
    with pytest.raises(StepcclError, match="^R101 "):
        call()
    assert _settings.current() == before


def test_settings_reach_later_groups() -> None:
    try:
        _settings.set_pipeline_depth(8)
        _settings.enable_paging(page_size=4 << 20, prefetch_depth=3)
        _settings.enable_hbm_defrag(interval=250)
        _settings.set_sm_budget(8)
        assert _settings.current().cuda(0, 1000).sm_budget == 8
        config = _settings.current().host(1000)
        assert (config.pipeline_depth, config.page_bytes, config.prefetch_depth) == (8, 4 << 20, 3)
        assert _settings.current().defrag_interval_ms == 250
    finally:
        _settings.reset_configuration()


def test_options_of_a_group() -> None:
    assert _settings.from_options(None) == _settings.current()
    assert _settings.from_options({"sm_budget": 4}).sm_budget == 4
    with pytest.raises(StepcclError, match="^R104 .*smbudget"):
        _settings.from_options({"smbudget": 4})
    with pytest.raises(StepcclError, match="^R104 "):
        _settings.from_options(17)


def test_times_fit_the_library() -> None:
    assert _settings.timeout_ms(1800.0) == 1_800_000
    assert _settings.timeout_ms(0.0) == 1
    assert _settings.timeout_ms(1e9) == 0xFFFFFFFE


def test_autoload_only_warns_without_the_library(tmp_path: Path) -> None:
    program = "import warnings; warnings.simplefilter('error'); import stepccl_autoload as a\ntry:\n    a.autoload()\nexcept RuntimeWarning as w:\n    print('warned', w)"
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "STEPCCL_LIBRARY": str(tmp_path / "nothing.so")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("warned the backend stepccl is not available: libstepccl can't be loaded")
