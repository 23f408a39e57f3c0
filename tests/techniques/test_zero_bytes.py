"""What each stage of ZeRO holds and sends: by observation, equal to the paper's formulas."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.models import batches, tiny_gpt
from course_lib.ranks import collect
from course_lib.simulate.memory_formulas import FP32_ADAM, MIXED_ADAM, model_state_bytes
from course_lib.techniques.zero.unshard_reshard import ShardedState
from course_lib.techniques.zero1 import CarelessZero1, Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3

STAGES = {1: Zero1, 2: Zero2, 3: Zero3}


def make(kind: type, dtype: torch.dtype = torch.float32, **options):
    model = tiny_gpt(hidden=20, seed=dist.get_rank()).to(dtype)
    return kind(model, torch.optim.AdamW, master_dtype=torch.float32, **options)


def backward(zero) -> None:
    tokens, targets = next(batches(1, 2))
    zero.zero_grad()
    zero.model.loss(tokens, targets).backward()


def unique_bytes(tensors) -> int:
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def held(zero) -> tuple[int, int, int]:
    """Bytes of parameters, gradients and optimizer on this rank, and elements of padding:
    in all buffers together, and in this rank's shards."""
    tensors = list(zero.model.parameters())
    tensors += [p.grad for p in zero.model.parameters() if p.grad is not None]
    tensors += [b.shard for b in getattr(zero, "buckets", []) if b.shard is not None]
    for group in zero.optimizer.param_groups:
        tensors += group["params"]
    for state in zero.optimizer.state.values():
        tensors += [value for value in state.values() if value.dim()]  # but the count of steps
    shards = sum(shard.numel() for shard in zero.sharded.shards)
    padding = shards - sum(piece.numel() for piece in zero.sharded.pieces.values())
    return unique_bytes(tensors), sum(flat.padded for flat in zero.sharded.flats), padding


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_bytes_held_are_those_of_the_formula(world_size: int) -> None:
    def on_ranks():
        found = {}
        for stage, kind in STAGES.items():
            for dtype in (torch.float32, torch.bfloat16):
                zero = make(kind, dtype)
                backward(zero)
                zero.step()
                backward(zero)
                found[stage, dtype] = held(zero)
        return found

    parameters = sum(p.numel() for p in tiny_gpt(hidden=20).parameters())
    for found in collect(on_ranks, world_size, observe=False, timeout=60):
        for (stage, dtype), (nbytes, padded, own_padding) in found.items():
            states = FP32_ADAM if dtype == torch.float32 else MIXED_ADAM
            wanted = model_state_bytes(padded, world_size, stage, states)
            # Padding has no moments: it is in no piece that the optimizer steps.
            assert nbytes == wanted - 8 * own_padding, (stage, dtype)
            assert parameters <= padded < parameters + 5 * world_size


TIMES = {
    "1": (Zero1, {}, 2),
    "careless 1": (CarelessZero1, {}, 3),
    "2": (Zero2, {"bucket_bytes": 2**12}, 2),
    "3": (Zero3, {}, 3),
    "3, not freed after forward": (Zero3, {"free_after_forward": False}, 2),
}


@pytest.mark.parametrize("world_size", [2, 3])
def test_traffic_is_2_2_and_3_times_the_parameters(world_size: int) -> None:
    def on_ranks():
        sizes = {}
        for name, (kind, options, _) in TIMES.items():
            zero = make(kind, **options)
            with record_function(name):
                backward(zero)
                zero.step()
            sizes[name] = sum(flat.padded for flat in zero.sharded.flats), len(zero.trainable)
        return sizes

    results = collect(on_ranks, world_size, timeout=60)
    assert results.warnings == []
    for name, (_, _, times) in TIMES.items():
        padded, tensors = results[0][name]
        traffic = results.trace.within(name).traffic()
        ring = 4 * padded * (world_size - 1) // world_size
        flags = sum(traffic.sent) - times * ring * world_size
        # One byte for each tensor tells which have a gradient at all, by an all-reduce.
        assert flags == 2 * (world_size - 1) * tensors, name


def test_stage_2_sends_gradients_during_backward_and_keeps_two_buckets() -> None:
    def on_ranks():
        zero = make(Zero2, bucket_bytes=2**12)
        backward(zero)
        most = 0

        def count(_):
            nonlocal most
            grads = [[p.grad for p in bucket.flat.parameters] for bucket in zero.buckets]
            live = [any(g is not None for g in some) for some in grads]
            live = [a or hasattr(b, "sent") for a, b in zip(live, zero.buckets, strict=True)]
            most = max(most, sum(live))

        for parameter in zero.trainable:
            parameter.register_post_accumulate_grad_hook(count)
        with record_function("backward"):
            backward(zero)
        assert all(p.grad is None for p in zero.trainable)
        return len(zero.buckets), most

    results = collect(on_ranks, 2, timeout=60)
    buckets, most = results[0]
    assert buckets > 5
    assert most == 2
    sent = results.trace.within("backward").of(0)
    assert [event.op for event in sent] == ["reduce_scatter"] * buckets


def test_stage_3_prefetches_and_frees() -> None:
    def on_ranks():
        zero = make(Zero3)
        units = [unit for unit in zero.units.values() if unit.flats]
        whole_at_once = []

        def look(*_):
            whole_at_once.append(sum(u.sharded_state is not ShardedState.SHARDED for u in units))

        backward(zero)  # the first pass learns the order
        for module in list(zero.units)[1:]:
            module.register_forward_hook(look)
        for parameter in zero.trainable:
            parameter.register_post_accumulate_grad_hook(look)
        with record_function("step"):
            backward(zero)
        left = sum(w.untyped_storage().nbytes() for unit in units for w in unit.wholes)
        pieces = {p.dim() for p in zero.trainable}
        with zero.whole_parameters():
            shapes = [tuple(p.shape) for p in zero.trainable]
        return max(whole_at_once), left, pieces, shapes

    results = collect(on_ranks, 2, timeout=60)
    assert results[0] == (2, 0, {1}, [tuple(p.shape) for p in tiny_gpt(hidden=20).parameters()])
    events = results.trace.within("step").of(0)
    gathers = [event for event in events if event.op == "all_gather"]
    names = ["embedding", "blocks.0", "blocks.1", "head"]
    assert [e.spans[-1].split()[-1] for e in gathers] == [*names, *reversed(names)]
    # Backward gathers one ahead, and sends the gradients of a unit when it is done with it.
    letters = {"all_gather": "g", "reduce_scatter": "r"}
    assert "".join(letters[event.op] for event in events) == "gggg" + "ggrgrgrr"
    for here, ahead in pairwise(gathers[:4]):
        assert here.waited > ahead.issued
