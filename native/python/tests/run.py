#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Runs the tests of the package and of the GPU benchmark with pytest, and closes with "N passed, N failed, N skipped".
What is not installed is not forced on anybody: without pytest or PyTorch the tests that need it are skipped, with the reason.
Arguments go to pytest. The interpreter is $STEPCCL_TEST_PYTHON, else the system's.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("native/python/tests", "native/bench/gpubench/tests")
LIMIT_S = 600


def has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"]).returncode == 0


def main(arguments: list[str]) -> int:
    python = os.environ.get("STEPCCL_TEST_PYTHON") or "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        python = sys.executable
    reasons: list[str] = []
    passed = failed = status = 0
    if not has(python, "pytest"):
        reasons.append(f"all Python tests: {python} has no pytest (Debian: apt-get install python3-pytest)")
    else:
        folders = list(FOLDERS)
        if not has(python, "torch"):
            folders.remove(FOLDERS[0])
            reasons.append(f"the PyTorch package: {python} has no torch (Debian: apt-get install python3-torch)")
        with tempfile.TemporaryDirectory(prefix="stepccl-pytest-") as scratch:
            report = Path(scratch) / "report.xml"
            command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-ra", f"--junitxml={report}", *folders, *arguments]
            status = subprocess.run(command, cwd=ROOT, timeout=LIMIT_S, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}).returncode
            if report.exists():
                for case in ElementTree.parse(report).getroot().iter("testcase"):
                    skipped = case.find("skipped")
                    if skipped is not None:
                        reasons.append(f"{case.get('classname')}.{case.get('name')}: {skipped.get('message')}")
                    elif case.find("failure") is not None or case.find("error") is not None:
                        failed += 1
                    else:
                        passed += 1
        if status != 0 and failed == 0:
            failed = 1  # pytest itself failed, or a file could not be loaded
    for number, reason in enumerate(reasons, 1):
        print(f"ok {number} - python # SKIP {' '.join(reason.split())}")
    print(f"{passed} passed, {failed} failed, {len(reasons)} skipped")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
