# SPDX-License-Identifier: Apache-2.0
"""What only a GPU has: streams, graphs, windows, the pool; and training against NCCL."""
from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from pool import DEVICE, SHARED
from test_collectives import place, same
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stepccl

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="there is no GPU: STEPCCL_TEST_DEVICE=cuda runs these on one")


def total(world: int) -> float:
    return float(sum(range(1, world + 1)))


def waits_on_streams(rank: int, world: int) -> None:
    """An asynchronous operation is ordered after what its stream had queued; wait() orders what comes then."""
    compute = torch.cuda.Stream()
    for _ in range(10):
        with torch.cuda.stream(compute):
            tensor = torch.zeros(1 << 20, device=place(rank))
            torch.cuda._sleep(2_000_000)
            tensor += rank + 1
            work = dist.all_reduce(tensor, async_op=True)
            assert not work.is_completed() or torch.cuda.current_stream().query()
            work.wait()
            tensor *= 2
        compute.synchronize()
        same(tensor, torch.full((1 << 20,), 2 * total(world)))


def memory_is_held(rank: int, world: int) -> None:
    """Tensors that are dropped before their operation has run are not given to anybody else."""
    checks = []
    for number in range(30):
        tensor = torch.full((1 << 18,), float(number), device=place(rank))
        work = dist.all_reduce(tensor, async_op=True)
        if number % 2:
            work.wait()
            checks.append((number, tensor))
        del tensor, work
        torch.full((1 << 18,), -1.0, device=place(rank))
    torch.cuda.synchronize()
    for number, tensor in checks:
        same(tensor, torch.full((1 << 18,), float(number * world)))


def graph(rank: int, world: int) -> None:
    """A captured step with collectives inside, replayed with new data; asynchronous ones too; eager calls in between."""
    elements = 100_003
    inputs = torch.zeros(elements, device=place(rank))
    summed, gathered, async_sum = (torch.empty(size, device=place(rank)) for size in (elements, world * elements, elements))
    dist.all_reduce(torch.ones(1, device=place(rank)))
    side = torch.cuda.Stream()

    def step() -> None:
        summed.copy_(inputs)
        dist.all_reduce(summed)
        async_sum.copy_(inputs * 2)
        work = dist.all_reduce(async_sum, async_op=True)
        dist.all_gather_into_tensor(gathered, inputs)
        work.wait()
        summed.add_(async_sum)

    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=side):
        step()
    for number in range(5):
        inputs.fill_(number * 10 + rank + 1)
        torch.cuda.synchronize()
        captured.replay()
        eager = torch.ones(1000, device=place(rank))
        torch.cuda.synchronize()
        dist.all_reduce(eager)
        same(eager, torch.full((1000,), float(world)))
        base = number * 10 * world + total(world)
        same(summed, torch.full((elements,), 3 * base))
        same(gathered, torch.cat([torch.full((elements,), number * 10.0 + r + 1) for r in range(world)]))
    del captured


def windows(rank: int, world: int) -> None:
    """Tensors from stepccl.empty: every operation on them, and their memory comes back."""
    for dtype in (torch.float32, torch.bfloat16):
        for elements in (8, 1 << 20):
            tensor = stepccl.empty(elements, dtype=dtype)
            assert tensor.shape == (elements,) and tensor.dtype is dtype and tensor.device == place(rank)
            tensor.fill_(rank + 1)
            dist.all_reduce(tensor)
            same(tensor, torch.full((elements,), total(world), dtype=dtype))
            whole = stepccl.empty(world, elements, dtype=dtype)
            tensor.fill_(rank)
            dist.all_gather_into_tensor(whole, tensor)
            same(whole, torch.arange(world).to(dtype).unsqueeze(1).expand(world, elements).contiguous())
            out = stepccl.empty(world, elements, dtype=dtype)
            dist.all_to_all_single(out, whole)
            same(out, torch.full((world, elements), float(rank), dtype=dtype))
            dist.broadcast(tensor, src=world - 1)
            same(tensor, torch.full((elements,), float(world - 1), dtype=dtype))
            del tensor, whole, out
    torch.cuda.synchronize()
    assert stepccl.info()["pool"]["buffers"] == 0


def plain_buffers(rank: int, world: int) -> None:
    """Large collectives on ordinary tensors go without staging, wherever the allocator puts them; also captured."""
    device = place(rank)
    for round in range(3):
        elements = (6 + round) << 20
        paths = set()
        for _ in range(6):  # a rank that is late makes all of them stage a call
            tensor = torch.full((elements,), float(rank + 1), dtype=torch.bfloat16, device=device)
            torch.cuda.synchronize()
            dist.barrier()
            dist.all_reduce(tensor)
            same(tensor, torch.full((elements,), total(world), dtype=torch.bfloat16))
            paths.add(stepccl.receipt()["path"])
            whole = torch.zeros(world * elements, dtype=torch.bfloat16, device=device)
            tensor.fill_(rank)
            torch.cuda.synchronize()
            dist.barrier()
            dist.all_gather_into_tensor(whole, tensor)
            same(whole.view(world, elements)[:, ::4097], torch.arange(world, dtype=torch.bfloat16)[:, None].expand(world, elements)[:, ::4097])
            paths.add(stepccl.receipt()["path"])
        assert {"direct", "copy_engine"} <= paths, paths
        del tensor, whole
        torch.cuda.empty_cache()  # the next round's are other allocations
    kept = torch.zeros(8 << 20, dtype=torch.bfloat16, device=device)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(kept)
    assert stepccl.receipt()["path"] == "direct"
    for number in range(3):
        kept.fill_(number + rank)
        captured.replay()
        same(kept, torch.full(kept.shape, float(world * number + total(world) - world), dtype=torch.bfloat16))
    torch.cuda.synchronize()
    del captured


def pool(rank: int, world: int) -> None:
    """Holes in the pool, compacted; what lives keeps its address and its content, a captured graph its result."""
    stepccl.attach()
    stepccl.enable_hbm_defrag(interval=3_600_000)  # graphs that are captured from here on go along with a move
    tensors = [stepccl.empty(4 << 20, dtype=torch.float32) for _ in range(8)]
    for number, tensor in enumerate(tensors):
        tensor.fill_(number)
    kept = tensors[1::2]
    addresses = [tensor.data_ptr() for tensor in kept]
    del tensors, tensor
    torch.cuda.synchronize()
    before = stepccl.info()["pool"]
    captured = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.graph(captured, stream=side):
        dist.all_reduce(kept[0])
    stepccl.disable_hbm_defrag()
    stepccl.defrag_now()
    after = stepccl.info()["pool"]
    assert after["defrag_epochs"] > before["defrag_epochs"]
    assert after["held_bytes"] <= before["held_bytes"] and after["fragmentation_permille"] <= before["fragmentation_permille"]
    assert [tensor.data_ptr() for tensor in kept] == addresses
    for number, tensor in zip((1, 3, 5, 7), kept):
        same(tensor, torch.full((4 << 20,), float(number)))
    captured.replay()
    torch.cuda.synchronize()
    same(kept[0], torch.full((4 << 20,), float(world)))
    stepccl.enable_hbm_defrag(interval=20)
    try:
        for _ in range(50):
            dist.all_reduce(kept[1])
            kept[1].fill_(1)
        torch.cuda.synchronize()
        assert stepccl.info()["gpu"]["defrag_interval_ms"] == 20
    finally:
        stepccl.disable_hbm_defrag()
    del captured


def pages(rank: int, world: int) -> None:
    """Pinned host memory through the pool, and a tensor larger than a page."""
    dist.all_reduce(torch.ones(1, device=place(rank)))
    stepccl.enable_paging(page_size=8 << 20, prefetch_depth=2)
    try:
        host = torch.full((10_000_001,), float(rank + 1)).pin_memory()
        dist.all_reduce(host)
        torch.cuda.synchronize()
        same(host, torch.full((10_000_001,), total(world)))
        tensor = torch.full((10_000_001,), float(rank + 1), device=place(rank))
        dist.all_reduce(tensor)
        same(tensor, torch.full((10_000_001,), total(world)))
    finally:
        stepccl.disable_paging()
        stepccl.reset_configuration()


def reports(rank: int, world: int) -> None:
    dist.all_reduce(torch.ones(1, device=place(rank)))
    found = stepccl.info()
    assert found["gpu"]["rank"] == rank and found["gpu"]["gpu_uuid"].startswith("GPU-")
    assert found["gpu"]["async_level"] in ("none", "stream", "nic") and found["gpu"]["async_reason"]
    assert found["pool"]["held_bytes"] >= found["pool"]["used_bytes"] > 0


def receipts(rank: int, world: int) -> None:
    """Every operation says which way it went and how long it held multiprocessors."""
    tensor = stepccl.empty(4 << 20, dtype=torch.float32)
    tensor.fill_(rank)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    torch.cuda.synchronize()
    taken = work.receipt()
    assert taken["blocks"] > 0 and taken["runs"] == 1 and taken["sm_ns"] > 0 and taken["link_bytes"] > 0
    whole = stepccl.empty(world, 4 << 20, dtype=torch.float32)
    dist.all_gather_into_tensor(whole, tensor)
    torch.cuda.synchronize()
    taken = stepccl.receipt()
    assert taken["path"] == "copy_engine" and taken["blocks"] == 0 and taken["copies"] > 0


def budget(rank: int, world: int) -> None:
    """The bound on thread blocks holds, for a live group."""
    tensor = stepccl.empty(4 << 20, dtype=torch.float32)
    stepccl.set_sm_budget(2)
    try:
        tensor.fill_(rank + 1)
        dist.all_reduce(tensor)
        same(tensor, torch.full((4 << 20,), total(world)))
        assert 0 < stepccl.receipt()["blocks"] <= 2
    finally:
        stepccl.set_sm_budget(0)


def registered(rank: int, world: int) -> None:
    """An ordinary tensor that is made visible, and one that is not registered."""
    tensor = torch.full((8 << 20,), float(rank + 1), device=place(rank))
    stepccl.register(tensor)
    dist.all_reduce(tensor)
    same(tensor, torch.full((8 << 20,), total(world)))
    torch.cuda.synchronize()
    stepccl.unregister(tensor)
    with pytest.raises(stepccl.StepcclError, match="^R101 .*not registered"):
        stepccl.unregister(tensor)
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    same(tensor, torch.full((8 << 20,), total(world)))


def missing_rank(rank: int, world: int) -> str:
    """Rank 0 does not come: the others' streams go on within the timeout, with an error that has a name."""
    tensor = torch.ones(1 << 20, device=place(rank))
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if rank == 0:
        time.sleep(6)
        return "R203"
    began = time.monotonic()
    with pytest.raises(stepccl.StepcclError) as caught:
        dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=20))
    torch.cuda.synchronize()
    assert time.monotonic() - began < 10
    return caught.value.code


def mismatch(rank: int, world: int) -> str:
    """Ranks that call different sizes are told so."""
    dist.all_reduce(torch.ones(8, device=place(rank)))
    torch.cuda.synchronize()
    with pytest.raises(stepccl.StepcclError) as caught:
        dist.all_reduce(torch.ones(100 if rank else 200_000, device=place(rank)), async_op=True).wait(timedelta(seconds=20))
    return caught.value.code


def memory_comes_back(rank: int, world: int) -> None:
    """What a group took on the GPU is given back when it goes."""
    torch.cuda.synchronize()
    dist.barrier()
    before, _ = torch.cuda.mem_get_info()
    group = dist.new_group(list(range(world)), backend="stepccl")
    dist.all_reduce(torch.ones(1 << 20, device=place(rank)), group=group)
    kept = stepccl.empty(64 << 20, dtype=torch.uint8, group=group)
    during, _ = torch.cuda.mem_get_info()
    assert before - during >= 64 << 20
    del kept
    dist.destroy_process_group(group)
    dist.barrier()
    torch.cuda.empty_cache()
    after, _ = torch.cuda.mem_get_info()
    assert before - after < 16 << 20, f"{(before - after) >> 20} MiB are still held"


def barrier_waits_for_the_gpu(rank: int, world: int) -> None:
    flag = torch.zeros(1, device=place(rank))
    torch.cuda._sleep(20_000_000)
    flag += 1
    dist.barrier(device_ids=[place(rank).index])
    assert torch.cuda.current_stream().query()


def against_nccl(rank: int, world: int) -> None:
    """The same training, DDP on both backends: the same losses."""
    losses: dict[str, list[float]] = {}
    nccl = dist.new_group(backend="nccl")
    for name, group in (("stepccl", dist.group.WORLD), ("nccl", nccl)):
        torch.manual_seed(5)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(place(rank)), process_group=group, bucket_cap_mb=1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(10):
            x = torch.randn(64, 256, generator=generator).to(place(rank))
            optimizer.zero_grad()
            loss = (model(x) - x.flip(1)).square().mean()
            loss.backward()
            optimizer.step()
            losses.setdefault(name, []).append(loss.item())
    for one, other in zip(losses["stepccl"], losses["nccl"]):
        assert abs(one - other) <= 1e-4 * abs(other), losses
    assert losses["stepccl"][-1] < losses["stepccl"][0]
    dist.destroy_process_group(nccl)


def fsdp_on_windows(rank: int, world: int) -> None:
    """FSDP2 with its buffers in windows gives what it gives without."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = DeviceMesh.from_group(dist.group.WORLD, "cuda")
    found = []
    for windows_used in (False, True):
        torch.manual_seed(5)
        model = nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(4)]).to(place(rank))
        for layer in model:
            fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
            if windows_used and hasattr(layer, "set_allocate_memory_from_process_group_for_comm"):
                layer.set_allocate_memory_from_process_group_for_comm(True)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(100 + rank)
        x = torch.randn(64, 512, device=place(rank))
        for _ in range(4):
            optimizer.zero_grad()
            model(x).float().square().mean().backward()
            optimizer.step()
        found.append([parameter.full_tensor().clone() for parameter in model.parameters()])
    for one, other in zip(*found):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "job", [waits_on_streams, memory_is_held, graph, windows, plain_buffers, receipts, budget, registered, pool, pages, reports, memory_comes_back, barrier_waits_for_the_gpu, pytest.param(against_nccl, marks=pytest.mark.skipif(SHARED, reason="NCCL wants a GPU for each rank")), fsdp_on_windows], ids=lambda job: job.__name__
)
def test_cuda(ranks, job) -> None:
    ranks.run(job, timeout_s=30.0)


def test_a_mismatch_on_the_gpu(ranks) -> None:
    codes = ranks.run(mismatch)
    assert set(codes) <= {"R204", "R206"} and "R204" in codes, codes


def test_a_missing_rank_on_the_gpu(ranks) -> None:
    codes = ranks.run(missing_rank, timeout_s=2.0)
    assert all(code in ("R203", "R206") for code in codes), codes
