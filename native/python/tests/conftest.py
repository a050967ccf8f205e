# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("STEPCCL_LIBRARY", str(HERE.parents[2] / "build/out/native/libstepccl.so"))
os.environ.setdefault("STEPCCL_SOCKET_IFNAME", "lo")
os.environ.setdefault("STEPCCL_TELEMETRY_DIR", "")

HAS_TORCH = importlib.util.find_spec("torch") is not None
if not HAS_TORCH:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def ranks():
    """The rank processes of the session."""
    from pool import World, world_size

    world = World(world_size())
    yield world
    world.close()
