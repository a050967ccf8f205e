# SPDX-License-Identifier: Apache-2.0
"""Every collective on every kind of tensor that it takes, against the result that its definition gives."""
from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from pool import DEVICE

from stepccl import StepcclError

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]


def place(rank: int) -> torch.device:
    return torch.device("cuda", rank % torch.cuda.device_count()) if DEVICE == "cuda" else torch.device("cpu")


def data(rank: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """What a rank contributes: small whole numbers, so that sums of every type are exact."""
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.randint(0, 5, (elements,), generator=generator).to(dtype)


def same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    wrong = int((got.cpu() != wanted).sum())
    assert wrong == 0, f"{wrong} of {wanted.numel()} elements are wrong"


def total(world: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    return sum(data(rank, elements, torch.float64) for rank in range(world)).to(dtype)


def reductions(rank: int, world: int) -> None:
    for dtype in FLOATS + INTEGERS:
        for elements in (1, 7, 5000):
            tensor = data(rank, elements, dtype).to(place(rank))
            dist.all_reduce(tensor)
            same(tensor, total(world, elements, dtype))
    columns = torch.stack([data(r, 100, torch.int64) for r in range(world)])
    for op, wanted in (
        (dist.ReduceOp.MAX, columns.max(0).values),
        (dist.ReduceOp.MIN, columns.min(0).values),
        (dist.ReduceOp.PRODUCT, columns.prod(0)),
    ):
        tensor = data(rank, 100, torch.int64).to(place(rank))
        dist.all_reduce(tensor, op=op)
        same(tensor, wanted)
    tensor = data(rank, 100, torch.float32).to(place(rank))
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    assert torch.allclose(tensor.cpu(), columns.float().mean(0))
    truth = torch.tensor([True, rank == 0, False], device=place(rank))
    dist.all_reduce(truth)
    same(truth, torch.tensor([True, True, False]))
    truth = torch.tensor([True, rank == 0, False], device=place(rank))
    dist.all_reduce(truth, op=dist.ReduceOp.PRODUCT)
    same(truth, torch.tensor([True, world == 1, False]))
    root = world - 1
    tensor = data(rank, 33, torch.float32).to(place(rank))
    dist.reduce(tensor, dst=root)
    same(tensor, total(world, 33, torch.float32) if rank == root else data(rank, 33, torch.float32))


def movements(rank: int, world: int) -> None:
    for dtype in FLOATS + INTEGERS + [torch.bool, torch.int16, torch.complex64]:
        for elements in (1, 4099):
            own = data(rank, elements, dtype).to(place(rank))
            every = [data(r, elements, dtype) for r in range(world)]
            tensor = own.clone()
            dist.broadcast(tensor, src=world - 1)
            same(tensor, every[-1])
            outputs = [torch.empty_like(own) for _ in range(world)]
            dist.all_gather(outputs, own)
            for output, wanted in zip(outputs, every):
                same(output, wanted)
            if dtype is torch.complex64:
                continue  # torch itself makes real views for the calls above only
            flat = torch.empty(world * elements, dtype=dtype, device=place(rank))
            dist.all_gather_into_tensor(flat, own)
            same(flat, torch.cat(every))
            # In place: the input is this rank's part of the output.
            flat = torch.zeros(world * elements, dtype=dtype, device=place(rank))
            flat[rank * elements : (rank + 1) * elements] = own
            dist.all_gather_into_tensor(flat, flat[rank * elements : (rank + 1) * elements])
            same(flat, torch.cat(every))
            gathered = [torch.empty_like(own) for _ in range(world)] if rank == 0 else None
            dist.gather(own, gathered, dst=0)
            if rank == 0:
                for output, wanted in zip(gathered, every):
                    same(output, wanted)
            output = torch.empty_like(own)
            parts = [data(10 + r, elements, dtype).to(place(rank)) for r in range(world)] if rank == 0 else None
            dist.scatter(output, parts, src=0)
            same(output, data(10 + rank, elements, dtype))


def scattered_sums(rank: int, world: int) -> None:
    for elements in (1, 2050):
        whole = data(rank, world * elements, torch.float32).to(place(rank))
        wanted = total(world, world * elements, torch.float32)[rank * elements : (rank + 1) * elements]
        output = torch.empty(elements, device=place(rank))
        dist.reduce_scatter_tensor(output, whole)
        same(output, wanted)
        output = torch.empty(elements, device=place(rank))
        # Apart in memory, so that they have to be put in a row.
        dist.reduce_scatter(output, [part.clone() for part in whole.chunk(world)])
        same(output, wanted)
    sizes = [3 + r for r in range(world)]
    inputs = [torch.full((size,), float(rank + 1), device=place(rank)) for size in sizes]
    output = torch.empty(sizes[rank], device=place(rank))
    dist.reduce_scatter(output, inputs)
    same(output, torch.full((sizes[rank],), float(sum(range(1, world + 1)))))


def exchanges(rank: int, world: int) -> None:
    own = torch.arange(world * 6, dtype=torch.float32, device=place(rank)) + 1000 * rank
    output = torch.empty_like(own)
    dist.all_to_all_single(output, own)
    same(output, torch.cat([torch.arange(world * 6, dtype=torch.float32)[rank * 6 : rank * 6 + 6] + 1000 * r for r in range(world)]))
    # Rank r sends r + p rows of two to rank p.
    send = [rank + p for p in range(world)]
    receive = [r + rank for r in range(world)]
    own = torch.full((sum(send), 2), float(rank), device=place(rank))
    output = torch.empty(sum(receive), 2, device=place(rank))
    dist.all_to_all_single(output, own, receive, send)
    same(output, torch.cat([torch.full((count, 2), float(r)) for r, count in enumerate(receive)]))
    inputs = [torch.full((rank + p + 1,), float(rank * world + p), device=place(rank)) for p in range(world)]
    outputs = [torch.empty(r + rank + 1, device=place(rank)) for r in range(world)]
    dist.all_to_all(outputs, inputs)
    for r, output in enumerate(outputs):
        same(output, torch.full((r + rank + 1,), float(r * world + rank)))


def messages(rank: int, world: int) -> None:
    after, before = (rank + 1) % world, (rank - 1) % world
    out, into = torch.full((50_000,), float(rank), device=place(rank)), torch.empty(50_000, device=place(rank))
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, out, after), dist.P2POp(dist.irecv, into, before)]):
        work.wait()
    same(into, torch.full((50_000,), float(before)))
    # Several messages of a pair keep their order.
    if rank < 2:
        tensors = [torch.full((3,), float(number), device=place(rank)) for number in range(4)]
        if rank == 0:
            for tensor in tensors:
                dist.send(tensor, dst=1)
        else:
            for number in range(4):
                tensor = torch.empty(3, device=place(rank))
                assert dist.recv(tensor, src=0) == 0
                same(tensor, torch.full((3,), float(number)))
    dist.barrier()


def premultiplied(rank: int, world: int) -> None:
    op = torch._C._distributed_c10d._make_nccl_premul_sum(0.5)
    tensor = data(rank, 100, torch.float32).to(place(rank))
    if int(torch.__version__.split(".")[0]) < 2:
        with pytest.raises(StepcclError, match="^R103 .*PREMUL_SUM"):
            dist.all_reduce(tensor, op=op)
        return
    dist.all_reduce(tensor, op=op)
    same(tensor, total(world, 100, torch.float32) / 2)
    whole = data(rank, world * 10, torch.float32).to(place(rank))
    part = torch.empty(10, device=place(rank))
    dist.reduce_scatter_tensor(part, whole, op=op)
    same(part, total(world, world * 10, torch.float32)[rank * 10 : rank * 10 + 10] / 2)


def uneven_and_empty(rank: int, world: int) -> None:
    outputs = [torch.empty(r + 2, device=place(rank)) for r in range(world)]
    dist.all_gather(outputs, torch.full((rank + 2,), float(rank), device=place(rank)))
    for r, output in enumerate(outputs):
        same(output, torch.full((r + 2,), float(r)))
    nothing = torch.empty(0, device=place(rank))
    dist.all_reduce(nothing)
    dist.broadcast(nothing, src=0)
    dist.all_gather([torch.empty(0, device=place(rank)) for _ in range(world)], nothing)
    dist.all_to_all_single(torch.empty(0, device=place(rank)), nothing)
    image = torch.full((2, 3, 4, 4), float(rank), device=place(rank)).contiguous(memory_format=torch.channels_last)
    dist.all_reduce(image)
    assert image.is_contiguous(memory_format=torch.channels_last)
    same(image, torch.full((2, 3, 4, 4), float(sum(range(world)))))
    scalar = torch.tensor(float(rank), device=place(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(world))


def coalesced(rank: int, world: int) -> None:
    group = dist.group.WORLD
    tensors = [data(rank, size, torch.float32).to(place(rank)) for size in (5, 1, 3000)]
    group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()
    for tensor in tensors:
        same(tensor, total(world, tensor.numel(), torch.float32))
    inputs = [data(rank, size, torch.float32).to(place(rank)) for size in (4, 9)]
    outputs = [torch.empty(world * size, device=place(rank)) for size in (4, 9)]
    group.allgather_into_tensor_coalesced(outputs, inputs).wait()
    for output in outputs:
        same(output, torch.cat([data(r, output.numel() // world, torch.float32) for r in range(world)]))
    group.reduce_scatter_tensor_coalesced(inputs, outputs).wait()
    for input, output in zip(inputs, outputs):
        same(input, (world * output.cpu().chunk(world)[rank]))
    rows = [[torch.empty(4, device=place(rank)), torch.empty(9, device=place(rank))] for _ in range(world)]
    group.allgather_coalesced(rows, [data(rank, 4, torch.float32).to(place(rank)), data(rank, 9, torch.float32).to(place(rank))]).wait()
    for r, row in enumerate(rows):
        same(row[0], data(r, 4, torch.float32))
        same(row[1], data(r, 9, torch.float32))


@pytest.mark.parametrize("job", [reductions, premultiplied, movements, scattered_sums, exchanges, messages, uneven_and_empty, coalesced], ids=lambda job: job.__name__)
def test_results(ranks, job) -> None:
    ranks.run(job)
