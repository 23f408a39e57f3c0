"""What lay in memory on real ranks, to the byte: against formulas and counts by hand."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

from course_lib.models import batches, tiny_gpt
from course_lib.observe import Block, Memory, Trace
from course_lib.observe.events import Label
from course_lib.ranks import collect

KINDS = ("parameters", "gradients", "optimizer", "activations", "communication", "other")


def kept(fn, world_size=2, *args):
    """The `Memory` of a run of `fn`."""
    return collect(fn, world_size, args, observe="memory", timeout=60).trace.memory()


def mark(number):
    """Leave something in the curve that `held` finds again."""
    with record_function("other"):
        torch.empty(number << 20, dtype=torch.int8)


def held(memory, number, kind, rank=0):
    """Bytes of a kind at the mark."""
    nbytes = memory.curves[rank].nbytes
    rows = zip(nbytes[kind], nbytes["other"], strict=True)
    return next(found for found, other in rows if other >> 20 == number)


# ------------------------------------------------------------------------------------------------
# Model states
# ------------------------------------------------------------------------------------------------


def train(tied, number):
    model = tiny_gpt(hidden=32, seed=dist.get_rank(), tied=tied)
    model.embedding.positions.weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    for _, (tokens, targets) in zip(range(2), batches(1, 8), strict=False):
        optimizer.zero_grad()
        model.loss(tokens, targets).backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
    mark(number)


def train_both():
    train(False, 1)
    train(True, 2)


def test_the_states_of_a_model_to_the_byte():
    memory = kept(train_both)
    for number, tied in ((1, False), (2, True)):  # a tied weight is one parameter
        model = tiny_gpt(hidden=32, tied=tied)
        model.embedding.positions.weight.requires_grad_(False)
        trained = [p.numel() for p in model.parameters() if p.requires_grad]
        expected = {
            "parameters": 4 * sum(p.numel() for p in model.parameters()),
            "gradients": 4 * sum(trained),
            # Two moments, and the count of steps: one float for each parameter
            "optimizer": 8 * sum(trained) + 4 * len(trained),
            "activations": 0,
            "communication": 0,  # what it reduces are gradients
        }
        for rank in range(2):
            assert {kind: held(memory, number, kind, rank) for kind in expected} == expected
    for rank in range(2):
        assert sum(memory.at_peak[rank].values()) == memory.peak[rank]
        assert memory.highest[rank]["activations"] > 0


def train_with_ddp():
    for number, in_bucket in ((1, True), (2, False)):
        model = DistributedDataParallel(nn.Linear(10, 3), gradient_as_bucket_view=in_bucket)
        for _ in range(2):
            model(torch.ones(5, 10)).sum().backward()
        mark(number)
        del model


def test_ddp_keeps_gradients_in_its_buckets_or_besides():
    memory = kept(train_with_ddp)
    assert held(memory, 1, "parameters") == held(memory, 1, "gradients") == 4 * 33
    # gloo may still hold DDP's last small message, which says how many buckets there are
    assert held(memory, 1, "communication") <= 8
    assert held(memory, 2, "gradients") == held(memory, 2, "communication") == 4 * 33


def train_sharded():
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    numel = sum(p.numel() for p in model.parameters())
    mesh = init_device_mesh("cpu", (2,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(8, 64)).sum().backward()
    mark(1)
    optimizer.step()
    mark(2)
    return numel


def test_what_fsdp_shards_is_counted_inside_its_tensors():
    results = collect(train_sharded, 2, observe="memory", timeout=60)
    memory, half = results.trace.memory(), 4 * results[0] // 2
    assert [held(memory, 1, kind) for kind in KINDS[:3]] == [half, half, 0]
    assert held(memory, 2, "optimizer") == 2 * half + 4 * 4  # four parameters count their steps
    assert memory.highest[0]["parameters"] > half  # gathered for a while


def shard_by_hand():
    """A flat shard of the parameters, moments of its own, and the rest given back."""
    model = nn.Linear(10, 4, bias=False)
    with record_function("parameters"):
        shard = model.weight.detach().flatten()[:20].clone()
    with record_function("optimizer"):
        moment = torch.zeros(20)
    model.weight.data = torch.empty(0)
    full = torch.empty(40)
    dist.all_gather(list(full.split(20)), shard)
    moment.add_(shard)
    full.untyped_storage().resize_(0)
    mark(1)


def test_labels_tell_what_nobody_can_know():
    memory = kept(shard_by_hand)
    assert memory.highest[0] | {"other": 0} == {
        "parameters": 4 * (40 + 20),
        "gradients": 0,
        "optimizer": 4 * 20,
        "activations": 0,
        "communication": 4 * 40,
        "other": 0,
    }
    # The whole weight was given back, and what it was gathered into
    assert [held(memory, 1, kind) for kind in KINDS[:5]] == [80, 0, 80, 0, 0]


# ------------------------------------------------------------------------------------------------
# Activations
# ------------------------------------------------------------------------------------------------

B, IN, HIDDEN = 6, 5, 7


def run_mlp(recompute):
    up, down = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, 1)

    def layers(x):
        return down(torch.relu(up(x)))

    x = torch.ones(B, IN)
    y = checkpoint(layers, x, use_reentrant=False) if recompute else layers(x)
    mark(1)
    y.pow(2).sum().backward()
    mark(2)


def test_activations_of_an_mlp_to_the_byte():
    memory = kept(run_mlp, 1, False)
    # The batch, and relu's output, which both relu and the second layer want; not up's output
    assert held(memory, 1, "activations") == 4 * (B * IN + B * HIDDEN)
    # pow keeps its input, the output of the second layer
    assert memory.highest[0]["activations"] == 4 * (B * IN + B * HIDDEN + B)
    assert held(memory, 2, "activations") == 0


def test_recomputing_keeps_the_batch_alone():
    memory = kept(run_mlp, 1, True)
    assert held(memory, 1, "activations") == 4 * B * IN
    assert held(memory, 2, "activations") == 0
    # Inside backward the rest is there again, and pow's input not any more
    assert memory.highest[0]["activations"] == 4 * (B * IN + B * HIDDEN)


def saved_elsewhere():
    x = torch.ones(50, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (x.half(), 1), lambda kept: kept[0]):
        y = x.exp()
    mark(1)
    y.sum().backward()
    mark(2)


def test_what_is_kept_in_place_of_a_tensor_counts():
    memory = kept(saved_elsewhere, 1)
    assert [held(memory, number, "activations") for number in (1, 2)] == [100, 0]


def saved_in_odd_ways():
    x = torch.ones(4, requires_grad=True)
    y = x.exp()  # saves its output
    y.sum().backward()
    z = torch.sparse_coo_tensor([[0, 1]], torch.ones(2), (2,)).requires_grad_()
    (z * 2).coalesce().values().sum().backward()
    # Dropped without a backward
    torch.ones(3, requires_grad=True).mul(torch.ones(3)).sum()
    return x.grad, z.grad.coalesce().values()


def test_gradients_are_as_without_watching():
    watched, plain = (collect(saved_in_odd_ways, 1, observe=o)[0] for o in ("memory", False))
    assert all(torch.equal(a, b) for a, b in zip(watched, plain, strict=True))


# ------------------------------------------------------------------------------------------------
# Communication and warnings
# ------------------------------------------------------------------------------------------------


def exchange():
    rank = dist.get_rank()
    out, room = torch.ones(100), torch.empty(100)
    work = dist.isend(out, 1 - rank)
    dist.recv(room, 1 - rank)
    (room + out).sum()
    out.add_(1)  # before wait(): a warning
    work.wait()


def test_buffers_of_messages_and_traps_are_seen_as_well():
    trace = collect(exchange, 2, observe="memory").trace
    assert trace.memory().highest[0]["communication"] == 800
    assert [warning.kind for warning in trace.warnings] == ["rewritten_in_flight"] * 2


# ------------------------------------------------------------------------------------------------
# The numbers from the record
# ------------------------------------------------------------------------------------------------


def test_curve_and_peak_of_a_record_made_by_hand():
    blocks = [
        Block(0, 0, "parameters", [(1.0, 10, False)]),
        Block(0, 1, "other", [(2.0, 5, False), (3.0, 5, True), (5.0, 5, False), (6.0, 0, False)]),
        Block(0, 2, "communication", [(4.0, 100, False), (4.5, 0, False)]),
        Block(1, 0, "gradients", [(2.0, 8, True), (3.0, 9, False)]),
    ]
    memory = Memory(3, blocks)
    curve = memory.curves[0]
    assert curve.times == [1, 2, 3, 4, 4.5, 5, 6]
    assert curve.nbytes["activations"] == [0, 0, 5, 5, 5, 0, 0]
    assert curve.nbytes["other"] == [0, 5, 0, 0, 0, 5, 0]
    assert curve.total == [10, 15, 15, 115, 15, 15, 10]
    assert memory.peak == [115, 9, 0]
    assert memory.at_peak[0] == dict(zip(KINDS, (10, 0, 0, 5, 100, 0), strict=True))
    assert memory.highest[1]["gradients"] == 9
    assert str(memory).splitlines()[:3] == [
        "bytes, by rank   rank 0  rank 1  rank 2",
        "peak                115       9       0",
        "  parameters         10       0       0",
    ]


def test_a_run_whose_memory_was_not_watched_says_so():
    with pytest.raises(ValueError, match='observe="memory"'):
        Trace(2).memory()
    with pytest.raises(ValueError, match="observe must be True, False or \"memory\", not 'all'"):
        collect(exchange, 2, observe="all")


def test_memory_within_a_label_begins_with_what_was_held_before_and_ends_at_its_end():
    steps = [(1.0, 40, False), (5.0, 0, False)]
    blocks = [
        Block(0, 0, "parameters", [(0.0, 100, False)]),
        Block(0, 1, "gradients", steps),
        Block(0, 2, "communication", [(3.0, 7, False), (3.5, 0, False)]),
        Block(0, 3, "other", [(0.5, 9, False), (1.5, 0, False)]),
        Block(0, 4, "other", [(9.0, 9, False)]),
    ]
    labels = [Label(0, "step", 2.0, 3.2), Label(0, "step", 4.0, 6.0)]
    trace = Trace(1, labels=labels, blocks=blocks).within("step")
    memory = trace.memory()
    assert memory.curves[0].times == [2.0, 3.0, 3.5, 5.0]
    assert memory.curves[0].total == [140, 147, 140, 100]
    assert (memory.peak, memory.highest[0]["communication"]) == ([147], 7)
