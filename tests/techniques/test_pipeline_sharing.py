"""Tied weights, data parallel pipelines, evaluation, recomputation, and what a stage keeps."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import collect
from course_lib.techniques.pipeline import Pipeline, stages_of
from course_lib.techniques.pipeline.partition import cut, split_by_cost
from course_lib.techniques.pipeline.stage import Stage
from course_lib.techniques.schedules import gpipe, interleaved, one_f_one_b, parse_op, zb_h1

VOCABULARY, WIDTH, TOKENS = 11, 6, 5
loss_of_tokens = lambda logits, targets: nn.functional.cross_entropy(  # noqa: E731
    logits.flatten(0, 1), targets.flatten()
)


class Twice(nn.Module):
    """Uses one weight twice in the same stage."""

    def __init__(self, dropout):
        super().__init__()
        self.linear, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout)

    def forward(self, x):
        return self.linear(torch.tanh(self.dropout(self.linear(x)))) + x


def language_model(tied, dropout=0.0):
    """(B, T) tokens -> (B, T, V) logits; the head's weight is the embedding's, or equal to it."""
    torch.manual_seed(2)
    embedding = nn.Embedding(VOCABULARY, WIDTH)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    blocks = [Twice(dropout), Twice(dropout), nn.Sequential(nn.GELU(), nn.LayerNorm(WIDTH))]
    if tied:
        head.weight = embedding.weight
    else:
        head.weight.data.copy_(embedding.weight)
    model = nn.Sequential(embedding, *blocks, head)
    for weight in model.parameters():
        if weight.dim() == 2:  # transposed in memory, which a broadcast has to cope with
            weight.data = weight.detach().t().contiguous().t()
    return model


def tokens(samples=8):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(VOCABULARY, (2, samples, TOKENS), generator=generator)


def accumulate(model, m, samples=8):
    x, y = tokens(samples)
    for x_i, y_i in zip(x.chunk(m), y.chunk(m), strict=True):
        (loss_of_tokens(model(x_i), y_i) / m).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def worst_difference(found, wanted):
    assert found.keys() == wanted.keys()
    return max(float((found[name] - wanted[name]).abs().max()) for name in wanted)


# ------------------------------------------------------------------------------------------------


def tied_on_ranks(schedule):
    p = len(schedule)
    stages = 1 + max(op.stage for row in schedule for op in row)
    parts = cut(language_model(tied=False), split_by_cost([0, 1, 1, 1, 1], stages))
    own = {stage: parts[stage] for stage in stages_of(schedule, dist.get_rank())}
    if dist.get_rank() == p - 1 and p > 1:
        own[stages - 1].get_parameter("4.weight").data.zero_()  # repaired by the broadcast
    tied = [[(0, "0.weight"), (stages - 1, "4.weight")]]
    pipeline = Pipeline(own, schedule, loss_of_tokens, tied=tied)
    pipeline.train_step(*tokens())
    copies = accumulate(language_model(tied=False), 4)
    total = copies["0.weight"] + copies["4.weight"]
    exact = dict(copies) | {"0.weight": total, "4.weight": total}
    whole = dict(accumulate(language_model(tied=True), 1))
    whole["4.weight"] = whole["0.weight"]
    found = {n: q.grad for module in own.values() for n, q in module.named_parameters()}
    exact = {name: exact[name] for name in found}
    whole = {name: whole[name] for name in found}
    return worst_difference(found, exact), worst_difference(found, whole)


@pytest.mark.parametrize(
    "schedule",
    [gpipe(1, 4), one_f_one_b(2, 4), zb_h1(3, 4), zb_h1(2, 4), interleaved(2, 4, 2)],
    ids=["one rank", "1F1B", "ZB-H1 on 3", "ZB-H1 on 2", "interleaved"],
)
def test_tied_weights_get_the_sum_of_all_uses(schedule):
    for from_copies, from_whole_batch in collect(tied_on_ranks, len(schedule), (schedule,)):
        assert from_copies == 0
        assert from_whole_batch < 1e-6


def test_negative_control_without_tying_the_gradient_is_another():
    untied, tied = (accumulate(language_model(tied=t), 1) for t in (False, True))
    assert (untied["0.weight"] - tied["0.weight"]).abs().max() > 0.01


# ------------------------------------------------------------------------------------------------


def two_pipelines():
    """Ranks (0, 1) are one pipeline, (2, 3) another; each takes half of the batch."""
    rank = dist.get_rank()
    pipelines = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    replicas = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    replica, stage = divmod(rank, 2)
    torch.manual_seed(rank)
    parts = cut(language_model(tied=False), split_by_cost([0, 1, 1, 1, 1], 2))
    if replica == 1:
        for parameter in parts[stage].parameters():
            parameter.data.normal_()  # repaired by the broadcast
    pipeline = Pipeline(
        {stage: parts[stage]},
        one_f_one_b(2, 2),
        loss_of_tokens,
        group=pipelines[replica],
        data_group=replicas[stage],
        tied=[[(0, "0.weight"), (1, "4.weight")]],
    )
    x, y = (t.chunk(2)[replica] for t in tokens())
    pipeline.train_step(x, y)
    return {name: p.grad for name, p in parts[stage].named_parameters()}


def test_pipelines_side_by_side_average_their_gradients():
    results = collect(two_pipelines, 4)
    wanted = dict(accumulate(language_model(tied=True), 1))
    wanted["4.weight"] = wanted["0.weight"]
    for rank, found in enumerate(results):
        assert worst_difference(found, {name: wanted[name] for name in found}) < 1e-6
        assert worst_difference(found, results[(rank + 2) % 4]) == 0


# ------------------------------------------------------------------------------------------------


def evaluate_and_train():
    """Batches of other sizes in between, evaluation in between, gradients that add up."""
    schedule = one_f_one_b(3, 2)
    rank = dist.get_rank()
    parts = cut(language_model(tied=False, dropout=0.5), split_by_cost([0, 1, 1, 1, 1], 3))
    pipeline = Pipeline({rank: parts[rank]}, schedule, loss_of_tokens)
    seen = []
    for samples in (8, 4, 4, 8):
        seen.append(pipeline.evaluate(*tokens(samples)))
        assert all(p.grad is None for p in parts[rank].parameters())
        assert parts[rank].training
        pipeline.train_step(*tokens(samples))
        pipeline.train_step(*(t.to("meta") if rank == 1 else t for t in tokens(samples)))
        for p in parts[rank].parameters():
            p.grad = None
    assert not any(stage.in_flight for stage in pipeline.stages.values())
    return seen


def test_evaluation_leaves_out_dropout_and_gradients():
    *others, losses = collect(evaluate_and_train, 3)
    assert others == [[None] * 4] * 2
    model = language_model(tied=False).eval()
    for samples, loss in zip((8, 4, 4, 8), losses, strict=True):
        x, y = tokens(samples)
        torch.testing.assert_close(loss, loss_of_tokens(model(x), y))


def test_a_recomputed_forward_drops_the_same_elements():
    def gradient(recompute, passes):
        torch.manual_seed(5)
        module = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1))
        stage = Stage(module, recompute=recompute)
        x = torch.ones(2, 4, requires_grad=True)
        torch.manual_seed(6)
        stage.forward(0, x)
        after_forward = torch.rand(1)
        if passes == "B":
            back = stage.backward(0, torch.ones(2, 1))
        else:
            back = stage.backward_input(0, torch.ones(2, 1))
            assert module[0].weight.grad is None
            stage.backward_weight(0)
        return [back, after_forward, *(p.grad for p in module.parameters())]

    wanted = gradient(False, "B")
    for other in (gradient(True, "B"), gradient(True, "IW"), gradient(False, "IW")):
        assert all(map(torch.equal, wanted, other))


def saved_bytes(stage, x):
    """What autograd holds on to after a forward pass, each storage once."""
    seen = {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        stage.forward(0, x)
    return sum(seen.values())


def test_recomputation_keeps_the_input_alone():
    module = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
    x = torch.ones(16, 8, requires_grad=True)
    assert saved_bytes(Stage(module, recompute=True), x) == 0
    assert saved_bytes(Stage(module), x) > 4 * x.nbytes


def test_the_input_pass_leaves_every_weight_alone():
    module = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Tanh(), nn.Linear(3, 3))
    stage, x = Stage(module), torch.randn(2, 3, requires_grad=True)
    stage.forward(0, x)
    stage.backward_input(0, torch.ones(2, 3))
    assert all(p.grad is None for p in module.parameters())
    assert list(stage.in_flight) == [0]
    stage.backward_weight(0)
    assert all(p.grad is not None for p in module.parameters())
    assert not stage.in_flight


def test_an_output_that_ignores_its_input_sends_zeros_back():
    stage = Stage(nn.Module())
    stage.module.forward = lambda x: torch.zeros(2, requires_grad=True) * 1
    x = torch.ones(2, requires_grad=True)
    stage.forward(0, x)
    assert torch.equal(stage.backward(0, torch.ones(2)), torch.zeros(2))


# ------------------------------------------------------------------------------------------------


def run_observed(schedule):
    rank = dist.get_rank()
    torch.manual_seed(0)
    modules = {stage: nn.Linear(3, 3) for stage in stages_of(schedule, rank)}
    x, y = torch.ones(2, 8, 3)
    Pipeline(modules, schedule, nn.functional.mse_loss).train_step(x, y)


@pytest.mark.parametrize(
    "schedule",
    [gpipe(3, 4), one_f_one_b(3, 4), zb_h1(3, 4), interleaved(2, 4, 2)],
    ids=["GPipe", "1F1B", "ZB-H1", "interleaved"],
)
def test_the_trace_shows_the_table_in_its_order(schedule):
    trace = collect(run_observed, len(schedule), (schedule,)).trace
    last = max(op.stage for row in schedule for op in row)
    for rank, row in enumerate(schedule):
        sends = [op for op in row if (op.kind == "F" and op.stage < last)]
        sends += [op for op in row if op.kind in "BI" and op.stage > 0]
        seen = [
            parse_op(e.spans[-1]) for e in trace.of(rank) if e.op == "send" and len(e.shapes[0]) > 1
        ]
        assert seen == sorted(sends, key=row.index)
    assert not trace.warnings
