#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
StepCCL against NCCL on the GPUs of this host: times in turns, memory held, compute kept, a tensor-parallel block and a DDP
step. `gpu_vs_nccl.py --help` lists the options; the README beside it says how to read the result.
Exit status: 0 all measured and right, 1 something failed or was wrong, 2 wrong command line.
"""
from __future__ import annotations

import datetime
import platform
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpubench import options as command_line  # noqa: E402
from gpubench.launcher import run_ranks  # noqa: E402
from gpubench.plan import ENVIRONMENT, Stage, stages  # noqa: E402
from gpubench.report import Results, markdown  # noqa: E402

# A set of processes needs about this long before its first case.
START_S = 20.0
RESTARTS = 4


def gpus() -> list[dict]:
    """Name, memory and driver of each GPU as nvidia-smi says them; empty where there is none."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(("name", "memory", "driver"), (cell.strip() for cell in line.split(",")))) for line in said.splitlines() if line.strip()]


def run_stage(stage: Stage, options: dict, world: int, until: float, results: Results) -> None:
    """One stage, its processes started anew after a failure with the cases that are left."""
    left = list(stage.cases)
    failures: dict[str, int] = {}
    for _ in range(RESTARTS):
        if not left:
            return
        limit_s = until - time.monotonic()
        if limit_s < START_S:
            break

        def on_event(event: dict) -> None:
            if event["event"] == "start":
                results.versions.update(event["versions"])
            elif event["event"] == "row":
                left[:] = [case for case in left if case.key != event["case"]]
                results.add(event)
            elif event["event"] == "left_out":
                results.left_out.extend(f"{stage.name}/{key}" for key in event["cases"])
                left.clear()

        outcome = run_ranks(stage, left, options, world, limit_s, options["case_timeout_s"], on_event)
        if not outcome.reason:
            return
        last = "; ".join(f"rank {rank}: {log.splitlines()[-1][:300]}" for rank, log in enumerate(outcome.logs) if log)
        results.errors.append({"stage": stage.name, "case": outcome.during, "error": outcome.reason, "said": last})
        results.write()
        print(f"{stage.name}: {outcome.reason}, during {outcome.during}", file=sys.stderr)
        for log in outcome.logs:
            print(log, file=sys.stderr)
        if outcome.during is None:
            return  # it did not get as far as a case: the next try would not either
        broken = next(case for case in left if case.key == outcome.during)
        failures[broken.family] = failures.get(broken.family, 0) + 1
        left = [case for case in left if case.key != broken.key and not (case.family == broken.family and failures[broken.family] > 1)]
    results.left_out.extend(f"{stage.name}/{case.key}" for case in left)


def main() -> int:
    parsed = command_line.parse()
    found = gpus() if parsed.device == "cuda" else []
    if parsed.device == "cuda" and not found:
        print("There is no NVIDIA GPU here (nvidia-smi says nothing). Run this on a machine with GPUs, or try --device cpu.", file=sys.stderr)
        return 1
    world = parsed.ranks or (len(found) if parsed.device == "cuda" else 2)
    if parsed.device == "cuda" and world > len(found):
        print(f"--ranks {world} needs as many GPUs, and there are {len(found)}.", file=sys.stderr)
        return 2
    if world < 2:
        print("One GPU has nobody to speak with: this needs two or more.", file=sys.stderr)
        return 2
    began = datetime.datetime.now(datetime.timezone.utc)
    seed = parsed.seed if parsed.seed is not None else random.SystemRandom().randrange(1 << 30)
    options = {name: value for name, value in vars(parsed).items() if name != "output"}
    options["seed"] = seed
    output = parsed.output or Path(__file__).resolve().parent / "results" / f"gpu-{began:%Y-%m-%d-%H%M%S}.json"
    head = {
        "what": "StepCCL against NCCL" if parsed.device == "cuda" else "StepCCL against Gloo",
        "date": began.isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "machine": {"gpus": found, "ranks": world, "kernel": platform.release(), "processor": platform.machine()},
        "options": options,
        "environment": ENVIRONMENT,
    }
    results = Results(output, head, world)
    results.write()
    end = time.monotonic() + parsed.budget_s
    planned = stages(parsed)
    for number, stage in enumerate(planned):
        now = time.monotonic()
        # What is left is shared by weight, so that a stage that ends early leaves its time to the others.
        share = stage.share / sum(later.share for later in planned[number:])
        run_stage(stage, options, world, now + (end - now) * share, results)
        results.write()
    print(markdown(results))
    print(f"\nResult: {output}")
    wrong = sum(results.wrong().values())
    return 0 if not results.errors and wrong == 0 and results.rows else 1


if __name__ == "__main__":
    sys.exit(main())
