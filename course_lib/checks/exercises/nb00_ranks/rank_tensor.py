"""The first line of every distributed program: who am I?

rank_tensor(size) -> tensor
    A float32 tensor of `size` elements, each of them the number of the rank. No communication.
"""

import random
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks import compare_tensors, reference
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.format_tensor import glimpse
from course_lib.text import counted


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(4, 3), (2, 5), (1, 4), (5, 1), (2, 0), (3, rng.randrange(20, 10_000))]
    return [Case(n, f"{counted(n, 'rank')}, size = {size}", {"size": size}) for n, size in sizes]


def _on_rank(answer: Callable, case: Case) -> Any:
    return plain(answer(case.data["size"]))


def _judge(case: Case, observation: Observation) -> Finding | None:
    size, n = case.data["size"], case.world_size
    if n > 1 and size and all(_equal(got, observation.values[0]) for got in observation.values):
        return Finding(
            "every rank returned the same, and each has a number of its own: the function has to "
            "find out, when it runs, on which rank it is",
            rank=1,
            expected=glimpse(torch.ones(size)),
            got=glimpse(observation.values[1]),
        )
    filled = [torch.full((size,), float(number)) for number in range(n + 1)]
    for rank, got in enumerate(observation.values):
        if isinstance(got, torch.Tensor) and not got.is_floating_point():
            return Finding(
                "whole numbers make a tensor of integers: ask for dtype=torch.float32",
                rank,
                expected=f"a tensor of shape ({size},), float32",
                got=f"{str(got.dtype).removeprefix('torch.')}",
            )
        if isinstance(got, torch.Tensor) and got.dtype != torch.float32:
            found = str(got.dtype).removeprefix("torch.")
            return Finding(
                f"the dtype is {found}: ask for dtype=torch.float32",
                rank,
                expected=f"a tensor of shape ({size},), float32",
                got=found,
            )
        lookalikes = {
            "one more than the rank: ranks are counted from 0": filled[rank + 1],
            "the world size, not the rank": filled[n],
            "0, 1, 2, ... instead of the rank": torch.arange(size, dtype=torch.float32),
        }
        want = reference.moved(filled[rank])
        if finding := compare_tensors.mismatch(got, want, rank, lookalikes):
            return finding
    return None


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.equal(other)


EXERCISE = Exercise(
    module=__name__,
    signature="(size)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Every rank runs the same function, yet each must return a different result. Which call tells
        a rank who it is?
        """,
        """
        dist.get_rank() is the rank's number. torch.full(shape, value) fills a tensor; given a whole
        number it makes integers, unless you ask for a dtype.
        """,
        """
        One line: return torch.full with the shape (size,), the value dist.get_rank() and the dtype
        torch.float32.
        """,
    ),
    passed="every rank has its own number",
    contract=Contract(
        anew=True,
        takes="any size, even 0",
        allowed=frozenset(),
        sends="your function sends nothing",
    ),
)
