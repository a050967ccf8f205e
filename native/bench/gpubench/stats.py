# SPDX-License-Identifier: Apache-2.0
"""Medians, spreads and ratios of times measured in turns."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value below which `fraction` (0..1) of the sorted values lie, linearly interpolated. ValueError without values."""
    if not values:
        raise ValueError("a percentile of no values")
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"the fraction {fraction} is not from 0 to 1")
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


@dataclass(frozen=True)
class Summary:
    """Times of one thing over several turns, in the unit in which they came."""

    median: float
    low: float  # 10th percentile
    high: float  # 90th percentile
    turns: int

    @property
    def spread(self) -> float:
        """(90th - 10th percentile) / median."""
        return (self.high - self.low) / self.median if self.median else 0.0

    def as_dict(self, unit: str) -> dict[str, float | int]:
        return {
            f"median_{unit}": round(self.median, 4),
            f"p10_{unit}": round(self.low, 4),
            f"p90_{unit}": round(self.high, 4),
            "spread": round(self.spread, 4),
            "turns": self.turns,
        }


def summarize(values: Sequence[float]) -> Summary:
    return Summary(median(values), percentile(values, 0.1), percentile(values, 0.9), len(values))


def slowest_rank(per_rank: Sequence[Sequence[float]]) -> list[float]:
    """per_rank[rank][turn] -> for each turn the time of the slowest rank. ValueError when ranks differ in turns."""
    if len({len(turns) for turns in per_rank}) != 1:
        raise ValueError("the ranks report different numbers of turns")
    return [max(turn) for turn in zip(*per_rank)]


@dataclass(frozen=True)
class Ratio:
    """time of StepCCL / time of the peer. `low` and `high`: 10th and 90th percentile over pairs of turns."""

    value: float
    low: float
    high: float


def ratio(own: Sequence[float], peer: Sequence[float]) -> Ratio:
    """Ratio of medians, its spread from the turns that ran next to each other. ValueError for unequal turns or zero times."""
    if len(own) != len(peer):
        raise ValueError("the two did not take the same number of turns")
    if min(peer) <= 0 or min(own) <= 0:
        raise ValueError("a time is not above zero")
    pairs = [a / b for a, b in zip(own, peer)]
    return Ratio(median(own) / median(peer), percentile(pairs, 0.1), percentile(pairs, 0.9))


# busbw = algbw x factor(n), as nccl-tests defines it (doc/PERFORMANCE.md there).
BUS_FACTOR = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


def bandwidths_gbps(operation: str, size_bytes: int, time_us: float, world: int) -> tuple[float, float]:
    """(algbw, busbw) in decimal gigabytes per second. size_bytes is the whole array, as for nccl-tests."""
    algbw = size_bytes / time_us / 1e3
    return algbw, algbw * BUS_FACTOR[operation](world)
