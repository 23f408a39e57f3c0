"""Sequence parallelism: between the layers, each rank keeps its own tokens.

sequence_parallel_mlp(x, gain, up, down) -> x + MLP(norm(x)) for this rank's tokens, (T/t, C)
    x (T/t, C) are this rank's tokens of one sequence, gain (C,) that of the layer norm (no bias,
    no other biases either), up (4C/t, C) and down (C, 4C/t) this rank's parts. The gradient of gain
    is complete on every rank. One all-gather and one reduce-scatter of the activations each way,
    and an all-reduce of the gain's gradient; the norm is kept for backward for T/t tokens only.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.text import counted

from ._support import (
    BACKWARD,
    FORWARD,
    Exact,
    Tensors,
    layer_pass,
    messages_of,
    normal,
    parts,
    wrong_values,
)

_NAMES = ("x", "gain", "up", "down")


def _cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, tokens, hidden in ((2, 4, 6), (3, 6, 6), (4, 4, 8), (1, 3, 4)):
        shape = (tokens, hidden)
        x, gain, up, down, weights = normal(
            rng, shape, (hidden,), (4 * hidden, hidden), (hidden, 4 * hidden), shape
        )
        label = f"{tokens} tokens of width {hidden} over {counted(ranks, 'rank')}"
        data = {"x": x, "gain": gain, "up": up, "down": down, "weights": weights}
        cases.append(Case(ranks, label, data))
    return cases


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data, t, rank = case.data, case.world_size, dist.get_rank()
    kept: dict[int, tuple[int, Any]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes(), storage  # alive: no address comes twice
        return tensor

    leaves: dict[str, torch.Tensor] = {}

    def layer(given: Tensors) -> Any:
        leaves.update(given)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            return answer(*(given[name] for name in _NAMES))

    tensors = {
        "x": parts(data["x"], t, 0)[rank],
        "gain": data["gain"],
        "up": parts(data["up"], t, 0)[rank],
        "down": parts(data["down"], t, 1)[rank],
    }
    seen = layer_pass(layer, tensors, parts(data["weights"], t, 0)[rank])
    weights = {leaves[name].untyped_storage().data_ptr() for name in _NAMES}
    seen["kept"] = sum(n for pointer, (n, _) in kept.items() if pointer not in weights)
    return seen


def _exact(case: Case) -> Exact:
    data, t = case.data, case.world_size
    leaf = {name: data[name].clone().requires_grad_() for name in _NAMES}
    hidden = leaf["x"].shape[-1]
    normed = F.layer_norm(leaf["x"], (hidden,), leaf["gain"])
    y = leaf["x"] + F.gelu(normed @ leaf["up"].T) @ leaf["down"].T
    terms = (y * data["weights"]).chunk(t)
    # The gain's gradient by the tokens of each rank: through the norm, so by a hook's rows.
    rows = torch.autograd.grad(sum(term.sum() for term in terms), normed, retain_graph=True)[0]
    standard = F.layer_norm(data["x"], (hidden,))
    own_gain = [part.sum(0) for part in parts(rows * standard, t, 0)]
    sum(term.sum() for term in terms).backward()
    gradients = [
        {
            "x": parts(leaf["x"].grad, t, 0)[rank],
            "gain": leaf["gain"].grad,
            "up": parts(leaf["up"].grad, t, 0)[rank],
            "down": parts(leaf["down"].grad, t, 1)[rank],
        }
        for rank in range(t)
    ]
    looks = [
        {"gain": {"only that of this rank's tokens: add it up over the ranks": own}}
        for own in own_gain
    ]
    outputs = parts(y.detach(), t, 0)
    return Exact(outputs, gradients, [], looks if t > 1 else [])


def _judge(case: Case, observation: Observation) -> Finding | None:
    x, t = case.data["x"], case.world_size
    for rank, seen in enumerate(observation.values):
        got = seen["output"]
        if t > 1 and isinstance(got, torch.Tensor) and got.shape == x.shape:
            return Finding(
                "all tokens come out, but each rank needs only its own: reduce-scatter instead of "
                "the all-reduce",
                rank,
                expected=f"a tensor of shape {tuple(parts(x, t, 0)[rank].shape)}",
                got=f"a tensor of shape {tuple(got.shape)}",
            )
    return (
        wrong_values(case, observation, _exact(case))
        or _traffic(case, observation)
        or _memory(case, observation)
    )


def _traffic(case: Case, observation: Observation) -> Finding | None:
    x, t = case.data["x"], case.world_size
    part = x.nbytes // t
    there_and_back = [("all_gather", part), ("reduce_scatter", part)]
    rule = "one all-gather before the columns, one reduce-scatter after the rows"
    if finding := messages_of(observation, t, FORWARD, there_and_back, rule):
        return finding
    gain = ("all_reduce", case.data["gain"].nbytes)
    once = messages_of(
        observation,
        t,
        BACKWARD,
        [*there_and_back, gain],
        "the gradient takes the same way back, and the gain's gradient is added up",
    )
    # Gathering x again in backward instead of keeping it is right as well, and keeps less.
    twice = [*there_and_back, ("all_gather", part), gain]
    return once and messages_of(observation, t, BACKWARD, twice, "") and once


def _memory(case: Case, observation: Observation) -> Finding | None:
    """Own tokens: x is an argument; of the norm two numbers per token, perhaps input and output.
    All tokens: the columns' input. And what this rank computes of the wide part, twice."""
    x, t = case.data["x"], case.world_size
    tokens, hidden = x.shape
    size = x.element_size()
    most = size * (3 * tokens * hidden // t + tokens * hidden + 2 * tokens * 4 * hidden // t)
    for rank, seen in enumerate(observation.values):
        if t > 1 and seen["kept"] > most:
            return Finding(
                "numbers and traffic are right, but too much is kept for backward: normalise this "
                "rank's tokens, then gather, not the other way round",
                rank,
                expected=f"{most} bytes at most kept by autograd",
                got=f"{seen['kept']} bytes",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(x, gain, up, down)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Two operators like f and g: one gathers all tokens forward and reduce-scatters their
        gradient; the other reduce-scatters forward and gathers the gradient. The norm and the
        residual stay with this rank's tokens. The gain is used on each rank for other tokens: which
        of f and g does a parameter need then?
        """,
        """
        dist.all_gather_into_tensor(whole, part) and dist.reduce_scatter_tensor(part, whole) cut
        along dimension 0, which is that of the tokens. Order: f on the gain, norm, gather, up,
        GeLU, down, reduce-scatter, plus x.
        """,
        """
        class Gather: forward all-gathers x into x.new_empty(t * len(x), C); backward
        reduce-scatters the gradient (contiguous) into one of its T/t tokens. class Scatter: the
        same two, exchanged. h = Gather.apply(F.layer_norm(x, (C,), megatron_f(gain))); return x +
        Scatter.apply(F.gelu(h @ up.T) @ down.T).
        """,
    ),
    passed="the same bytes as one all-reduce each way, and T/t tokens between the layers",
    contract=Contract(allowed=frozenset({"all_reduce", "all_gather", "reduce_scatter"})),
    points=2,
)
