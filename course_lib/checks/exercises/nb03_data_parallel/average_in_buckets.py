"""Gradients averaged in buckets while backward still runs: the core of DistributedDataParallel.

average_in_buckets(model, bucket_bytes) -> synchronize
    Called once on every rank, before training, on models that are equal already. Fills buckets from
    the last parameter to the first, hangs hooks on the parameters, and starts a bucket's
    asynchronous all-reduce when its gradients are there and all buckets before it have left.
    synchronize(), called after each backward, sends what backward never completed, waits, and
    leaves the average over the ranks in every .grad.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.checks import compare_tensors
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD, never_ready, ready
from course_lib.checks.rank_inputs import rows
from course_lib.observe import CommEvent
from course_lib.text import counted

from ._networks import (
    BRANCH,
    CROSSED,
    FROZEN,
    TIED,
    UNUSED,
    Gradients,
    difference,
    gradients,
    having,
    make,
    mean_squares,
    nbytes_of,
    network_data,
    unused_names,
    weighted,
    wrong_gradient,
)

_STEPS, _ROWS = 2, 3  # steps, rows per rank and step


_RATE = 0.1


_STUCK = (
    "ranks whose buckets leave in different orders add up different gradients, or wait for ever. "
    "Send a bucket when it is complete and all before it have left, and the rest in synchronize: a "
    "parameter that got no gradient on this rank counts as zeros"
)


_NEVER = Clue(
    "an unused layer never has a gradient. A bucket that waits for it never leaves, so send it in "
    "synchronize, with zeros where .grad is None",
    "NoneType",
)


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, [], 112),  # which the last two gradients fill to the byte
        _case(rng, 3, [FROZEN], 1),
        _case(rng, 2, [TIED, CROSSED], 10_000),
        _case(rng, 1, [FROZEN], 100),
        _case(rng, 2, [UNUSED], 300, _NEVER),
        _case(rng, 3, [BRANCH, FROZEN], 150, _STUCK),
        _case(rng, 4, [UNUSED, TIED, BRANCH], 400, _STUCK),
    ]  # fmt: skip


def _case(
    rng: random.Random, world_size: int, options: list[str], bucket_bytes: int, clue: str = ""
) -> Case:
    data = network_data(rng, options, _STEPS * world_size * _ROWS)
    ranks = f"{counted(world_size, 'rank')}"
    label = f"{_STEPS} steps on {ranks}, buckets of {bucket_bytes} bytes{having(options)}"
    return Case(world_size, label, {**data, "bucket_bytes": bucket_bytes}, clue)


def _rows(case: Case, step: int, rank: int) -> slice:
    start = (step * case.world_size + rank) * _ROWS
    return slice(start, start + _ROWS)


def _rows_of_all_steps(case: Case, rank: int) -> list[int]:
    each = (_rows(case, step, rank) for step in range(_STEPS))
    return [row for rows in each for row in range(rows.start, rows.stop)]


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, data = dist.get_rank(), case.data
    model = make(data, with_branch=rank == 0)
    line = _Line(model)  # before the answer's own hooks, so each of its hooks comes first
    synchronize = answer(model, data["bucket_bytes"])
    if not callable(synchronize):
        return {"synchronize": plain(synchronize)}
    half_way: list[float] = []
    model.first.register_forward_hook(lambda _, __, h: _note_arrival(h, half_way))
    seen = []
    for step in range(_STEPS):
        rows = _rows(case, step, rank)
        loss = mean_squares(model(data["x"][rows]), data["y"][rows])
        with record_function(BACKWARD):
            loss.backward()
        line.end_of_backward()
        synchronize()
        seen.append({name: plain(p.grad) for name, p in model.named_parameters()})
        _descend(model)
        model.zero_grad()
    return {"gradients": seen, "half_way": half_way}


class _Line:
    """The parameters in the order in which buckets are filled: marks whose gradient is there."""

    def __init__(self, model: nn.Module):
        self._line = [p for p in reversed(list(model.parameters())) if p.requires_grad]
        for place, parameter in enumerate(self._line):
            parameter.register_post_accumulate_grad_hook(partial(self._arrived, place))
        self._waiting = set(range(len(self._line)))

    def _arrived(self, place: int, parameter: nn.Parameter) -> None:
        ready(place, parameter.nbytes)
        self._waiting.discard(place)

    def end_of_backward(self) -> None:
        for place in self._waiting:
            never_ready(place, self._line[place].nbytes)
        self._waiting = set(range(len(self._line)))


def _note_arrival(output: torch.Tensor, times: list[float]) -> None:
    """Notes when backward comes to this output, before the gradients of its layer exist."""
    output.register_hook(lambda _: times.append(time.monotonic()))


def _descend(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(_RATE * parameter.grad)


def _judge(case: Case, observation: Observation) -> Finding | None:
    for rank, seen in enumerate(observation.values):
        if "synchronize" in seen:
            return Finding(
                f"your function returned {kind_of(seen['synchronize'])}: return the function "
                "synchronize itself, without calling it",
                rank,
            )
    return _values(case, observation) or (
        _structure(case, observation) if case.world_size > 1 else None
    )


def _values(case: Case, observation: Observation) -> Finding | None:
    n, model, state = case.world_size, make(case.data), case.data["state"]
    for step in range(_STEPS):
        data = {**case.data, "state": state}
        parts = [gradients(data, _rows(case, step, rank), rank == 0) for rank in range(n)]
        exact = weighted(parts, [1 / n] * n)
        for rank, seen in enumerate(observation.values):
            known = {
                f"exactly {n} times the reference: you summed, an average is expected": weighted(
                    parts, [1.0] * n
                ),
                f"exactly 1/{n} of the reference: divided by the number of ranks twice": weighted(
                    parts, [1 / n / n] * n
                ),
                "this is the rank's own gradient, which nobody has averaged"
                + (f": {case.clue}" if case.clue else ""): parts[rank],
                f"this is 1/{n} of the rank's own gradient: it was divided, not "
                "all-reduced": weighted([parts[rank]], [1 / n]),
                "this is the parameter itself: a hook of register_post_accumulate_grad_hook gets "
                "the parameter, whose gradient is parameter.grad": {
                    name: state[name] for name in exact
                },
            }
            got = seen["gradients"][step]
            finding = wrong_gradient(
                got, exact, rank, unused_names(data), known if n > 1 else {}
            ) or _unused(got, data, rank)
            if finding:
                likely = f"step {step}, {finding.likely}{_early(got, exact)}"
                if step:
                    likely += ". Step 0 was right: what is still there from it?"
                return replace(finding, likely=likely)
        held = [seen["gradients"][step] for seen in observation.values]
        for name in exact:
            tensors = {rank: grads[name] for rank, grads in enumerate(held)}
            if all(t is not None for t in tensors.values()) and (
                finding := compare_tensors.ranks_differ(tensors)
            ):
                return finding
        state = _stepped(model, state, exact)
    return None


def _early(got: dict[str, Any], exact: Gradients) -> str:
    """What zeros beside right gradients come from."""
    zeros = {n for n in exact if got[n] is not None and not got[n].any() and exact[n].any()}
    right = {n for n in exact if n not in zeros and not difference(got, exact, n, False)}
    if not zeros or zeros | right != set(exact):
        return ""
    return (
        ". The others are right, so this bucket left before the gradient was there: it is complete "
        "when all of its gradients are, and the one that is listed last need not come last"
    )


def _unused(got: dict[str, Any], data: dict[str, Any], rank: int) -> Finding | None:
    for name in unused_names(data):
        if got[name] is not None and got[name].any():
            return Finding(
                f"gradient of {name!r}: nobody used this layer, which leaves None or zeros: is "
                "the buffer sent with what was in it before?",
                rank,
            )
    return None


def _stepped(model: nn.Module, state: dict[str, torch.Tensor], by: Gradients) -> dict:
    model.load_state_dict(state)
    for name, parameter in model.named_parameters():
        parameter.grad = by.get(name)
    _descend(model)
    return plain(dict(model.state_dict()))


def _structure(case: Case, observation: Observation) -> Finding | None:
    """Few all-reduces, none too large, of every gradient once, and not from the first on."""
    data = case.data
    room = data["bucket_bytes"]
    sizes = [p.nbytes for p in reversed(list(make(data).parameters())) if p.requires_grad]
    most = packed(sizes, room)
    least, once = nbytes_of(data, unused_names(data)), nbytes_of(data)
    for rank, seen in enumerate(observation.values):
        events = [event for event in observation.trace.of(rank) if event.op == "all_reduce"]
        if finding := _sizes(events, most, room, sizes, rank):
            return finding
        nbytes = sum(event.nbytes for event in events)
        if not _STEPS * least <= nbytes <= _STEPS * once:
            return Finding(
                "the gradients are right, but not every gradient was reduced exactly once",
                rank,
                expected=f"{_STEPS * once} bytes all-reduced in {_STEPS} steps",
                got=f"{nbytes} bytes",
            )
        each = len(events) // _STEPS
        for step in range(_STEPS):
            of_step = events[step * each : (step + 1) * each]
            if finding := _turned(of_step, seen["half_way"][step], rank):
                return finding
    return None


def packed(sizes: list[int], room: int) -> int:
    """Buckets that filling in this order takes."""
    buckets = filled = 0
    for nbytes in sizes:
        if not buckets or filled + nbytes > room:
            buckets, filled = buckets + 1, 0
        filled += nbytes
    return buckets


def _sizes(
    events: list[CommEvent], most: int, room: int, sizes: list[int], rank: int
) -> Finding | None:
    if len(events) > _STEPS * most:
        return Finding(
            "the gradients are right, but there are more all-reduces than buckets are needed: fill "
            "each bucket while the next gradient fits",
            rank,
            expected=f"at most {_STEPS * most} all-reduces in {_STEPS} steps",
            got=f"{len(events)}",
        )
    for event in events:
        if event.nbytes > room and event.nbytes not in sizes:
            return Finding(
                "the gradients are right, but a bucket is larger than bucket_bytes, so its first "
                "gradients wait long for its last",
                rank,
                expected=f"at most {room} bytes in one all-reduce",
                got=f"{event.nbytes} bytes",
            )
    return None


def _turned(events: list[CommEvent], half_way: float, rank: int) -> Finding | None:
    """`half_way` is when backward came to the first layer: the last layer's gradients are ready."""
    inside = [event for event in events if BACKWARD in event.spans]
    if len(inside) < 2 or any(event.issued < half_way for event in inside):
        return None
    return Finding(
        "the gradients are right, but all of them went out when backward was at its end. Backward "
        "makes the last layer's gradients first: fill buckets from the last parameter to the first",
        rank,
        expected="an all-reduce issued before backward comes to the first layer",
        got="none",
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(model, bucket_bytes)",
    cases=_cases,
    on_rank=_on_rank,
    own={"x": rows(_rows_of_all_steps), "y": rows(_rows_of_all_steps)},
    judge=_judge,
    hints=(
        """
        Before any hook: a list of buckets, each a list of parameters, from the last trainable
        parameter to the first. A hook then only counts: one gradient less is missing from my
        bucket. When none is missing from the next bucket in line, it leaves.
        """,
        """
        Keep `missing`, the number of gradients that each bucket waits for, and `under_way`, a list
        of (work, buffer). The next bucket is number len(under_way). A function send_complete()
        sends the next bucket while its missing is 0: torch.cat of its flattened gradients, then
        dist.all_reduce(buffer, async_op=True). Each hook subtracts one and calls it.
        """,
        """
        synchronize: set all of missing to 0 and call send_complete() once more (a gradient that is
        None goes as torch.zeros_like). Then for each bucket: work.wait(), divide the buffer by the
        number of ranks, split it by numel, and parameter.grad = part.view_as(parameter). At the
        end reset missing and clear under_way. p.register_post_accumulate_grad_hook(hook) calls
        hook(p) with the parameter, not with the gradient.
        """,
    ),
    passed="the average in few buckets, in one order, on their way before backward has ended",
    contract=Contract(
        changes=("model",),
        takes="models that start equal; parameters frozen, shared or unused",
        gives="`.grad` may end as zeros or None where no rank used the parameter",
        allowed=frozenset({"all_reduce"}),
        sends="every gradient travels once, in buckets of at most `bucket_bytes`, except for a "
        "larger gradient",
        waits=(Waits(op="all_reduce", begins="backward", promptly=True, outlasts="backward"),),
        may=frozenset({"hooks"}),
    ),
    points=3,
)
