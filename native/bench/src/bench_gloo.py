# SPDX-License-Identifier: Apache-2.0
"""The peer's side through torch.distributed: bench_gloo.py --ranks N --store FILE [--collectives ...] [--sizes ...] [--scale N].

The same loop as loop.hpp. `--version` prints torch's version and ends.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist

BLOCKS = 4


def iterations_of(size, scale):
    """As loop.hpp: how often one block repeats an operation of `size` bytes."""
    for limit, full in ((8 << 10, 200), (128 << 10, 50), (1 << 20, 20), (4 << 20, 8), (16 << 20, 3)):
        if size <= limit:
            return max(1, full * scale // 100)
    return 1


def operation(collective, size, world):
    """A function that runs the collective once on buffers made and touched beforehand."""
    count = size // 4
    send = torch.ones(count)
    if collective == "all_reduce":
        send.zero_()  # in place, again and again: a sum of ones would overflow to inf
        return lambda: dist.all_reduce(send)
    if collective == "broadcast":
        return lambda: dist.broadcast(send, 0)
    if collective == "all_gather":
        block = torch.ones(count // world)
        parts = [torch.zeros(count // world) for _ in range(world)]
        return lambda: dist.all_gather(parts, block)
    if collective == "all_to_all":
        recv = torch.zeros(count)
        return lambda: dist.all_to_all_single(recv, send)
    raise SystemExit(f"bench_gloo.py: no collective {collective}")


def run_rank(rank, args):
    dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=rank, world_size=args.ranks)
    for size in args.sizes:
        for collective in args.collectives:
            if collective in ("all_gather", "all_to_all") and size < 4 * args.ranks:
                continue
            run = operation(collective, size, args.ranks)
            iterations = iterations_of(size, args.scale)
            for _ in range(max(2, iterations // 4)):
                run()
            times = torch.zeros(BLOCKS, dtype=torch.float64)
            for block in range(BLOCKS):
                dist.barrier()
                begin = time.perf_counter()
                for _ in range(iterations):
                    run()
                times[block] = (time.perf_counter() - begin) / iterations * 1e6
            dist.all_reduce(times, op=dist.ReduceOp.MAX)
            if rank == 0:
                print(json.dumps({"collective": collective, "bytes": size, "times_us": [round(t, 3) for t in times.tolist()]}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--store", default="")
    parser.add_argument("--collectives", type=lambda text: text.split(","), default=["all_reduce"])
    parser.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")], default=[])
    parser.add_argument("--scale", type=int, default=100)
    args = parser.parse_args()
    if args.version:
        print(torch.__version__)
        return 0
    children = []
    for rank in range(1, args.ranks):
        child = os.fork()  # before any thread: importing torch starts none
        if child == 0:
            run_rank(rank, args)
            os._exit(0)
        children.append(child)
    run_rank(0, args)
    return max([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], default=0)


if __name__ == "__main__":
    sys.exit(main())
