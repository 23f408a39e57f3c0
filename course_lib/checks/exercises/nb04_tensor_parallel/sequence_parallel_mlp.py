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

from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD, FORWARD
from course_lib.checks.rank_inputs import along
from course_lib.checks.reference import added, gradient
from course_lib.text import counted

from ._support import (
    Exact,
    Tensors,
    layer_pass,
    messages_of,
    parts,
    wrong_values,
)

_NAMES = ("x", "gain", "up", "down")


def _cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, tokens, hidden in ((2, 4, 6), (3, 3 * rng.randint(1, 4), 6), (4, 4, 8), (1, 3, 4)):
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
        # A functional collective's result is a wrapper around the tensor that is still under way.
        storage = getattr(tensor, "elem", tensor).untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes(), storage  # alive: no address comes twice
        return tensor

    leaves: dict[str, torch.Tensor] = {}

    def layer(given: Tensors) -> Any:
        if leaves:  # what is kept is noted of the first call
            return answer(*(given[name] for name in _NAMES))
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
    outputs = parts(y.detach(), t, 0)
    if t == 1:
        return Exact(outputs, gradients, [_output_looks(case, 0)])
    residual = parts(data["weights"], t, 0)
    all_mlps = added(each["x"] - own for each, own in zip(gradients, residual, strict=True))
    with_f = "what comes if x takes an f: its gradient is complete, and f adds other tokens' to it"
    looks = [
        {
            "gain": {"only that of this rank's tokens: add it up over the ranks": own},
            "x": {**_gradient_looks(case, rank), with_f: residual[rank] + all_mlps},
        }
        for rank, own in enumerate(own_gain)
    ]
    return Exact(outputs, gradients, [_output_looks(case, r) for r in range(t)], looks)


def _output_looks(case: Case, rank: int) -> Tensors:
    """What known mistakes give on this very input."""
    data, t = case.data, case.world_size
    x, up, down = data["x"], data["up"], data["down"]
    normed = F.layer_norm(x, x.shape[-1:], data["gain"])
    plain_norm = F.layer_norm(x, x.shape[-1:])
    y = F.gelu(normed @ up.T) @ down.T
    looks = {
        "MLP(norm(x)), without the residual sum: x + ... is expected": y,
        "what comes out without the gain: it is a factor of the norm": (
            x + F.gelu(plain_norm @ up.T) @ down.T
        ),
        "norm(x) + MLP(norm(x)): the residual branch takes x as it is": normed + y,
        "what comes out without the norm": x + F.gelu(x @ up.T) @ down.T,
        "that of the GeLU's approximation by tanh, and F.gelu(x) itself is expected": (
            x + F.gelu(normed @ up.T, approximate="tanh") @ down.T
        ),
        "right but for the GeLU: it stands between the two layers": x + normed @ up.T @ down.T,
        "the average over the ranks, and their sum is expected": x + y / t,
    }
    return {
        name: parts(look, t, 0)[rank]
        for name, look in looks.items()
        if t > 1 or "average" not in name
    }


def _gradient_looks(case: Case, rank: int) -> Tensors:
    """What comes out as the gradient of this rank's x, if the gather's backward is another."""
    data, t = case.data, case.world_size
    own = parts(data["x"], t, 0)[rank].clone().requires_grad_()
    normed = F.layer_norm(own, own.shape[-1:], data["gain"])
    whole = F.layer_norm(data["x"], own.shape[-1:], data["gain"])
    from_ranks = []
    for up, down in zip(parts(data["up"], t, 0), parts(data["down"], t, 1), strict=True):
        leaf = whole.clone().requires_grad_()
        (F.gelu(leaf @ up.T) @ down.T * data["weights"]).sum().backward()
        from_ranks.append(parts(gradient(leaf), t, 0)[rank])

    def through_norm(of_normed: torch.Tensor) -> torch.Tensor:
        (back,) = torch.autograd.grad(normed, own, of_normed, retain_graph=True)
        return parts(data["weights"], t, 0)[rank] + back

    total = added(from_ranks)
    return {
        "what only this rank's columns have to say: backward, the gather adds up what all ranks "
        "have to say about this rank's tokens (reduce-scatter)": through_norm(from_ranks[rank]),
        f"what comes out if the MLP's part is added up {t} times over: the reduce-scatter adds it "
        "up already, so x takes no f": through_norm(t * total),
        "what comes out of an average, where the gather's backward is a sum": through_norm(
            total / t
        ),
        "that of only the residual branch: the MLP is cut off from x": through_norm(0 * total),
    }


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
    own={"x": along(0), "up": along(0), "down": along(1), "weights": along(0)},
    judge=_judge,
    hints=(
        """
        Two operators like f and g: one gathers all tokens forward and reduce-scatters their
        gradient; the other reduce-scatters forward and gathers the gradient. The norm and the
        residual stay with this rank's tokens. The gain is used on each rank for other tokens: which
        of f and g does a parameter need then?
        """,
        """
        dist.all_gather(list(whole.chunk(t)), part) and dist.reduce_scatter(part,
        list(whole.chunk(t))) cut along dimension 0, which is that of the tokens. Order: f on the
        gain, norm, gather, up, GeLU, down, reduce-scatter, plus x.
        """,
        """
        class Gather: forward all-gathers x into x.new_empty(t * len(x), C); backward
        reduce-scatters the gradient (contiguous) into one of its T/t tokens. class Scatter: the
        same two, exchanged. h = Gather.apply(F.layer_norm(x, (C,), megatron_f(gain))); return x +
        Scatter.apply(F.gelu(h @ up.T) @ down.T).
        """,
    ),
    passed="the same bytes as one all-reduce each way, and T/t tokens between the layers",
    contract=Contract(
        takes="this rank's tokens, at least one, and its parts of up and down; gain is whole",
        allowed=frozenset({"all_reduce", "all_gather", "reduce_scatter"}),
        sends="the activations take one all-gather and one reduce-scatter each way (in backward "
        "also one more all-gather), and the gain's gradient one all-reduce",
        holds="for backward, the norm's values are kept for this rank's tokens only",
    ),
    points=2,
)
