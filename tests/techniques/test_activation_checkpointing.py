"""Recomputing: the same gradients, less kept, at most a third more computed."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course_lib.models import batches, tiny_gpt
from course_lib.techniques.activation_checkpointing import (
    best_segment,
    checkpoint_every,
    checkpoint_modules,
    kept_for_backward,
)

LAYERS, HIDDEN, BATCH = 9, 32, 4


def model_with(k: int | None):
    model = tiny_gpt(layers=LAYERS, hidden=HIDDEN, seed=0)
    if k is not None:
        model.blocks = checkpoint_every(k, model.blocks)
    return model


def run(model) -> tuple[int, int, list[torch.Tensor]]:
    """(bytes kept, FLOPs, gradients)."""
    tokens, targets = next(batches(1, BATCH))
    with FlopCounterMode(display=False) as counter:
        with kept_for_backward(model) as kept:
            loss = model.loss(tokens, targets)
        loss.backward()
    return kept.nbytes, counter.get_total_flops(), [p.grad for p in model.parameters()]


@pytest.mark.parametrize("k", [1, 2, 3, LAYERS])
def test_keeps_the_inputs_of_segments_and_computes_forward_once_more(k: int) -> None:
    everything, flops, gradients = run(model_with(None))
    kept, more_flops, found = run(model_with(k))
    assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))
    a_layers_input = 4 * BATCH * 9 * HIDDEN
    segments = -(-LAYERS // k)
    around_the_layers = kept - segments * a_layers_input
    assert 0 < around_the_layers < 0.05 * everything  # of the embedding and the head
    # torch stops running again where nothing more is needed: a little less than a third more.
    assert 1.2 < more_flops / flops <= 4 / 3


def test_the_root_of_n_is_best() -> None:
    assert [best_segment(n) for n in (1, 4, 9, 16, 100)] == [1, 2, 3, 4, 10]
    n, best = 24, best_segment(24)
    held = {k: -(-n // k) + k for k in range(1, n + 1)}
    assert held[best] == min(held.values()) == 10
    with pytest.raises(ValueError, match="0 layers, at least 1"):
        best_segment(0)


def test_selective_keeps_and_computes_between_all_and_nothing() -> None:
    everything, flops, gradients = run(model_with(None))
    model = model_with(None)
    checkpoint_modules(block.attention for block in model.blocks)
    kept, more_flops, found = run(model)
    assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))
    assert run(model_with(1))[0] < kept < 0.8 * everything
    assert 1 < more_flops / flops < 1.15


def test_dropout_drops_the_same_when_it_runs_again() -> None:
    def gradient(k: int | None) -> torch.Tensor:
        torch.manual_seed(0)
        layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)) for _ in range(4))
        layers = layers if k is None else checkpoint_every(k, layers)
        x = start = torch.ones(2, 8, requires_grad=True)
        for layer in layers:
            x = layer(x)
        x.sum().backward()
        return start.grad

    assert torch.equal(gradient(2), gradient(None))


def test_a_segment_has_from_one_to_all_layers() -> None:
    for k in (0, 3):
        with pytest.raises(ValueError, match=f"k = {k} for 2 layers"):
            checkpoint_every(k, [nn.Linear(1, 1), nn.Linear(1, 1)])
