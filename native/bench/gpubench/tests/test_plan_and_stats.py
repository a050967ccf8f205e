# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse

import pytest
from gpubench import options, plan, stats


def test_percentiles() -> None:
    assert stats.median([3.0, 1.0, 2.0]) == 2.0
    assert stats.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert stats.percentile([0.0, 10.0], 0.1) == pytest.approx(1.0)
    assert stats.percentile([5.0], 0.9) == 5.0
    with pytest.raises(ValueError):
        stats.percentile([], 0.5)
    with pytest.raises(ValueError):
        stats.percentile([1.0], 1.5)


def test_the_slowest_rank_counts_in_each_turn() -> None:
    assert stats.slowest_rank([[1.0, 5.0], [2.0, 3.0]]) == [2.0, 5.0]
    with pytest.raises(ValueError):
        stats.slowest_rank([[1.0], [1.0, 2.0]])


def test_ratio_is_of_medians_and_its_spread_of_pairs() -> None:
    found = stats.ratio([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    assert found.value == 1.0
    assert (found.low, found.high) == (pytest.approx(0.6), pytest.approx(1.4))
    with pytest.raises(ValueError):
        stats.ratio([1.0], [1.0, 2.0])
    with pytest.raises(ValueError):
        stats.ratio([1.0], [0.0])


def test_bandwidths_are_those_of_nccl_tests() -> None:
    assert stats.bandwidths_gbps("all_reduce", 1 << 30, 2000.0, 2) == (pytest.approx(536.87, rel=1e-4), pytest.approx(536.87, rel=1e-4))
    algbw, busbw = stats.bandwidths_gbps("all_gather", 1 << 30, 1000.0, 4)
    assert busbw == pytest.approx(algbw * 0.75)


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("64K", 65536), ("1MiB", 1 << 20), ("2g", 2 << 30), ("12B", 12)])
def test_sizes(text: str, size: int) -> None:
    assert options.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-8", "8X", "1.5M", "M"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.parse_size(text)


def test_size_names() -> None:
    assert [options.size_name(size) for size in (8, 1 << 10, 3 << 20, 1 << 30, 1025)] == ["8 B", "1 KiB", "3 MiB", "1 GiB", "1025 B"]


@pytest.mark.parametrize("arguments", [["--ranks", "1"], ["--operations", "all_shuffle"], ["--sizes", "x"], ["--turns", "0"], ["--budget-s", "0"], ["--stages", ""], ["--device", "cpu", "--operations", "all_to_all"]])
def test_bad_command_lines_end_with_2(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        options.parse(arguments)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_default_plan() -> None:
    made = plan.stages(options.parse([]))
    names = [stage.name for stage in made]
    assert names == ["collectives", "memory_stepccl", "memory_nccl", "matmul", "zero_sm", "models"]
    collectives, zero = made[0], made[names.index("zero_sm")]
    assert collectives.backends == ("stepccl", "stepccl_plain", "nccl") and len(collectives.cases) == 5 * 8 * 2
    assert len({case.key for case in collectives.cases}) == len(collectives.cases)
    # A short budget still sees small and large sizes of every operation.
    assert {case.size_bytes for case in collectives.cases[: 4 * 10]} == {8, 1 << 20, 64 << 20, 1 << 30}
    assert zero.environment == {"NCCL_CTA_POLICY": "2"} and {case.operation for case in zero.cases} == {"all_gather", "all_to_all"}
    assert all(case.size_bytes >= 1 << 20 for case in zero.cases)
    assert all(stage.backends == (stage.name.split("_")[1],) for stage in made if stage.name.startswith("memory"))


def test_plan_of_a_part() -> None:
    made = plan.stages(options.parse(["--operations", "all_reduce", "--modes", "eager", "--stages", "collectives,zero_sm", "--sizes", "8,1K"]))
    assert [stage.name for stage in made] == ["collectives"]
    assert [case.key for case in made[0].cases] == ["collective/all_reduce/8/eager", "collective/all_reduce/1024/eager"]


def test_plan_on_host_memory() -> None:
    made = plan.stages(options.parse(["--device", "cpu"]))
    assert [stage.backends for stage in made] == [("stepccl", "gloo")]
    assert {case.mode for case in made[0].cases} == {"eager"}


def test_multicast_stays_off() -> None:
    assert plan.ENVIRONMENT["NCCL_NVLS_ENABLE"] == "0" and plan.ENVIRONMENT["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"
