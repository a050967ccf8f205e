# SPDX-License-Identifier: Apache-2.0
"""Changes a running GPU job through the node's daemon and reads back what became of it; see ../gpu_daemon_check.sh."""
from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

MIB = 1 << 20
WAIT_S = 20.0
Process = dict  # of gpu.processes


class Check:
    """The daemon, the job, and the steps so far."""

    def __init__(self, stepccld: str, world: int, folder: Path) -> None:
        self.stepccld, self.world, self.folder = stepccld, world, folder
        self.socket = folder / "run" / "agent.sock"
        self.steps: list[dict[str, Any]] = []
        self.children: list[subprocess.Popen] = []

    def call(self, method: str, params: dict | None = None) -> dict:
        """`stepccld call`, as an operator types it. RuntimeError with what it says on standard error."""
        done = subprocess.run([self.stepccld, "call", method, json.dumps(params or {}), "--socket", str(self.socket)], capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout)

    def processes(self) -> list[Process]:
        return sorted(self.call("gpu.processes")["processes"], key=lambda one: one["rank"])

    def step(self, name: str, condition: Callable[[Process], bool], change: dict | None = None, keep: Callable[[Process], Any] | None = None) -> bool:
        """Changes settings, then waits until every rank's process shows what it should."""
        if change is not None:
            self.call("settings.set", change)
        began = time.monotonic()
        seen: list[Process] = []
        well = False
        while not well and time.monotonic() - began < WAIT_S and self.alive():
            seen = self.processes()
            well = len(seen) == self.world and all(condition(one) for one in seen)
            if not well:
                time.sleep(0.05)
        self.steps.append({"step": name, "change": change, "ok": well, "after_ms": round((time.monotonic() - began) * 1000), "shown": [keep(one) for one in seen] if keep else None})
        print(f"{'ok  ' if well else 'FAIL'} {name}: {self.steps[-1]['after_ms']} ms {json.dumps(self.steps[-1]['shown'])[:600]}")
        return well

    def alive(self) -> bool:
        return all(child.poll() is None for child in self.children)

    def rounds(self) -> list[int]:
        """Rounds of collectives that each rank has made and found right."""
        return [int((self.folder / f"rank{rank}.txt").read_text().split()[0]) if (self.folder / f"rank{rank}.txt").exists() else 0 for rank in range(self.world)]


def row(name: str) -> Callable[[Process], Any]:
    return lambda one: one["settings"][name]


def applied(name: str, value: Any) -> Callable[[Process], bool]:
    return lambda one: one["settings_current"] and one["settings"][name]["state"] == "applied" and one["settings"][name]["in_force"] == value


def run(check: Check) -> None:
    check.step("the job's processes are there", lambda one: one["operations"] > 100 and one["error_code"] is None,
               keep=lambda one: {name: one[name] for name in ("rank", "job", "gpu", "async", "sm_budget", "pipeline_depth")})
    check.step("the pool and its map", lambda one: one["pool"]["buffers"] > 3 and len(one["pool"]["ranges"]) > 3 and one["pool"]["used_bytes"] <= one["pool"]["held_bytes"],
               keep=lambda one: {**one["pool"], "ranges": len(one["pool"]["ranges"])})
    check.step("it fragments", lambda one: one["pool"]["fragmentation_permille"] > 50, keep=lambda one: one["pool"]["fragmentation_permille"])
    check.step("defragmentation, switched on live", lambda one: applied("hbm_defrag", True)(one) and one["defrag"]["interval_ms"] == 50 and one["defrag"]["released_bytes"] > 0,
               {"hbm_defrag": True, "hbm_defrag_interval_ms": 50}, lambda one: one["defrag"])
    (check.folder / "graph").touch()
    check.step("a graph is captured under it", lambda one: one["graphs"]["lanes_in_use"] == 1, keep=lambda one: one["graphs"])
    moved = {one["rank"]: one["defrag"]["moved_bytes"] for one in check.processes()}
    check.step("the pool is compacted under replays", lambda one: one["defrag"]["moved_bytes"] > moved[one["rank"]] + 32 * MIB and one["defrag"]["last"]["after_permille"] < one["defrag"]["last"]["before_permille"],
               keep=lambda one: one["defrag"])
    check.step("another interval", lambda one: applied("hbm_defrag_interval_ms", 400)(one) and one["defrag"]["interval_ms"] == 400, {"hbm_defrag_interval_ms": 400}, row("hbm_defrag_interval_ms"))
    check.step("defragmentation off", lambda one: applied("hbm_defrag", False)(one) and one["defrag"]["interval_ms"] is None, {"hbm_defrag": False, "hbm_defrag_interval_ms": None}, row("hbm_defrag"))
    check.step("SM budget", applied("sm_budget", 8), {"sm_budget": 8}, row("sm_budget"))
    check.step("pipeline depth", applied("pipeline_depth", 2), {"pipeline_depth": 2}, row("pipeline_depth"))
    check.step("paging and prefetch depth", lambda one: applied("prefetch_depth", 3)(one) and one["paging"]["page_bytes"] == 16 * MIB,
               {"paging": True, "page_bytes": 16 * MIB, "prefetch_depth": 3}, lambda one: one["paging"])
    check.step("no async: the CPU starts transfers", lambda one: applied("async_gd", False)(one) and one["async"]["level"] == "none", {"async_gd": False}, lambda one: one["async"])
    check.step("async again", lambda one: applied("async_gd", True)(one) and one["async"]["level"] == "stream", {"async_gd": True}, lambda one: one["async"])
    check.step("cache ratio", lambda one: applied("hbm_cache_ratio_permille", 5)(one) and one["pool"]["capacity_bytes"] < 1024 * MIB, {"hbm_cache_ratio_permille": 5}, lambda one: one["pool"]["capacity_bytes"])
    check.step("a value that the engine can't take is refused with its reason",
               lambda one: one["settings"]["pipeline_depth"]["state"] == "refused" and one["settings"]["pipeline_depth"]["reason"] == "out_of_range" and one["settings"]["pipeline_depth"]["in_force"] != 200,
               {"pipeline_depth": 200}, row("pipeline_depth"))
    try:
        check.call("settings.set", {"sm_budget": 99})
        check.steps.append({"step": "the daemon refuses what no engine takes", "ok": False})
    except RuntimeError as problem:
        check.steps.append({"step": "the daemon refuses what no engine takes", "ok": "A101" in str(problem), "said": str(problem)[:300]})
    unset = {name: None for name in ("pipeline_depth", "sm_budget", "paging", "page_bytes", "prefetch_depth", "async_gd", "hbm_defrag", "hbm_cache_ratio_permille")}
    check.step("all unset: the process's own values again", lambda one: one["settings_current"] and all(each["state"] == "own" for each in one["settings"].values()), unset,
               lambda one: {"sm_budget": one["sm_budget"], "pipeline_depth": one["pipeline_depth"], "paging": one["paging"], "capacity_bytes": one["pool"]["capacity_bytes"]})


def main() -> int:
    stepccld, output, world = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]), int(sys.argv[3])
    began = datetime.datetime.now(datetime.timezone.utc)
    with tempfile.TemporaryDirectory(prefix="stepccl-daemon-check-") as name:
        folder = Path(name)
        (folder / "run" / "rings").mkdir(parents=True)
        check = Check(stepccld, world, folder)
        daemon_log = (folder / "daemon.log").open("w")
        daemon = subprocess.Popen([stepccld, "--foreground", "--run-dir", str(folder / "run"), "--state-dir", str(folder / "state")], stdout=daemon_log, stderr=daemon_log)
        while not check.socket.exists() and daemon.poll() is None:
            time.sleep(0.02)
        environment = {**os.environ, "WORLD_SIZE": str(world), "STEPCCL_TELEMETRY_DIR": str(folder / "run" / "rings"), "STEPCCL_CONTROL_FILE": str(folder / "run" / "control"), "STEPCCL_SOCKET_IFNAME": "lo"}
        logs = [(folder / f"rank{rank}.log").open("w") for rank in range(world)]
        check.children = [
            subprocess.Popen([sys.executable, "-u", "-m", "gpubench.daemon_job", name], env={**environment, "RANK": str(rank)}, stdout=logs[rank], stderr=logs[rank]) for rank in range(world)
        ]
        ended: list[int] = []
        try:
            run(check)
            (folder / "stop").touch()
            ended = [child.wait(timeout=30) for child in check.children]
            check.steps.append({"step": "the job ends well, every element right", "ok": ended == [0] * world, "rounds": check.rounds()})
            check.steps.append({"step": "its boards are gone", "ok": check.call("gpu.processes") == {"processes": [], "omitted": 0}})
        finally:
            for child in [*check.children, daemon]:
                if child.poll() is None:
                    child.terminate()
            for child in [*check.children, daemon]:
                try:
                    child.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    child.kill()
            well = bool(ended) and all(step["ok"] for step in check.steps)
            result = {
                "what": "settings of a running GPU job changed through stepccld, from the command line",
                "date": began.isoformat(timespec="seconds"),
                "command": shlex.join(["native/bench/gpu_daemon_check.sh", "STEPCCLD", "OUTPUT_FOLDER", str(world)]),
                "machine": {"gpus": _gpus(), "kernel": platform.release()},
                "daemon": subprocess.run([stepccld, "--version", "--json"], capture_output=True, text=True).stdout.strip(),
                "ok": well,
                "rounds": check.rounds(),
                "steps": check.steps,
            }
            output.write_text(json.dumps(result, indent=1) + "\n")
            if not well:
                for path in sorted(folder.glob("*.log")):
                    print(f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        print(json.dumps({"ok": well, "rounds": check.rounds(), "failed": [step["step"] for step in check.steps if not step["ok"]]}))
        return 0 if well else 1


def _gpus() -> list[str]:
    said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    return said.stdout.strip().splitlines()


if __name__ == "__main__":
    sys.exit(main())
