"""A layer of experts over several ranks, equal to one process token by token.

expert_layer(x, experts, weights, local) -> y (T, C)
    x (T, C), experts (T, k) and weights (T, k) are this rank's tokens and their routes; local are
    its m experts, modules from (N, C) to (N, C). y[t] is the sum over j of weights[t, j] times what
    expert experts[t, j] makes of x[t]. Each local expert runs once, on all rows that came for it.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks import compare_tensors, traffic_limits
from course_lib.checks.call_answer import plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank, in_turn
from course_lib.text import counted

from ._choices import assignments, choices, rows_to

_WIDTH = 2
Tensors = dict[str, torch.Tensor]


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 4, [choices(rng, 4, 2, range(4)), choices(rng, 3, 2, range(4))]),
        _case(rng, 3, [choices(rng, t, 2, [0, 2]) for t in (2, 1, rng.randint(2, 4))]),
        _case(rng, 3, [choices(rng, 4, 1, range(3))]),
    ]


def _case(rng: random.Random, number: int, experts: list[torch.Tensor]) -> Case:
    n = len(experts)
    data: dict[str, Any] = {"experts": experts, "number": number}
    data["x"] = [normal(rng, (len(e), _WIDTH))[0] for e in experts]
    data["weights"] = [normal(rng, e.shape)[0].abs() for e in experts]
    data["loss"] = [normal(rng, (len(e), _WIDTH))[0] for e in experts]
    data["matrices"] = normal(rng, *[(_WIDTH, _WIDTH)] * number)
    tokens, k = " and ".join(str(len(e)) for e in experts), experts[0].shape[1]
    label = f"{tokens} tokens, k = {k}, {number} experts over {counted(n, 'rank')}"
    return Case(n, label, data)


class _Expert(nn.Module):
    """One matrix and a tanh, so that a row of another's is seen; counts its calls."""

    def __init__(self, matrix: torch.Tensor):
        super().__init__()
        self.matrix = nn.Parameter(matrix.clone())
        self.calls: list[int] = []

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(rows))
        return torch.tanh(rows @ self.matrix)


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, data = dist.get_rank(), case.data
    mine = data["number"] // case.world_size
    local = [_Expert(data["matrices"][rank * mine + e]) for e in range(mine)]
    x = data["x"][rank].clone().requires_grad_()
    weights = data["weights"][rank].clone().requires_grad_()
    output = answer(x, data["experts"][rank], weights, local)
    seen: dict[str, Any] = {"output": plain(output), "calls": [e.calls for e in local]}
    if isinstance(output, torch.Tensor) and output.requires_grad and output.shape == x.shape:
        (output * data["loss"][rank]).sum().backward()
    gradients = {"x": x.grad, "weights": weights.grad}
    gradients |= {f"expert {rank * mine + e}": each.matrix.grad for e, each in enumerate(local)}
    return seen | {"gradients": plain(gradients)}


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, number = case.world_size, case.data["number"]
    leaves = _leaves(case)
    outputs = [_output(case, leaves, rank) for rank in range(n)]
    for output, loss in zip(outputs, case.data["loss"], strict=True):
        (output * loss).sum().backward()
    for rank, seen in enumerate(observation.values):
        looks = _looks(case, leaves, rank)
        if finding := compare_tensors.computed(seen["output"], outputs[rank].detach(), rank, looks):
            return finding
    for rank, seen in enumerate(observation.values):
        names = ["x", "weights"]
        names += [f"expert {e}" for e in range(rank * number // n, (rank + 1) * number // n)]
        for name in names:
            leaf = leaves[name if name in leaves else f"{name} {rank}"]
            if finding := _wrong_gradient(name, leaf, seen["gradients"][name], rank):
                return finding
        if finding := _too_much_work(case, seen["calls"], rank):
            return finding
    return _bytes(case, observation)


def _too_much_work(case: Case, calls: list[list[int]], rank: int) -> Finding | None:
    """Each expert runs once, on its own rows. calls: of each, with how many rows it was called."""
    first = rank * len(calls)
    for expert, rows in enumerate(calls, first):
        if len(rows) > 1:
            return Finding(
                "the numbers are right, but an expert ran more than once: on all its rows at "
                "once it is one large product instead of several small ones",
                rank,
                expected=f"one call of expert {expert}",
                got=f"calls with {rows} rows",
            )
        due = len(assignments(case.data["experts"], expert))
        if sum(rows) > due:
            return Finding(
                "the numbers are right, but an expert ran on rows that are not its own, whose "
                "outputs nobody needs: give each its part, rows.split(...)",
                rank,
                expected=f"expert {expert} runs on its {counted(due, 'row')}",
                got=f"a call with {counted(sum(rows), 'row')}",
            )
    return None


def _bytes(case: Case, observation: Observation) -> Finding | None:
    """Each row there and each output back; backward the gradients of both. A row may have its
    weight with it."""
    n, number = case.world_size, case.data["number"]
    table = [rows_to(experts, n, number) for experts in case.data["experts"]]
    for rank in range(n):
        leaving = sum(table[rank]) - table[rank][rank]
        arriving = sum(row[rank] for row in table) - table[rank][rank]
        nbytes = 2 * (leaving + arriving) * 8 * _WIDTH
        rule = "each chosen row goes there and comes back once, and backward the gradients do"
        most = nbytes + 8 * number + 8 * (leaving + arriving)
        if finding := traffic_limits.sent(observation, rank, nbytes, most, rule):
            return finding
    return None


def _leaves(case: Case) -> Tensors:
    data = case.data
    found = {f"expert {e}": m.clone() for e, m in enumerate(data["matrices"])}
    for name in ("x", "weights"):
        found |= {f"{name} {rank}": t.clone() for rank, t in enumerate(data[name])}
    return {name: tensor.requires_grad_() for name, tensor in found.items()}


def _made(case: Case, leaves: Tensors, rank: int) -> torch.Tensor:
    """(T, k, C): what its chosen experts make of each token."""
    x = leaves[f"x {rank}"]
    every = torch.stack(
        [torch.tanh(x @ leaves[f"expert {e}"]) for e in range(case.data["number"])], dim=1
    )
    chosen = case.data["experts"][rank]
    return every.gather(1, chosen[..., None].expand(*chosen.shape, _WIDTH))


def _output(case: Case, leaves: Tensors, rank: int) -> torch.Tensor:
    return (_made(case, leaves, rank) * leaves[f"weights {rank}"][..., None]).sum(1)


def _looks(case: Case, leaves: Tensors, rank: int) -> Tensors:
    with torch.no_grad():
        made, weights = _made(case, leaves, rank), leaves[f"weights {rank}"][..., None]
        return {
            "the sum of the experts' outputs: each is multiplied by its weight first": made.sum(1),
            "their average: each output is multiplied by its weight, and these are added up": (
                (made * weights).mean(1) if made.shape[1] > 1 else made[:0, 0]
            ),
            "what the first choice gives: all k choices are added up": (
                (made * weights)[:, 0] if made.shape[1] > 1 else made[:0, 0]
            ),
            "right but for the weights of each token, which stand in the wrong order": (
                (made * weights.flip(1)).sum(1) if made.shape[1] > 1 else made[:0, 0]
            ),
            "the layer with its residual sum, which is the caller's": (
                (made * weights).sum(1) + leaves[f"x {rank}"]
            ),
        }


def _wrong_gradient(name: str, leaf: torch.Tensor, got: Any, rank: int) -> Finding | None:
    wanted = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    if got is None and not wanted.any():
        return None
    title = f"the output is right, the gradient of {name} is not"
    if got is None:
        cut = "is it cut off, by a detach() or by a collective outside of autograd's graph?"
        return Finding(f"{title}: there is none, {cut}", rank, got="None")
    return compare_tensors.titled(title, compare_tensors.computed(got, wanted, rank))


EXERCISE = Exercise(
    module=__name__,
    signature="(x, experts, weights, local)",
    cases=_cases,
    on_rank=_on_rank,
    own={"matrices": in_turn, **dict.fromkeys(("x", "experts", "weights", "loss"), by_rank)},
    judge=_judge,
    hints=(
        """
        dispatch_tokens has done the hard part: rows come sorted by your experts, and back takes
        outputs in the same order. What is left between the two, and what after?
        """,
        """
        rows.split(...) gives each local expert its rows; torch.cat puts the outputs together again.
        How many experts are there in all? As many as this rank has, times the ranks.
        """,
        """
        rows, counts, back = dispatch_tokens(x, experts, number); outputs = torch.cat of
        expert(part) over zip(local, rows.split([int(c) for c in counts])); back(outputs) is
        (T, k, C): times weights[..., None], summed over dimension 1.
        """,
    ),
    passed="token by token what one process computes, and every gradient too",
    contract=Contract(
        takes="x (T, C), experts and weights (T, k), a list of m modules; an expert may get no row",
        allowed=frozenset({"all_to_all"}),
        sends="a rank sends what dispatch_tokens sends, and at most one weight beside each row",
        holds="each local expert runs at most once",
    ),
)
