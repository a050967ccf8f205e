# SPDX-License-Identifier: Apache-2.0
"""What is refused, and what happens to the others when a rank fails: always a StepcclError with its code, never a hang."""
from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pool import DEVICE
from test_collectives import place, same

import stepccl
from stepccl import StepcclError


def refused(rank: int, world: int) -> None:
    """Arguments that can be judged here are refused before anything moves: the group works afterwards."""
    here = place(rank)
    group = dist.group.WORLD
    root = dist.BroadcastOptions()
    root.rootRank = world
    plain = torch.ones(world * 2, device=here)
    cases = [
        ("R101", "not contiguous", lambda: dist.all_reduce(torch.ones(4, 4, device=here).t()[:2])),
        ("R101", "meta", lambda: dist.all_reduce(torch.ones(4, device="meta"))),
        ("R101", "sparse", lambda: dist.all_reduce(torch.eye(3, device=here).to_sparse())),
        ("R103", "complex64", lambda: group.allreduce([torch.ones(2, dtype=torch.complex64, device=here)], dist.AllreduceOptions())),
        ("R103", "int16", lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16, device=here))),
        ("R103", "BXOR", lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32, device=here), op=dist.ReduceOp.BXOR)),
        ("R101", "elements", lambda: dist.all_gather_into_tensor(torch.empty(3, device=here), plain)),
        ("R101", "one type", lambda: dist.all_gather_into_tensor(torch.empty(world * world * 2, dtype=torch.float64, device=here), plain)),
        ("R101", "add up", lambda: dist.all_to_all_single(torch.empty(world * 2, device=here), plain, [2] * world, [3] * world)),
        ("R101", "root", lambda: group.broadcast([plain], root)),
        ("R101", "list of one", lambda: group.broadcast([plain, plain], dist.BroadcastOptions())),
        ("R103", "tag", lambda: dist.isend(plain, (rank + 1) % world, tag=3)),
        ("R103", "any rank", lambda: dist.irecv(plain)),
        ("R101", "another rank", lambda: group.send([plain], world, 0)),
    ]
    if not torch.cuda.is_available():
        cases += [("R601", "no GPU", lambda: stepccl.attach()), ("R601", "no GPU", lambda: stepccl.empty(4))]
    cases.append(("R101", "must be a GPU", lambda: stepccl.empty(4, device="cpu")))
    cases.append(("R101", "integers", lambda: stepccl.empty(-1)))
    if DEVICE == "cuda":
        cases.append(("R101", "one device", lambda: dist.all_gather_into_tensor(torch.empty(world * world * 2), plain)))
        if torch.cuda.device_count() > 1:
            other = torch.ones(4, device=f"cuda:{(rank + 1) % torch.cuda.device_count()}")
            dist.all_reduce(torch.ones(1, device=here))
            cases.append(("R604", "one GPU", lambda: dist.all_reduce(other)))
    for code, words, call in cases:
        with pytest.raises(StepcclError, match=words) as caught:
            call()
        assert caught.value.code == code, str(caught.value)
    dist.all_reduce(plain)
    same(plain, torch.full((world * 2,), float(world)))


def mismatch(rank: int, world: int) -> str:
    tensor = torch.ones(100 if rank else 200)
    try:
        dist.all_reduce(tensor)
    except StepcclError as problem:
        return problem.code
    return "no error"


def error_in_future(rank: int, world: int) -> str:
    try:
        dist.all_reduce(torch.ones(100 if rank else 200), async_op=True).get_future().wait()
    except RuntimeError as problem:
        return str(problem)
    return "no error"


def dies(rank: int, world: int) -> float:
    """The last rank dies while the others wait for it."""
    tensor = torch.ones(1_000_000, device=place(rank))
    dist.all_reduce(tensor)
    if rank == world - 1:
        os._exit(9)
    began = time.monotonic()
    with pytest.raises(StepcclError) as caught:
        for _ in range(100):
            dist.all_reduce(tensor)
            if DEVICE == "cuda":
                torch.cuda.synchronize()
    assert caught.value.code in ("R201", "R206"), str(caught.value)
    assert caught.value.peer == world - 1, str(caught.value)
    return time.monotonic() - began


def aborts(rank: int, world: int) -> str:
    tensor = torch.ones(1000)
    if rank == 0:
        dist.all_reduce(tensor)
        stepccl.abort()
        return "R205"
    try:
        for _ in range(2):  # the abort may come before the first has ended everywhere
            dist.all_reduce(tensor)
    except StepcclError as problem:
        return problem.code
    return "no error"


def times_out(rank: int, world: int) -> float:
    """Rank 0 never makes the call."""
    began = time.monotonic()
    if rank:
        with pytest.raises(StepcclError, match="^R20[36] "):
            dist.all_reduce(torch.ones(8))
    else:
        time.sleep(2.5)
    return time.monotonic() - began


def closed(rank: int, world: int) -> None:
    group = dist.new_group(list(range(world)), backend="stepccl")
    dist.all_reduce(torch.ones(4), group=group)
    group.shutdown()
    group.shutdown()
    with pytest.raises(StepcclError, match="^R102 .*closed"):
        group.allreduce([torch.ones(4)], dist.AllreduceOptions())


def forked(rank: int, world: int) -> None:
    """A forked child (a data loader's worker, say) is told that the group is not its own, and its end harms nobody."""
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            dist.all_reduce(tensor)
        except StepcclError as problem:
            if problem.code == "R102" and "forked" in str(problem):
                dist.destroy_process_group()
                status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    dist.all_reduce(tensor)
    same(tensor, torch.full((4,), float(world * world)))


def rank0_cannot_begin(rank: int, world: int, store: str) -> str:
    """The others learn at once why, not by their timeout."""
    if rank == 0:
        os.environ["STEPCCL_SOCKET_IFNAME"] = "=no-such-interface"
    began = time.monotonic()
    try:
        dist.init_process_group("stepccl", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=30))
    except StepcclError as problem:
        assert time.monotonic() - began < 15
        return str(problem)
    finally:
        os.environ["STEPCCL_SOCKET_IFNAME"] = "lo"
    return "no error"


def secret_is_gone(rank: int, world: int) -> None:
    """The unique id must not stay in the store."""
    store = dist.PrefixStore("secret", dist.distributed_c10d._get_default_store())
    group = stepccl.ProcessGroupStepCCL(store, rank, world, timedelta(seconds=20))
    group.barrier().wait()
    if rank == 0:
        with pytest.raises(RuntimeError):  # dist.DistStoreError, a time-out
            store.wait(["stepccl/unique_id"], timedelta(milliseconds=50))
    group.barrier().wait()
    group.shutdown()


def leaves_with_a_receive(rank: int, world: int) -> float:
    """A receive that never gets its message does not keep a rank from leaving."""
    group = dist.new_group(list(range(world)), backend="stepccl")
    forgotten = group.recv([torch.empty(4)], (rank + 1) % world, 0)
    began = time.monotonic()
    group.shutdown()
    with pytest.raises(StepcclError, match="^R20[56] "):
        forgotten.wait()
    return time.monotonic() - began


def short_leave(rank: int, world: int) -> None:
    stepccl._process_group._LEAVE_S = 0.5


def test_a_forgotten_receive_is_aborted(ranks) -> None:
    ranks.run(short_leave, own_group=False)
    for seconds in ranks.run(leaves_with_a_receive):
        assert seconds < 10


@pytest.mark.skipif(DEVICE != "cpu", reason="CUDA does not survive a fork")
def test_a_forked_child_keeps_out(ranks) -> None:
    ranks.run(forked)


def test_bad_arguments(ranks) -> None:
    ranks.run(refused)


def test_a_closed_group_says_so(ranks) -> None:
    ranks.run(closed)


def test_the_secret_leaves_the_store(ranks) -> None:
    ranks.run(secret_is_gone)


def test_mismatch_is_named_on_every_rank(ranks) -> None:
    assert ranks.run(mismatch) == ["R204"] * ranks.size


def test_a_future_has_the_error(ranks) -> None:
    for text in ranks.run(error_in_future):
        assert "R204 mismatch" in text


def test_an_abort_reaches_all(ranks) -> None:
    assert ranks.run(aborts) == ["R205"] + ["R206"] * (ranks.size - 1)


def test_a_missing_rank_is_a_timeout(ranks) -> None:
    for seconds in ranks.run(times_out, timeout_s=1.0)[1:]:
        assert 0.5 < seconds < 10


def test_rank0_cannot_begin(ranks, tmp_path: Path) -> None:
    texts = ranks.run(rank0_cannot_begin, str(tmp_path / "store"), own_group=False)
    assert texts[0].startswith(("R304 ", "R104 ", "R101 ")) and "no-such-interface" in texts[0]
    for text in texts[1:]:
        assert text.startswith("R304 ") and "no-such-interface" in text


def test_a_dead_rank_ends_the_others_in_time(ranks) -> None:
    outcomes = ranks.outcomes(dies)
    assert outcomes[-1] == ("died", 9)
    for kind, value in outcomes[:-1]:
        assert kind == "ok", value
        assert value < 15
