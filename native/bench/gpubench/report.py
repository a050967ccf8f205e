# SPDX-License-Identifier: Apache-2.0
"""From rows to the result: ratios, goals, JSON and the table."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .options import size_name
from .stats import Ratio, bandwidths_gbps, ratio, summarize

OWN, PLAIN = "stepccl", "stepccl_plain"
MIB = 1 << 20


def _key(row: dict) -> tuple[str, str, str]:
    return row["operation"], str(row["size_bytes"]), row["mode"]


def compact(row: dict, world: int) -> dict:
    """A row of raw times as it is kept: a summary for each backend instead of every turn."""
    kept = {name: value for name, value in row.items() if name not in ("event", "times_us")}
    times = row.get("times_us")
    if times is None:
        return kept
    if row["kind"] == "tensor_parallel":
        kept["times"] = {backend: {split: summarize(turns).as_dict("us") for split, turns in splits.items()} for backend, splits in times.items()}
        return kept
    kept["times"] = {}
    for backend, turns in times.items():
        kept["times"][backend] = summarize(turns).as_dict("us")
        if row["kind"] == "collective":
            algbw, busbw = bandwidths_gbps(row["operation"], row["bytes"], kept["times"][backend]["median_us"], world)
            kept["times"][backend].update(algbw_GBps=round(algbw, 3), busbw_GBps=round(busbw, 3))
    return kept


class Results:
    """Collects rows as they come and writes the whole file anew, atomically, after each."""

    def __init__(self, path: Path, head: dict, world: int) -> None:
        self.path, self.head, self.world = path, head, world
        self.rows: list[dict] = []  # with raw times
        self.errors: list[dict] = []
        self.left_out: list[str] = []
        self.versions: dict = {}

    def add(self, row: dict) -> None:
        self.rows.append(row)
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.document(), indent=1) + "\n")
        os.replace(partial, self.path)

    def document(self) -> dict[str, Any]:
        """The whole result, as far as it is known."""
        plain, _ = self.ratios(PLAIN)
        ratios, details = self.ratios(OWN)
        return {
            **self.head,
            "versions": self.versions,
            "ratios": ratios,
            "ratios_plain_buffers": plain,
            "ratio_details": details,
            "memory_ratio": self.memory_ratio(),
            "matmul_kept": self.matmul_kept(),
            "tensor_parallel": self.tensor_parallel(),
            "ddp": self.ddp(),
            "wrong_elements": self.wrong(),
            "goals": self.goals(),
            "rows": [compact(row, self.world) for row in self.rows],
            "left_out": self.left_out,
            "errors": self.errors,
        }

    def _collectives(self) -> list[dict]:
        return [row for row in self.rows if row["kind"] == "collective"]

    def ratios(self, own: str) -> tuple[dict, list[dict]]:
        """
        {operation: {bytes: {mode: own time / time of the better of the peer's modes}}}. Each ratio comes from turns next to each
        other; against two modes of the peer the larger ratio counts.
        """
        best: dict[tuple[str, str, str], tuple[Ratio, str]] = {}
        for row in self._collectives():
            times = row["times_us"]
            if own not in times:
                continue
            for peer in (name for name in times if name not in (OWN, PLAIN)):
                found = ratio(times[own], times[peer])
                if _key(row) not in best or found.value > best[_key(row)][0].value:
                    best[_key(row)] = (found, peer)
        table: dict = {}
        details = []
        for (operation, size, mode), (found, peer) in sorted(best.items(), key=lambda item: (item[0][0], int(item[0][1]), item[0][2])):
            table.setdefault(operation, {}).setdefault(size, {})[mode] = round(found.value, 4)
            details.append({"operation": operation, "size_bytes": int(size), "mode": mode, "peer": peer, "ratio": round(found.value, 4), "p10": round(found.low, 4), "p90": round(found.high, 4)})
        return table, details

    def wrong(self) -> dict[str, int]:
        """Wrong elements over all cases, by backend."""
        found: dict[str, int] = {}
        for row in self.rows:
            for backend, count in row.get("wrong", {}).items():
                found[backend] = found.get(backend, 0) + count
        return found

    def memory_ratio(self) -> float | None:
        held = {row["backend"]: row["after_all_bytes"] for row in self.rows if row["kind"] == "memory"}
        return round(held[OWN] / held["nccl"], 4) if OWN in held and held.get("nccl") else None

    def matmul_kept(self) -> dict:
        """{backend: {operation: median share of the product's speed}}."""
        found: dict = {}
        for row in self.rows:
            if row["kind"] == "matmul":
                for backend, kept in row["kept"].items():
                    # StepCCL runs in two stages: the lower one counts.
                    old = found.setdefault(backend, {}).get(row["operation"], 1e9)
                    found[backend][row["operation"]] = min(old, round(kept["median_ratio"], 4))
        return found

    def tensor_parallel(self) -> dict | None:
        """The best split of each, and the ratio at the best and at each split."""
        for row in self.rows:
            if row["kind"] == "tensor_parallel":
                medians = {backend: {split: summarize(turns).median for split, turns in splits.items()} for backend, splits in row["times_us"].items()}
                peer = next(name for name in medians if name != OWN)
                best = {backend: min(splits.items(), key=lambda item: item[1]) for backend, splits in medians.items()}
                return {
                    "ratio": round(best[OWN][1] / best[peer][1], 4),
                    "best_split": {backend: int(split) for backend, (split, _) in best.items()},
                    "median_us": {backend: {split: round(value, 1) for split, value in splits.items()} for backend, splits in medians.items()},
                    "ratio_by_split": {split: round(medians[OWN][split] / medians[peer][split], 4) for split in medians[OWN]},
                }
        return None

    def ddp(self) -> dict | None:
        for row in self.rows:
            if row["kind"] == "ddp":
                peer = next(name for name in row["times_us"] if name != OWN)
                found = ratio(row["times_us"][OWN], row["times_us"][peer])
                return {"ratio": round(found.value, 4), "p10": round(found.low, 4), "p90": round(found.high, 4)}
        return None

    def goals(self) -> list[dict]:
        """Each goal with the worst value that it has met; value null where nothing was measured."""
        table, _ = self.ratios(OWN)
        kept = self.matmul_kept().get(OWN, {})

        def worst(operation: str, sizes: Any, modes: tuple[str, ...]) -> float | None:
            values = [value for size, by_mode in table.get(operation, {}).items() if sizes(int(size)) for mode, value in by_mode.items() if mode in modes]
            return max(values) if values else None

        both = ("eager", "graph")
        at_most = [
            ("AllReduce up to 1 MiB in graphs", 0.58, worst("all_reduce", lambda size: size <= MIB, ("graph",))),
            ("AllReduce from 64 MiB", 0.88, worst("all_reduce", lambda size: size >= 64 * MIB, both)),
            ("AllGather from 64 MiB", 0.87, worst("all_gather", lambda size: size >= 64 * MIB, both)),
            ("AllToAll from 64 MiB", 0.87, worst("all_to_all", lambda size: size >= 64 * MIB, both)),
            ("Broadcast from 64 MiB", 0.85, worst("broadcast", lambda size: size >= 64 * MIB, both)),
            ("ReduceScatter from 64 MiB", 0.85, worst("reduce_scatter", lambda size: size >= 64 * MIB, both)),
            ("GPU memory held", 0.14, self.memory_ratio()),
        ]
        at_least = [(f"matmul kept beside {operation}", goal, kept.get(operation)) for operation, goal in (("all_gather", 0.98), ("all_to_all", 0.98), ("all_reduce", 0.93))]
        return [
            *({"goal": name, "at_most": goal, "worst": value, "met": None if value is None else value <= goal} for name, goal, value in at_most),
            *({"goal": name, "at_least": goal, "worst": value, "met": None if value is None else value >= goal} for name, goal, value in at_least),
        ]


def _us(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def markdown(results: Results) -> str:
    """The result as Markdown: a table of times and ratios, then what else was measured."""
    rows = results._collectives()
    backends: list[str] = []
    for row in rows:
        backends.extend(name for name in row["times_us"] if name not in backends)
    medians: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        for backend, turns in row["times_us"].items():
            medians.setdefault(_key(row), {}).setdefault(backend, summarize(turns).median)
    ways = {_key(row): row["ways"][OWN] for row in rows if OWN in row.get("ways", {})}
    details = {(d["operation"], str(d["size_bytes"]), d["mode"]): d for d in results.ratios(OWN)[1]}
    lines = []
    if medians:
        lines.append("| operation | size | mode | " + " | ".join(f"{name} us" for name in backends) + " | ratio | 10-90 % | against | path, blocks, SM us |")
        lines.append("|---|---|---|" + "---|" * len(backends) + "---|---|---|---|")
        for key in sorted(medians, key=lambda key: (key[0], key[2], int(key[1]))):
            operation, size, mode = key
            detail = details.get(key)
            cells = [_us(medians[key][name]) if name in medians[key] else "" for name in backends]
            tail = [f"{detail['ratio']:.2f}", f"{detail['p10']:.2f}-{detail['p90']:.2f}", detail["peer"]] if detail else ["", "", ""]
            way = ways.get(key)
            tail.append(f"{way['path']}, {way['blocks']}, {way['sm_us']:.0f}" if way else "")
            lines.append(f"| {operation} | {size_name(int(size))} | {mode} | " + " | ".join(cells + tail) + " |")
        lines.append("")
    for row in results.rows:
        if row["kind"] == "memory":
            lines.append(f"GPU memory held by {row['backend']}: {row['after_all_reduce_bytes'] / 1e6:.0f} MB after the first AllReduce, {row['after_all_bytes'] / 1e6:.0f} MB after all operations.  ")
    for backend, kept in results.matmul_kept().items():
        lines.append(f"Matmul kept beside {backend}: " + ", ".join(f"{operation} {value:.3f}" for operation, value in kept.items()) + ".  ")
    block = results.tensor_parallel()
    if block:
        lines.append(f"Tensor-parallel block, best split each ({block['best_split']}): ratio {block['ratio']:.3f}.  ")
    step = results.ddp()
    if step:
        lines.append(f"DDP step: ratio {step['ratio']:.3f} ({step['p10']:.3f}-{step['p90']:.3f}).  ")
    lines.append(f"Wrong elements: {results.wrong()}.  ")
    for goal in results.goals():
        if goal["met"] is not None:
            sign, bound = ("<=", goal["at_most"]) if "at_most" in goal else (">=", goal["at_least"])
            lines.append(f"Goal {goal['goal']}: {goal['worst']} {sign} {bound}: {'met' if goal['met'] else 'not met'}.  ")
    if results.left_out:
        lines.append(f"Left out for want of time: {len(results.left_out)} cases.  ")
    for error in results.errors:
        lines.append(f"Error in {error['stage']}, {error.get('case') or 'outside a case'}: {error['error']}. {error.get('said', '')}  ")
    return "\n".join(lines)
