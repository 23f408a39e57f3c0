"""The significantly-modified filter: send what has changed enough, keep the rest for later.

significant_changes(unsent, change, threshold) -> (indices, values) to send
    `unsent`, 1-D, holds what was not sent before. Adds `change` to it, picks the entries whose
    absolute value is above `threshold`, and sets these to zero in `unsent`, in place: the others
    stay there. `indices` is int64, in any order; `values` are the entries that were picked.
"""

import random
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation


def _cases(rng: random.Random) -> list[Case]:
    by_hand = [[4.0, 1.0, -2.0, 0.0], [1.0, 1.5, -2.0, 0.0], [0.0, 1.0, 1.0, 3.0]]
    return [
        _case("by hand, threshold 2", by_hand, 2.0),
        _case("a sum that grows slowly, threshold 1", [[0.375, -0.375]] * 5, 1.0),
        _case("threshold 0", [[1.0, 0.0, -1.0], [0.0, 0.0, 2.0]], 0.0),
        _case("nothing is large enough", [[1.0, -1.0]], 9.0),
        _case(
            "random changes in float64",
            [[rng.uniform(-4, 4) for _ in range(40)] for _ in range(8)],
            rng.choice([3.0, 4.0, 5.0]),
            torch.float64,
        ),
    ]


def _case(
    label: str,
    changes: list[list[float]],
    threshold: float,
    dtype: torch.dtype = torch.float32,
) -> Case:
    many = f", {len(changes)} calls" if len(changes) > 1 else ""
    tensor = torch.tensor(changes, dtype=dtype)
    start = 0.25 * (tensor[0] != 0).to(dtype)  # something is there from before
    data = {"changes": tensor, "threshold": threshold, "start": start}
    return Case(1, label + many, data)


def _on_rank(answer: Callable, case: Case) -> Any:
    changes, threshold = case.data["changes"], case.data["threshold"]
    unsent, log = case.data["start"].clone(), []
    for change in changes:
        handed_in = change.clone()
        returned = plain(answer(unsent, handed_in, threshold))
        log.append((returned, unsent.clone(), bool((handed_in == change).all())))
    return log


def _judge(case: Case, observation: Observation) -> Finding | None:
    changes, threshold = case.data["changes"], case.data["threshold"]
    unsent = case.data["start"]
    for call, (change, (returned, left, untouched)) in enumerate(
        zip(changes, observation.values[0], strict=True)
    ):
        before, total = unsent, unsent + change
        picked = (total.abs() > threshold).nonzero().reshape(-1)
        unsent = total.clone()
        unsent[picked] = 0
        shown = f"call {call + 1}: unsent {_list(before)}, change {_list(change)}"
        if finding := _form(returned):
            return finding
        indices, order = returned[0].sort()
        values = returned[1][order]
        if indices.tolist() != picked.tolist():
            return Finding(
                _which(indices.tolist(), picked.tolist(), before, change, threshold),
                input=shown,
                expected=f"indices {picked.tolist()[:12]}",
                got=f"indices {indices.tolist()[:12]}",
            )
        if not torch.equal(values.to(total.dtype), total[picked]):
            likely = "the values to send are the entries of unsent + change"
            if torch.equal(values, change[picked]):
                likely = "this sends only the new change: what was kept belongs to it"
            elif torch.equal(values, total[picked].abs()):
                likely = "the threshold looks at the absolute value; what is sent has a sign"
            elif not values.any():
                likely = "zeros are sent: take the values before you clear them"
            return Finding(likely, input=shown, expected=_list(total[picked]), got=_list(values))
        if not torch.equal(left, unsent):
            return Finding(
                _kept(left, before, total, picked),
                input=shown,
                expected=f"unsent {_list(unsent)}",
                got=f"unsent {_list(left)}",
            )
        if not untouched:
            return Finding(
                "`change` is the caller's gradient, and it has been written to: only `unsent` may "
                "change"
            )
    return None


def _form(returned: Any) -> Finding | None:
    pair = isinstance(returned, tuple | list) and len(returned) == 2
    if pair and isinstance(returned[0], tuple):
        return Finding(
            "`indices` is a tuple: torch.where(mask) and nonzero(as_tuple=True) give a tuple with "
            "a tensor for each dimension, and here it is the first, [0]"
        )
    if not pair or not all(isinstance(part, torch.Tensor) for part in returned):
        got = f"({', '.join(map(kind_of, returned))})" if pair else kind_of(returned)
        return Finding("two tensors are expected, (indices, values)", got=got)
    indices, values = returned
    if indices.dim() != 1 or indices.dtype != torch.int64 or indices.shape != values.shape:
        return Finding(
            "a 1-D tensor of int64 indices and one value for each of them is expected",
            expected="indices of dtype int64, values of the same length",
            got=f"indices of shape {tuple(indices.shape)}, {indices.dtype}, values of shape "
            f"{tuple(values.shape)}",
        )
    return None


def _which(
    got: list[int],
    want: list[int],
    before: torch.Tensor,
    change: torch.Tensor,
    threshold: float,
) -> str:
    total = before + change

    def at(mask: torch.Tensor) -> list[int]:
        return mask.nonzero().reshape(-1).tolist()

    causes = [
        (at(change.abs() > threshold), "this looks only at the new change: small ones add up"),
        (at(total > threshold), "a large negative change is significant as well"),
        (at(total.abs() >= threshold), "above the threshold, not at it"),
        (at(total.abs() <= threshold), "these are the entries to keep"),
        (list(range(len(total))), "everything is sent, so nothing is filtered"),
        (at(before.abs() > threshold), "add the change before you look for what is large"),
    ]
    return next(
        (cause for indices, cause in causes if got == indices), "other entries are above it"
    )


def _kept(
    left: torch.Tensor, before: torch.Tensor, total: torch.Tensor, picked: torch.Tensor
) -> str:
    if torch.equal(left, total) and len(picked):
        return "what was sent is still there, and will be sent again"
    if torch.equal(left, before):
        return (
            "`unsent` is as it was before the call, so what was not sent is lost: add to it in "
            "place, with unsent += change"
        )
    if not left.any() and total.any():
        return "only the entries that were sent become zero: you clear the others as well"
    return "after the call `unsent` should hold what was not sent"


def _list(values: torch.Tensor) -> str:
    text = ", ".join(f"{value:g}" for value in values.tolist()[:8])
    return f"[{text}{', ...' if len(values) > 8 else ''}]"


EXERCISE = Exercise(
    module=__name__,
    signature="(unsent, change, threshold)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Three things, in this order: add what is new, look for what has become large, clear what is
        sent. Everything else stays where it is.
        """,
        """
        unsent += change works in place. A mask of what is above the threshold by its absolute
        value gives the indices, with nonzero(). Copy the values before you set them to zero.
        """,
        """
        unsent += change; indices = (unsent.abs() > threshold).nonzero().reshape(-1); values =
        unsent[indices] (which is a copy); unsent[indices] = 0; return indices, values.
        """,
    ),
    passed="what is sent and what is kept add up to all that has changed",
    contract=Contract(
        changes=("unsent",),
        takes="1-D tensors",
        gives="the result is a pair of tensors: indices of int64, and their values",
        any_order=True,
        allowed=frozenset(),
    ),
)
