"""Measuring memory: the bytes behind some tensors.

held_bytes(tensors) -> int
    Bytes of the storages behind the tensors, each counted once, as long as any view needs it. None
    counts nothing.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.exercises._training import held_bytes
from course_lib.checks.returned_numbers import number


def _tensors(kind: str, size: int) -> list[torch.Tensor | None]:
    if kind == "plain":
        return [torch.zeros(size), torch.zeros(2, size), torch.zeros(())]
    if kind == "alike":
        return [torch.zeros(size), torch.ones(size)]
    if kind == "once":
        return [torch.zeros(size), None, torch.zeros(2 * size)]
    if kind == "bfloat16":
        return [torch.zeros(size, dtype=torch.bfloat16), torch.zeros(size, dtype=torch.float64)]
    if kind == "none":
        return [None, torch.zeros(size), None]
    if kind == "tied":
        layer = nn.Linear(size, size, bias=False)
        return [layer.weight, torch.zeros(size), layer.weight]
    if kind == "views":
        return list(torch.zeros(3 * size).chunk(3))  # elements are not the bytes of a part
    if kind == "shard":
        return [torch.zeros(4 * size).chunk(4)[1]]
    if kind == "empty":
        return [torch.zeros(size)[:0], torch.zeros(2)]
    if kind == "data":
        parameter = nn.Parameter(torch.zeros(size))
        return [parameter, parameter.data, parameter.detach().view(1, -1)]
    storage = torch.zeros(size)
    storage.untyped_storage().resize_(0)
    return [storage, torch.zeros(3)]


_KINDS = {
    "plain": "three float32 tensors",
    "alike": "two tensors of the same size",
    "bfloat16": "a bfloat16 and a float64 tensor",
    "none": "a gradient, between two that are None",
    "once": "a generator of tensors, which can be gone through once",
    "tied": "a weight that is listed twice",
    "views": "the three thirds of one tensor",
    "shard": "one quarter of a tensor, a view of it",
    "empty": "no element of a tensor, a view of it, and a tensor of 2 elements",
    "data": "a parameter, its .data and a view of it",
    "freed": "a tensor whose storage was resized to 0, and one of 3 elements",
}


_CLUES = {
    "none": Clue("None has no bytes", "NoneType"),
    "once": Clue(
        "a generator has no length and no index, and is empty after one pass", "generator"
    ),
}


def _cases(rng: random.Random) -> list[Case]:
    return [
        Case(1, label, {"kind": kind, "size": rng.randint(5, 200)}, _CLUES.get(kind, ""))
        for kind, label in _KINDS.items()
    ]


def _on_rank(answer: Callable, case: Case) -> Any:
    tensors = _tensors(**case.data)
    if case.data["kind"] == "once":
        return plain(answer(tensor for tensor in tensors))
    return plain(answer(tensors))


def _judge(case: Case, observation: Observation) -> Finding | None:
    tensors = _tensors(**case.data)
    want, got = held_bytes(tensors), number(observation.values[0])
    if got is None:
        kind = kind_of(observation.values[0])
        return Finding("one number of bytes is expected", expected=f"{want} bytes", got=kind)
    if got == want:
        return None
    given = [t for t in tensors if t is not None]
    kind = case.data["kind"]
    if kind in ("shard", "views") and got == given[0].nbytes:
        likely = (
            "a view keeps all of the tensor that it looks into: as long as one part lives, the "
            "others are not freed. Count storages, t.untyped_storage().nbytes()"
        )
    elif kind == "empty" and got == given[1].nbytes:
        likely = (
            "a view keeps all of the tensor that it looks into, even one without any element: "
            "count storages, t.untyped_storage().nbytes()"
        )
    elif kind == "freed" and got == sum(t.nbytes for t in given):
        likely = "this counts elements by the shape; the memory behind them has been given back"
    elif kind == "bfloat16" and got == 4 * sum(t.numel() for t in given):
        likely = "not every element has four bytes"
    elif got == sum(t.numel() for t in given):
        likely = "these are elements; each has t.element_size() bytes"
    elif got in (
        sum(t.untyped_storage().nbytes() for t in given),
        sum(t.nbytes for t in given),
        sum({id(t): t.untyped_storage().nbytes() for t in given}.values()),
    ):
        likely = (
            "memory that several tensors share is counted more than once: tell storages apart by "
            "t.untyped_storage().data_ptr()"
        )
    elif got == sum({t.untyped_storage().nbytes() for t in given}):
        likely = (
            "two storages of the same size are two: tell them apart by their address, "
            "t.untyped_storage().data_ptr()"
        )
    elif kind == "once" and got == 0:
        likely = (
            "here `tensors` is a generator, which is empty after one pass: go through it only once"
        )
    else:
        likely = "add up t.untyped_storage().nbytes() over the storages, each once"
    return Finding(likely, expected=f"{want} bytes", got=f"{got:g}")


EXERCISE = Exercise(
    module=__name__,
    signature="(tensors)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        A tensor is a view of a storage, and the storage is the memory. Two tensors may share one,
        and a small tensor may keep a large one alive.
        """,
        """
        t.untyped_storage() has nbytes() and data_ptr(), an address. Collect them in a dictionary
        by address, so that each is in it once. Leave out None.
        """,
        """
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors
        if t is not None}, and then the sum of its values.
        """,
    ),
    passed="every storage once, views and shared weights included",
    contract=Contract(
        takes="any iterable of tensors and None, also a generator, which can be gone through once",
        allowed=frozenset(),
    ),
)
