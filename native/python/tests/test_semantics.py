# SPDX-License-Identifier: Apache-2.0
"""Handles, futures, groups and what torch builds on them."""
from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from pool import DEVICE
from test_collectives import data, place, same, total
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stepccl


def handles(rank: int, world: int) -> None:
    tensors = [data(rank, 20_000, torch.float32).to(place(rank)) for _ in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait() is True
        assert work.is_completed() or DEVICE == "cuda"
    for tensor in tensors:
        same(tensor, total(world, 20_000, torch.float32))
    assert works[0].exception() is None
    works[0].wait()  # a second time is allowed
    # Nobody waits, nobody holds the tensor: it must live until the operation has ended.
    for _ in range(20):
        dist.all_reduce(torch.ones(100_000, device=place(rank)), async_op=True)
    dist.barrier()
    if rank == 0 and world > 1 and DEVICE == "cpu":
        request = dist.irecv(torch.empty(4), src=1)
        assert not request.is_completed()
        began = time.monotonic()
        with pytest.raises(stepccl.StepcclError, match="^R203 "):
            request.wait(timedelta(milliseconds=50))
        assert time.monotonic() - began < 5
    dist.barrier()
    if rank == 1 and DEVICE == "cpu":
        dist.send(torch.ones(4), dst=0)
    if rank == 0 and world > 1 and DEVICE == "cpu":
        request.wait()  # it went on
        assert request.is_success()


def futures(rank: int, world: int) -> None:
    tensor = torch.full((1000,), float(rank), device=place(rank))
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    same(doubled.wait(), torch.full((1000,), 2.0 * sum(range(world))))
    # Of several, also in another order.
    tensors = [torch.full((10,), float(number + rank), device=place(rank)) for number in range(5)]
    pending = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
    for number, future in reversed(list(enumerate(pending))):
        same(future.wait()[0], torch.full((10,), float(number * world + sum(range(world)))))


def objects(rank: int, world: int) -> None:
    found: list = [None] * world
    dist.all_gather_object(found, {"rank": rank, "text": "x" * (rank * 1000)})
    assert [entry["rank"] for entry in found] == list(range(world)) and len(found[-1]["text"]) == (world - 1) * 1000
    box = ["from the last", rank] if rank == world - 1 else [None, None]
    dist.broadcast_object_list(box, src=world - 1)
    assert box == ["from the last", world - 1]
    gathered: list | None = [None] * world if rank == 0 else None
    dist.gather_object(("part", rank), gathered, dst=0)
    if rank == 0:
        assert gathered == [("part", r) for r in range(world)]
    part: list = [None]
    dist.scatter_object_list(part, [f"for {r}" for r in range(world)] if rank == 0 else None, src=0)
    assert part == [f"for {rank}"]


def groups(rank: int, world: int) -> None:
    assert dist.get_backend() == "stepccl"
    pairs = [dist.new_group([0, 1], backend="stepccl"), dist.new_group([1, world - 1] if world > 2 else [0, 1], backend="stepccl")]
    ones = torch.ones(10, device=place(rank))
    if rank in (0, 1):
        dist.all_reduce(ones, group=pairs[0])
        same(ones, torch.full((10,), 2.0))
    if world > 2 and rank in (1, world - 1):
        # The root is named by its rank in the world.
        tensor = torch.full((3,), float(rank))
        dist.broadcast(tensor.to(place(rank)), src=world - 1, group=pairs[1])
    dist.barrier()
    found = stepccl.info()
    assert found["rank"] == rank and found["world_size"] == world and found["state"] == "R000"
    assert found["operations"] > 0
    for group in pairs:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)


def settings(rank: int, world: int) -> None:
    stepccl.set_pipeline_depth(8)
    assert stepccl.info()["pipeline_depth"] == 8
    depths = stepccl.set_pipeline_depth("auto")
    assert depths is not None and set(depths.values()) <= {4, 6, 8}
    tensor = data(rank, 4_000_000, torch.float32).to(place(rank))
    stepccl.enable_paging(page_size=4 << 20, prefetch_depth=2)
    try:
        assert stepccl.info()["page_bytes"] == 4 << 20
        work = dist.all_reduce(tensor, async_op=True)
        if DEVICE == "cpu":
            work.wait_page(0)
            same(tensor[:1000], total(world, 4_000_000, torch.float32)[:1000])
            with pytest.raises(stepccl.StepcclError, match="^R101 "):
                work.wait_page(4)
        work.wait()
        same(tensor, total(world, 4_000_000, torch.float32))
    finally:
        stepccl.disable_paging()
        stepccl.reset_configuration()
    assert stepccl.info()["page_bytes"] == 0
    assert "ring" in stepccl.explain("all_reduce", 1 << 20)
    with pytest.raises(stepccl.StepcclError, match="^R101 "):
        stepccl.explain("all_shuffle", 1)


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def ddp(rank: int, world: int) -> None:
    """Training with DDP gives what one process gives on the whole batch."""
    generator = torch.Generator().manual_seed(3)
    batches = [(torch.randn(world * 8, 16, generator=generator), torch.randn(world * 8, 4, generator=generator)) for _ in range(4)]
    alone, shared = network(), network().to(place(rank))
    model = DistributedDataParallel(shared, bucket_cap_mb=0.01, find_unused_parameters=True)
    for net, parts in ((alone, 1), (model, world)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in batches:
            if parts > 1:
                x, y = x.chunk(world)[rank].to(place(rank)), y.chunk(world)[rank].to(place(rank))
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
    for one, other in zip(alone.parameters(), shared.parameters()):
        assert torch.allclose(one, other.cpu(), atol=1e-5), (one - other.cpu()).abs().max()


def functional(rank: int, world: int) -> None:
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD
    own = torch.full((4,), float(rank), device=place(rank))
    same(funcol.all_reduce(own, "sum", group) + 0, torch.full((4,), float(sum(range(world)))))
    same(funcol.all_gather_tensor(own, 0, group) + 0, torch.cat([torch.full((4,), float(r)) for r in range(world)]))
    whole = torch.arange(world * 2, dtype=torch.float32, device=place(rank))
    same(funcol.reduce_scatter_tensor(whole, "sum", 0, group) + 0, world * torch.arange(world * 2, dtype=torch.float32)[rank * 2 : rank * 2 + 2])


def fsdp(rank: int, world: int) -> None:
    """FSDP2 steps give what one process gives."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(dist.group.WORLD, DEVICE)
    alone, shared = network(), network().to(place(rank))
    for layer in shared:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(shared, mesh=mesh)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(world * 8, 16, generator=generator)
    for net, part in ((alone, x), (shared, x.chunk(world)[rank].to(place(rank)))):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            net(part).square().mean().backward()
            optimizer.step()
    for one, other in zip(alone.parameters(), shared.parameters()):
        assert torch.allclose(one, other.full_tensor().cpu(), atol=1e-5)


@pytest.mark.parametrize("job", [handles, futures, objects, groups, settings, ddp], ids=lambda job: job.__name__)
def test_semantics(ranks, job) -> None:
    ranks.run(job)


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


@pytest.mark.skipif(_version() < (2, 1), reason="functional collectives in this form came with torch 2.1")
def test_functional_collectives(ranks) -> None:
    ranks.run(functional)


@pytest.mark.skipif(_version() < (2, 6), reason="fully_shard came with torch 2.6")
def test_fsdp2(ranks) -> None:
    ranks.run(fsdp)


def test_the_backend_has_its_name() -> None:
    assert dist.Backend("stepccl") == "stepccl"
    assert stepccl.__version__.count(".") == 2
