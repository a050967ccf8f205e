# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpubench.report import Results, markdown


def row(operation: str, size: int, mode: str, times: dict, wrong: int = 0) -> dict:
    return {
        "event": "row", "stage": "collectives", "case": f"collective/{operation}/{size}/{mode}", "kind": "collective", "operation": operation,
        "size_bytes": size, "mode": mode, "bytes": size, "times_us": times, "wrong": {name: wrong for name in times}, "calls_a_turn": 10,
    }  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Results:
    made = Results(tmp_path / "deep" / "out.json", {"date": "2026-01-01"}, 2)
    made.add(row("all_gather", 64 << 20, "eager", {"stepccl": [80.0, 82.0, 84.0], "stepccl_plain": [90.0] * 3, "nccl": [100.0] * 3}))
    made.add(row("all_gather", 64 << 20, "eager", {"stepccl": [82.0] * 3, "nccl_zero_sm": [90.0] * 3}))
    made.add(row("all_reduce", 8, "graph", {"stepccl": [5.0] * 3, "nccl": [10.0] * 3}))
    return made


def test_the_better_mode_of_the_peer_counts(results: Results) -> None:
    document = json.loads(results.path.read_text())
    assert document["ratios"]["all_gather"][str(64 << 20)]["eager"] == round(82 / 90, 4)
    detail = next(entry for entry in document["ratio_details"] if entry["operation"] == "all_gather")
    assert detail["peer"] == "nccl_zero_sm"
    assert document["ratios_plain_buffers"] == {"all_gather": {str(64 << 20): {"eager": 0.9}}}
    assert document["ratios"]["all_reduce"]["8"]["graph"] == 0.5


def test_rows_are_kept_as_summaries(results: Results) -> None:
    kept = json.loads(results.path.read_text())["rows"][0]
    assert "times_us" not in kept
    assert kept["times"]["stepccl"]["median_us"] == 82.0 and kept["times"]["stepccl"]["turns"] == 3
    assert kept["times"]["nccl"]["algbw_GBps"] == pytest.approx((64 << 20) / 100 / 1e3, rel=1e-3)
    assert kept["times"]["nccl"]["busbw_GBps"] == pytest.approx(kept["times"]["nccl"]["algbw_GBps"] / 2, rel=1e-3)


def test_goals_know_what_was_not_measured(results: Results) -> None:
    goals = {goal["goal"]: goal for goal in results.goals()}
    assert goals["AllReduce up to 1 MiB in graphs"]["met"] is True
    assert goals["AllGather from 64 MiB"]["met"] is False
    assert goals["Broadcast from 64 MiB"]["met"] is None and goals["GPU memory held"]["worst"] is None


def test_memory_and_matmul(results: Results) -> None:
    for backend, size in (("stepccl", 50), ("nccl", 500)):
        results.add({"kind": "memory", "case": "memory", "operation": "", "size_bytes": 0, "mode": "", "backend": backend, "after_all_reduce_bytes": size, "after_all_bytes": size * 2})
    for kept in (0.99, 0.97):
        results.add({"kind": "matmul", "case": "matmul/all_gather", "operation": "all_gather", "size_bytes": 1, "mode": "", "kept": {"stepccl": {"median_ratio": kept}, "nccl": {"median_ratio": 0.85}}})
    document = results.document()
    assert document["memory_ratio"] == 0.1
    assert document["matmul_kept"] == {"stepccl": {"all_gather": 0.97}, "nccl": {"all_gather": 0.85}}


def test_models(results: Results) -> None:
    results.add({"kind": "tensor_parallel", "case": "tensor_parallel", "operation": "", "size_bytes": 0, "mode": "graph", "times_us": {"stepccl": {"1": [10.0], "4": [6.0]}, "nccl": {"1": [9.0], "4": [8.0]}}, "wrong": {"stepccl": 0, "nccl": 0}})
    results.add({"kind": "ddp", "case": "ddp", "operation": "", "size_bytes": 0, "mode": "eager", "times_us": {"stepccl": [9.0, 9.0], "nccl": [10.0, 10.0]}})
    document = results.document()
    assert document["tensor_parallel"]["ratio"] == 0.75 and document["tensor_parallel"]["best_split"] == {"stepccl": 4, "nccl": 4}
    assert document["tensor_parallel"]["ratio_by_split"] == {"1": round(10 / 9, 4), "4": 0.75}
    assert document["ddp"]["ratio"] == 0.9


def test_the_table(results: Results) -> None:
    results.rows[0]["wrong"]["stepccl"] = 3
    results.rows[2]["ways"] = {"stepccl": {"path": "flagged", "blocks": 4, "sm_us": 12.3}}
    results.errors.append({"stage": "zero_sm", "case": None, "error": "rank 1 ended with status 1"})
    text = markdown(results)
    assert "| all_gather | 64 MiB | eager | 82.0 | 90.0 | 100.0 | 90.0 | 0.91 | 0.91-0.91 | nccl_zero_sm |  |" in text
    assert "| all_reduce | 8 B | graph | 5.0 |  | 10.0 |  | 0.50 | 0.50-0.50 | nccl | flagged, 4, 12 |" in text
    assert "'stepccl': 3" in text and "Error in zero_sm, outside a case: rank 1 ended with status 1." in text
    assert "Goal AllGather from 64 MiB: 0.9111 <= 0.87: not met." in text
