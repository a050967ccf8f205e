# SPDX-License-Identifier: Apache-2.0
"""Processes that end well, badly, or not at all; the ranks here are small programs of the test."""
from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from gpubench.launcher import EVENT_MARK, run_ranks
from gpubench.plan import Case, Stage

STAGE = Stage("collectives", ("stepccl", "nccl"), (Case("collective", "all_reduce", 8, "eager"),), 1.0, {"FROM_STAGE": "yes"})
HEAD = f"""
import json, os, sys, time
rank = int(os.environ["RANK"])
task = json.load(open(sys.argv[1]))
def emit(**event):
    if rank == 0:
        print({EVENT_MARK!r} + json.dumps(event), flush=True)
"""


def run(tmp_path: Path, body: str, deadline_s: float = 20.0, silence_s: float = 10.0):
    program = tmp_path / "rank.py"
    program.write_text(HEAD + body)
    events: list[dict] = []
    outcome = run_ranks(STAGE, STAGE.cases, {"seed": 1}, 2, deadline_s, silence_s, events.append, entry=[sys.executable, "-u", str(program)])
    return outcome, events


def test_events_arrive_and_other_output_is_a_log(tmp_path: Path) -> None:
    outcome, events = run(
        tmp_path,
        """
print("noise")
emit(event="start", versions={"from": os.environ["FROM_STAGE"], "world": os.environ["WORLD_SIZE"], "cases": len(task["cases"])})
emit(event="begin", case="a")
emit(event="row", case="a")
""",
    )
    assert outcome.reason == "" and outcome.during is None
    assert [event["event"] for event in events] == ["start", "begin", "row"]
    assert events[0]["versions"] == {"from": "yes", "world": "2", "cases": 1}


def test_a_failing_rank_ends_all_and_is_named(tmp_path: Path) -> None:
    outcome, events = run(
        tmp_path,
        """
emit(event="begin", case="a")
if rank == 1:
    time.sleep(0.3)
    sys.exit("the cause of it")
time.sleep(60)
""",
    )
    assert outcome.reason == "rank 1 ended with status 1" and outcome.during == "a"
    assert "the cause of it" in outcome.logs[1]


def test_silence_is_a_hang(tmp_path: Path) -> None:
    began = time.monotonic()
    outcome, _ = run(tmp_path, 'emit(event="begin", case="a"); time.sleep(60)', silence_s=1.0)
    assert outcome.reason == "no news for 1 s" and outcome.during == "a"
    assert time.monotonic() - began < 15


def test_the_deadline_ends_even_a_talkative_one(tmp_path: Path) -> None:
    outcome, _ = run(
        tmp_path,
        """
while True:
    emit(event="row", case="a")
    time.sleep(0.05)
""",
        deadline_s=1.5,
    )
    assert outcome.reason == "ran past its 2 s"


def test_a_rank_that_ignores_the_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubench.launcher.GRACE_S", 0.5)
    began = time.monotonic()
    outcome, _ = run(
        tmp_path,
        """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
emit(event="begin", case="a")
time.sleep(60)
""",
        silence_s=1.0,
    )
    assert outcome.reason.startswith("no news") and time.monotonic() - began < 20
