"""The oracle itself: it learns, it is the same everywhere, and its parts are what they claim."""

import pytest
import torch
from torch import nn

from course_lib.models import NASTY_MODELS, batches, solved_share, tiny_gpt, train
from course_lib.models.edge_cases import INPUTS, OUTPUTS
from course_lib.models.sorting_task import IGNORED, LENGTH
from course_lib.models.tiny_gpt import Attention


def test_a_row_of_the_task() -> None:
    tokens, targets = next(batches(1, 4, seed=3))
    for row, target in zip(tokens.tolist(), targets.tolist(), strict=True):
        digits = row[:LENGTH]
        assert row[LENGTH:] == sorted(digits)[:-1]
        assert target == [IGNORED] * (LENGTH - 1) + sorted(digits)


def test_batches_depend_on_the_seed_alone() -> None:
    torch.manual_seed(0)
    first = [t.tolist() for t, _ in batches(2, 3)]
    torch.rand(5)
    assert [t.tolist() for t, _ in batches(2, 3)] == first
    assert [t.tolist() for t, _ in batches(2, 3, seed=1)] != first


def test_a_seed_leaves_the_random_state_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    weights = [p.clone() for p in tiny_gpt(seed=7).parameters()]
    assert torch.equal(torch.rand(1), expected)
    again = tiny_gpt(seed=7).parameters()
    assert all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))


def test_it_learns_to_sort() -> None:
    model = tiny_gpt(seed=0)
    assert solved_share(model) < 0.05
    history = train(model, batches(60, 64), lambda p: torch.optim.AdamW(p, lr=3e-3))
    assert history.losses[-1] < 0.3 * history.losses[0]
    assert solved_share(model) > 0.5


def test_attention_looks_back_only() -> None:
    torch.manual_seed(0)
    attention = Attention(8, 2)
    x = torch.randn(1, 4, 8)
    changed = x.clone()
    changed[:, 3] += 1
    assert torch.equal(attention(x)[:, :3], attention(changed)[:, :3])
    assert not torch.equal(attention(x)[:, 3], attention(changed)[:, 3])


def test_heads_must_divide_the_hidden_size() -> None:
    with pytest.raises(ValueError, match=r"\(10\) must be a multiple of the heads \(4\)"):
        Attention(10, 4)


def test_tied_weights_are_one_parameter() -> None:
    model = tiny_gpt(tied=True)
    assert model.head.projection.weight is model.embedding.tokens.weight
    assert len(list(model.parameters())) == len(list(tiny_gpt().parameters())) - 1


@pytest.mark.parametrize("name", NASTY_MODELS)
def test_nasty_models_are_nasty_and_train(name: str) -> None:
    make = NASTY_MODELS[name]
    model = make(0)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), make(0).parameters(), strict=True)
    )
    x = torch.randn(5, INPUTS, dtype=torch.float64)
    y = torch.randn(5, OUTPUTS, dtype=torch.float64)
    history = train(
        model,
        [(x, y)] * 3,
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda model, x, y: nn.functional.mse_loss(model(x), y),
    )
    assert history.losses[2] < history.losses[0]
    still = {
        key
        for key, value in history.parameters[-1].items()
        if torch.equal(value, dict(make(0).named_parameters())[key])
    }
    assert still == {"frozen": {"inner.bias"}, "unused": {"unused"}}.get(name, set())
