# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(BENCH))
os.environ.setdefault("STEPCCL_LIBRARY", str(BENCH.parents[1] / "build/out/native/libstepccl.so"))
