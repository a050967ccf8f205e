# SPDX-License-Identifier: Apache-2.0
"""Starts one process a rank, reads rank 0's events, ends all when one fails, falls silent or runs out of time."""
from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from .plan import ENVIRONMENT, Case, Stage

EVENT_MARK = "@@stepccl-bench "
GRACE_S = 5.0
BENCH = Path(__file__).resolve().parent.parent
TAIL_LINES = 15


@dataclass
class Outcome:
    """How one set of processes ended."""

    reason: str  # "" = well
    during: str | None  # key of the case that ran when it ended badly
    logs: list[str]  # the last lines of every rank's output


def emit(event: dict) -> None:
    """Called by rank 0: one event on standard output, at once."""
    print(EVENT_MARK + json.dumps(event), flush=True)


def _read_events(stream, log, events: "queue.Queue[dict | None]") -> None:
    for line in stream:
        if line.startswith(EVENT_MARK):
            try:
                events.put(json.loads(line[len(EVENT_MARK):]))
            except ValueError:
                log.write(f"(an event that is no JSON) {line}")
        else:
            log.write(line)
    log.flush()
    events.put(None)


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:])


def _end(processes: Sequence[subprocess.Popen], grace_s: float = GRACE_S) -> None:
    """SIGTERM to each rank's own session, SIGKILL to what is left after the grace time."""
    for sign, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, grace_s)):
        for process in processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, sign)
                except ProcessLookupError:
                    pass
        limit = time.monotonic() + wait_s
        while time.monotonic() < limit and any(process.poll() is None for process in processes):
            time.sleep(0.05)


def run_ranks(
    stage: Stage,
    cases: Sequence[Case],
    options: dict,
    world: int,
    deadline_s: float,
    silence_s: float,
    on_event: Callable[[dict], None],
    entry: Sequence[str] | None = None,
) -> Outcome:
    """
    Runs `cases` of a stage on `world` processes and hands every event of rank 0 to on_event.
    deadline_s: seconds that the set may take. silence_s: seconds without an event that count as a hang.
    entry: command of a rank, for tests; it gets the task file as its last argument.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stepccl-bench-") as folder:
        task = {
            "stage": stage.name,
            "backends": stage.backends,
            "cases": [case.as_dict() for case in cases],
            "options": options,
            "world": world,
            "store": str(Path(folder) / "store"),
            # The ranks stop by themselves before they would be ended, so that they leave in order.
            "deadline_s": max(deadline_s - 2 * GRACE_S, 1.0),
        }
        task_file = Path(folder) / "task.json"
        task_file.write_text(json.dumps(task))
        command = list(entry or (sys.executable, "-u", "-m", "gpubench.rank")) + [str(task_file)]
        logs = [Path(folder) / f"rank{rank}.log" for rank in range(world)]
        handles = [path.open("w") for path in logs]
        processes: list[subprocess.Popen] = []
        events: "queue.Queue[dict | None]" = queue.Queue()
        reader: threading.Thread | None = None
        during: str | None = None
        reason = ""
        try:
            for rank in range(world):
                environment = {**os.environ, **ENVIRONMENT, **stage.environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BENCH), str(BENCH.parent / "python"), os.environ.get("PYTHONPATH", "")]))
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE if rank == 0 else handles[rank],
                        stderr=handles[rank],
                        text=True,
                        start_new_session=True,
                    )
                )
            reader = threading.Thread(target=_read_events, args=(processes[0].stdout, handles[0], events), daemon=True)
            reader.start()
            last = time.monotonic()
            finished = False
            while not finished:
                try:
                    event = events.get(timeout=0.2)
                except queue.Empty:
                    event = {}
                if event is None:
                    finished = True
                elif event:
                    last = time.monotonic()
                    if event.get("event") == "begin":
                        during = event["case"]
                    elif event.get("event") == "row":
                        during = None
                    on_event(event)
                now = time.monotonic()
                failed = [rank for rank, process in enumerate(processes) if process.poll() not in (None, 0)]
                if failed:
                    reason = "; ".join(f"rank {rank} ended with status {processes[rank].returncode}" for rank in failed)
                elif now - began > deadline_s:
                    reason = f"ran past its {deadline_s:.0f} s"
                elif not finished and now - last > silence_s:
                    reason = f"no news for {silence_s:.0f} s"
                if reason:
                    break
            if not reason:
                # Rank 0 has closed its output: the others are on their way out too.
                limit = time.monotonic() + GRACE_S
                while time.monotonic() < limit and any(process.poll() is None for process in processes):
                    time.sleep(0.05)
                late = [rank for rank, process in enumerate(processes) if process.poll() != 0]
                if late:
                    reason = "; ".join(f"rank {rank} " + ("did not end" if processes[rank].poll() is None else f"ended with status {processes[rank].returncode}") for rank in late)
        finally:
            _end(processes)
            if reader:
                reader.join(timeout=GRACE_S)
            for handle in handles:
                handle.close()
        while not events.empty():
            event = events.get()
            if event:
                on_event(event)
        return Outcome(reason, during if reason else None, [_tail(path) for path in logs] if reason else [])
