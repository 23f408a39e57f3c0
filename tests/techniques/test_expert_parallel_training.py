"""Training with experts over ranks of a mesh is training in one process: gradients over whom."""

import pytest
import torch
import torch.distributed as dist

from course_lib.models import batches, tiny_mixture_gpt, train
from course_lib.ranks import RankError, collect
from course_lib.techniques.expert_parallel import (
    ExpertGroups,
    ExpertParallelGPT,
    ExpertZero,
    average_gradients,
    clip_gradients,
    expert_parameters,
    gather_experts,
    mixtures_of,
)
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.tensor_parallel import shares_of
from course_lib.techniques.tensor_parallel.axis import TensorAxis, gather_parts

STEPS, BATCH, MAX_NORM = 3, 16, 0.3
EXACT = 1e-9
MESHES = [Mesh(data=4, expert=2), Mesh(data=4, expert=4), Mesh(data=2, expert=2, tensor=2)]


def model_of(**options):
    mixture = {"experts": 4, "shared": 8, "balance": 0.02, "z": 0.01}
    return tiny_mixture_gpt(layers=2, hidden=16, heads=4, seed=0, **mixture | options).double()


def adam(groups):
    return torch.optim.AdamW(groups, lr=1e-2)


def reference():
    """Losses, norms before clipping and weights of one process."""
    model, norms = model_of(), []
    optimizer = adam(model.parameters())
    losses = []
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad()
        loss = model.loss(*batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, model.state_dict()


class Averaged:
    """Plain averaging, in the words of ZeRO."""

    def __init__(self, model, make_optimizer, groups):
        self.model, self.groups = model, groups
        self.optimizer = make_optimizer(model.parameters())
        self.zero_grad, self.step = self.optimizer.zero_grad, self.optimizer.step

    def clip_grad_norm_(self, max_norm):
        average_gradients(self.model, self.groups)
        return clip_gradients(self.model, max_norm, self.groups)


def trained(mesh, groups, kind, **options):
    model = ExpertParallelGPT.from_model(model_of(), groups)
    here = mesh.coordinates(dist.get_rank())
    if kind is ExpertZero and here["data"] >= mesh.expert:  # replicas start unequal
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
    training = kind(model, adam, groups, **options)
    losses, norms = [], []
    for batch in batches(STEPS, BATCH):
        training.zero_grad()
        mine = [tensor.chunk(mesh.data)[here["data"]] for tensor in batch]
        loss = model.loss(*mine)
        loss.backward()
        # The norm of one process counts what ranks of the tensor axis have apart only once.
        norm = training.clip_grad_norm_(MAX_NORM) if mesh.tensor == 1 else None
        if mesh.tensor > 1 and kind is Averaged:
            average_gradients(model, groups)
        training.step()
        total = loss.detach() + sum(
            0.02 * mixture.losses["balance"] + 0.01 * mixture.losses["z"]
            for mixture in mixtures_of(model)
        )
        dist.all_reduce(total, group=groups.data)
        losses.append(total.item() / mesh.data)
        norms.append(norm and norm.item())
    return losses, norms, whole(model, groups)


def whole(model, groups):
    axis, shares = TensorAxis.of(groups.tensor), shares_of(model)
    state = gather_experts(model, groups.expert)
    return {n: gather_parts(t, shares[n], axis) if n in shares else t for n, t in state.items()}


def each_way(meshes):
    ways = [(Averaged, {}), (ExpertZero, {"stage": 1}), (ExpertZero, {"stage": 2})]
    return [
        (mesh, kind.__name__, options, trained(mesh, groups, kind, **options))
        for mesh, groups in [(mesh, ExpertGroups.open(mesh)) for mesh in meshes]
        for kind, options in ways
        if mesh.tensor == 1 or options
    ]


def test_every_mesh_and_zero_stage_equals_one_process():
    losses, norms, weights = reference()
    assert max(norms) > MAX_NORM  # clipping does something
    assert sorted(weights) == sorted(model_of().state_dict())
    for ranks in collect(each_way, 4, (MESHES[:2],), timeout=60):
        assert len(ranks) == 6
        for mesh, kind, options, (theirs, their_norms, state) in ranks:
            case = str(mesh), kind, options
            assert theirs == pytest.approx(losses, abs=EXACT), case
            assert their_norms == pytest.approx(norms, abs=EXACT), case
            for name, value in weights.items():
                torch.testing.assert_close(
                    state[name],
                    value,
                    rtol=0,
                    atol=EXACT,
                    msg=lambda m, c=(case, name): f"{c}: {m}",
                )


def test_a_tensor_axis_shares_each_expert():
    history = train(model_of(), batches(STEPS, BATCH), adam)
    for ranks in collect(each_way, 4, (MESHES[2:],), timeout=60):
        for mesh, kind, options, (theirs, _, state) in ranks:
            assert theirs == pytest.approx(history.losses, abs=EXACT), (str(mesh), kind, options)
            for name, value in history.parameters[-1].items():
                torch.testing.assert_close(state[name], value, rtol=0, atol=EXACT)


def averaged_over_whom():
    """One step's gradients of the experts: averaged as they should be, and over all data ranks."""
    mesh = Mesh(data=4, expert=2)
    groups = ExpertGroups.open(mesh)
    model = ExpertParallelGPT.from_model(model_of(), groups)
    tokens, targets = next(iter(batches(1, BATCH)))
    model.loss(*(t.chunk(4)[dist.get_rank()] for t in (tokens, targets))).backward()
    mistaken = [p.grad.clone() for p in expert_parameters(model)]
    for gradient in mistaken:
        dist.all_reduce(gradient, group=groups.data)
        gradient /= 4
    average_gradients(model, groups)
    return [p.grad for p in expert_parameters(model)], mistaken


def test_averaged_over_all_data_ranks_experts_would_get_each_others_gradients():
    results = collect(averaged_over_whom, 4)
    (right0, wrong0), (right1, wrong1), (right2, _), _ = results
    for a, b, c, d, e in zip(right0, right1, right2, wrong0, wrong1, strict=True):
        assert torch.equal(a, c)  # ranks 0 and 2 have the same experts,
        assert (a - b).abs().max() > 1e-6  # ranks 0 and 1 have others,
        assert torch.equal(d, e)  # which the mistake makes equal:
        torch.testing.assert_close(d, (a + b))  # each gets what both should have had


def rebalanced(speed):
    """The load of a biased router's experts, before and after steps of balancing without a loss."""
    groups = ExpertGroups.open(Mesh(data=2, expert=2))
    model = ExpertParallelGPT.from_model(model_of(balance=0, z=0, shared=0), groups)
    (first, *_) = mixtures_of(model)
    first.router.bias[0] = 0.2  # everybody's favourite
    loads = []
    for tokens, _ in batches(60, BATCH):
        with torch.no_grad():
            model(tokens.chunk(2)[dist.get_rank()])
        load = first.load.clone()
        dist.all_reduce(load)
        loads.append(load.tolist())
        first.rebalance(speed)
    return loads, first.router.bias, first.load.sum().item()


def test_biases_agree_on_all_ranks_and_even_the_load_out():
    (loads, bias, left), (_, other, _) = collect(rebalanced, 2, (0.005,))
    assert torch.equal(bias, other)
    assert left == 0

    def violation(load):
        return max(load) / (sum(load) / len(load)) - 1

    assert sum(loads[0]) == 2 * tokens_in_a_batch()
    assert violation(loads[0]) == 1  # half of all choices
    assert violation(loads[-1]) < 0.4


def tokens_in_a_batch():
    tokens, _ = next(iter(batches(1, BATCH)))
    return tokens.numel()


def bad_stage():
    groups = ExpertGroups.open(Mesh(expert=1))
    ExpertZero(ExpertParallelGPT.from_model(model_of(), groups), adam, groups, stage=3)


def other_experts():
    groups = ExpertGroups.open(Mesh(expert=1))
    model = ExpertParallelGPT.from_model(model_of(), groups)
    from course_lib.techniques.expert_parallel import load_whole_experts

    load_whole_experts(model, model_of(experts=6).state_dict())


@pytest.mark.parametrize(
    ("attempt", "says"),
    [(bad_stage, "stages 1 and 2, not 3"), (other_experts, "should hold 4 experts, and holds 6")],
)
def test_what_does_not_go_together_is_refused(attempt, says):
    with pytest.raises(RankError, match=says):
        collect(attempt, 1)
