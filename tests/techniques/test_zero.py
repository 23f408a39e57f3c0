"""Every stage of ZeRO equal to one process with the whole batch, step by step."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import NASTY_MODELS
from course_lib.models.edge_cases import INPUTS, OUTPUTS
from course_lib.ranks import collect
from course_lib.techniques.activation_checkpointing import checkpoint_modules
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3
from tests.techniques.zero_cases import (
    OPTIMIZERS,
    adamw,
    data,
    differences,
    mine,
    mse,
    on_ranks,
    one_process,
    whole,
)

SMALL = {"bucket_bytes": 400}  # several buckets, even in these models
STAGES = {
    "1": (Zero1, {}),
    "2": (Zero2, SMALL),
    "3": (Zero3, {}),
}
NAMES = list(NASTY_MODELS)

CASES = [(n, "adamw", n % 2 == 1) for n in (1, 2, 3, 4, 5)] + [(3, "sgd", True)]


@pytest.mark.parametrize(("world_size", "optimizer", "grouped"), CASES)
def test_equals_one_process(world_size: int, optimizer: str, grouped: bool) -> None:
    make = OPTIMIZERS[optimizer]

    def all_stages():
        return {
            stage: on_ranks(kind, NAMES, make, grouped=grouped, **options)
            for stage, (kind, options) in STAGES.items()
        }

    oracle = {n: list(one_process(NASTY_MODELS[n](0), make, grouped=grouped)) for n in NAMES}
    for found in collect(all_stages, world_size, observe=False, timeout=60):
        for stage, models in found.items():
            for name, steps in models.items():
                worst = max(differences(steps, oracle[name]))
                assert worst[0] < 1e-10, (stage, name, worst)


@pytest.mark.parametrize("max_norm", [0.01, 1e6])
def test_clips_by_the_norm_of_the_whole_gradient(max_norm: float) -> None:
    def all_stages():
        return {
            stage: on_ranks(kind, NAMES, max_norm=max_norm, steps=5, **options)
            for stage, (kind, options) in STAGES.items()
        }

    oracle = {n: list(one_process(NASTY_MODELS[n](0), max_norm=max_norm, steps=5)) for n in NAMES}
    for found in collect(all_stages, 3, observe=False, timeout=60):
        for stage, models in found.items():
            for name, steps in models.items():
                assert max(differences(steps, oracle[name]))[0] < 1e-10, (stage, name)


class Reused(nn.Module):
    """A unit that runs twice, one with two inputs, one that runs again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(INPUTS, INPUTS)
        self.pair = nn.Bilinear(INPUTS, INPUTS, INPUTS)
        self.again = nn.Sequential(nn.Linear(INPUTS, 5), nn.Tanh(), nn.Linear(5, OUTPUTS))
        self.again[0].weight.requires_grad_(False)
        checkpoint_modules([self.again])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.pair(self.twice(torch.tanh(self.twice(x))), x))


def reused(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Reused().double()


def test_units_that_run_twice_several_passes_a_step_and_evaluation_between() -> None:
    def on_ranks():
        found = {}
        for stage, (kind, options) in STAGES.items():
            zero = kind(reused(dist.get_rank()), adamw, **options)
            losses = []
            for x, y in data(5):
                zero.zero_grad()
                for part, target in zip(mine(x).chunk(2), mine(y).chunk(2), strict=True):
                    (mse(zero.model, part, target) / 2).backward()
                zero.step()
                with torch.no_grad():
                    losses.append(mse(zero.model, x, y).item())
            found[stage] = losses, whole(zero)
        return found

    model = reused(0)
    steps = one_process(model, steps=5)
    oracle = [
        (mse(model, x, y).item(), after) for after, (x, y) in zip(steps, data(5), strict=True)
    ]
    for found in collect(on_ranks, 3, observe=False, timeout=60):
        for stage, (losses, after) in found.items():
            assert losses == pytest.approx([loss for loss, _ in oracle], abs=1e-12), stage
            assert max(differences([after], [oracle[-1][1]]))[0] < 1e-10, stage


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.ones(2)) for _ in range(3))

    def forward(self, with_b: bool) -> torch.Tensor:
        return (self.a * self.b).sum() if with_b else self.a.sum()


def test_a_gradient_that_only_some_ranks_have_and_one_that_none_has() -> None:
    def on_ranks():
        found = []
        for kind, _ in STAGES.values():
            decay = lambda groups: torch.optim.SGD(groups, lr=1.0, weight_decay=0.5)  # noqa: E731
            zero = kind(Branch(), decay)
            zero.model(dist.get_rank() == 1).backward()
            zero.step()
            found.append([p.tolist() for p in whole(zero).values()])
        return found

    # Step of a: 1 + 0.5 decay; of b: the average of 0 and 1, + 0.5; c has no gradient, so no decay.
    expected = [[-0.5, -0.5], [0.0, 0.0], [1.0, 1.0]]
    assert collect(on_ranks, 2, observe=False, timeout=60)[0] == [expected] * 3


def test_every_trainable_parameter_is_in_one_group() -> None:
    def on_ranks():
        model = NASTY_MODELS["odd"](0)
        twice = [{"params": list(model.parameters())}, {"params": [model.gain]}]
        for groups, said in ((twice, "6 trainable parameters, 5 of"), (twice[1:], "1 trainable")):
            for kind, _ in STAGES.values():
                with pytest.raises(ValueError, match=said):
                    kind(model, adamw, param_groups=groups)
        return True

    assert list(collect(on_ranks, 1, timeout=60)) == [True]
