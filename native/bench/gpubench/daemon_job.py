# SPDX-License-Identifier: Apache-2.0
"""A rank of the job that daemon_check.py watches: `python -m gpubench.daemon_job FOLDER`, with RANK and WORLD_SIZE set."""
from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import stepccl

MIB = 1 << 20
ELEMENTS = 4 * MIB  # of bf16: 8 MiB
SHARE = MIB


def main() -> None:
    folder = Path(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    stepccl.configure(buffer_size=1024 * MIB, job_name="daemon-check")
    dist.init_process_group("stepccl", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    stepccl.attach(device)
    summed = stepccl.empty(ELEMENTS, dtype=torch.bfloat16, device=device)
    share = stepccl.empty(SHARE, dtype=torch.bfloat16, device=device)
    gathered = stepccl.empty(SHARE * world, dtype=torch.bfloat16, device=device)
    plain = torch.empty(ELEMENTS, dtype=torch.bfloat16, device=device)
    captured = stepccl.empty(ELEMENTS, dtype=torch.bfloat16, device=device)
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    total = float(sum(range(1, world + 1)))
    graph: torch.cuda.CUDAGraph | None = None
    # Buffers that come and go leave holes in the pool; every rank draws the same numbers.
    draw = random.Random(7)
    held: list[torch.Tensor] = []
    rounds = 0
    while True:
        summed.fill_(rank + 1)
        dist.all_reduce(summed)
        wrong += (summed != total).sum()
        share.fill_(rank + 1)
        dist.all_gather_into_tensor(gathered, share)
        wrong += (gathered.view(world, -1) != torch.arange(1, world + 1, device=device, dtype=torch.bfloat16)[:, None]).sum()
        plain.fill_(rank + 1)
        dist.all_reduce(plain)
        wrong += (plain != total).sum()
        if graph is not None:
            captured.fill_(rank + 1)
            graph.replay()
            wrong += (captured != total).sum()
        if draw.random() < 0.5 and len(held) < 24:
            held.append(stepccl.empty(draw.choice((1, 3, 6, 10, 20)) * MIB, dtype=torch.uint8, device=device))
        elif held:
            held.pop(draw.randrange(len(held)))
        rounds += 1
        if rounds % 20 == 0:
            # Rank 0 sees what the check asks for; all do it at the same round.
            asked = torch.tensor([int((folder / "graph").exists()), int((folder / "stop").exists())])
            dist.broadcast(asked, 0)
            want_graph, stop = (bool(flag) for flag in asked.tolist())
            if want_graph and graph is None:
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    dist.all_reduce(captured)
            found = int(wrong.item())
            (folder / f"rank{rank}.txt").write_text(f"{rounds} {found}\n")
            if found or stop:
                break
            time.sleep(0.002)
    graph = None
    held.clear()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
