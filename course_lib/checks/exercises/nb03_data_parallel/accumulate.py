"""Several microbatches per step, and one synchronisation.

accumulate(ddp, loss, microbatches, max_norm) -> norm of the gradient before it was clipped
    ddp is a DistributedDataParallel, or `Replicas`, which promises the same. Afterwards .grad is
    the gradient of the mean loss over all microbatches of all ranks (all equally large), scaled
    down so that its norm is at most max_norm. The ranks exchange it once.
"""

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import record_function

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.format_tensor import glimpse
from course_lib.checks.rank_inputs import along
from course_lib.checks.returned_numbers import close, number
from course_lib.text import counted

from ._networks import (
    FROZEN,
    TIED,
    Gradients,
    gradients,
    having,
    make,
    mean_squares,
    nbytes_of,
    network_data,
    weighted,
)

_ROWS = 2  # of a microbatch


_SPAN = "check: accumulate"


_CLOSE = 1e-4  # torch's own clipping adds 1e-6 to the norm


_LARGE = 1e6


class Replicas(nn.Module):
    """DistributedDataParallel's promise in few lines: backward leaves averages in .grad.

    As there, whether it does is decided in the forward pass, for the backward that follows; one
    only through `module` sends nothing. (The original loads so much of torch on every rank that a
    check with it would take long.)
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.require_backward_grad_sync, self.sends = True, False
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._average)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sends = self.require_backward_grad_sync
        return self.module(x)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def _average(self, parameter: nn.Parameter) -> None:
        if self.sends and parameter.grad is not None:
            Variable._execution_engine.queue_callback(self._end_of_backward)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    def _end_of_backward(self) -> None:
        self.sends = False


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, 3, _LARGE, []),
        _case(rng, 3, 2, 0.05, []),
        _case(rng, 2, 1, 0.1, [FROZEN]),
        _case(rng, 1, 2, 0.1, []),
        _case(rng, 2, 4, 0.2, [FROZEN, TIED]),
    ]


def _case(rng: random.Random, n: int, k: int, max_norm: float, options: list[str]) -> Case:
    data = {**network_data(rng, options, n * k * _ROWS), "k": k, "max_norm": max_norm}
    ranks = f"{counted(n, 'rank')}"
    micro = f"{k} microbatch{'es' * (k > 1)}"
    clip = "a norm that needs no clipping" if max_norm == _LARGE else f"max_norm = {max_norm}"
    return Case(n, f"{micro} on {ranks}, {clip}{having(options)}", data)


def _rows(case: Case, rank: int) -> list[slice]:
    """Rows of each microbatch of a rank."""
    k = case.data["k"]
    first = rank * k
    return [slice((first + i) * _ROWS, (first + i + 1) * _ROWS) for i in range(k)]


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data = case.data
    model = make(data)
    ddp = Replicas(model)
    microbatches = [
        (data["x"][r].clone(), data["y"][r].clone()) for r in _rows(case, dist.get_rank())
    ]
    passes: list[str] = []
    looking = model.register_forward_hook(lambda _, inputs, output: _note(inputs, output, passes))
    held = _Held()
    inside = model.middle.register_forward_pre_hook(held)
    with record_function(_SPAN):
        returned = answer(ddp, mean_squares, microbatches, data["max_norm"])
    looking.remove()
    inside.remove()
    return {
        "syncs": ddp.require_backward_grad_sync,
        "returned": plain(returned),
        "passes": passes,
        "held": held.most,
        "gradients": {name: plain(p.grad) for name, p in model.named_parameters()},
    }


class _Held:
    """Of how many microbatches the activations before a layer were alive at once."""

    def __init__(self) -> None:
        self.most = 0
        self._activations: list[StorageWeakRef] = []

    def __call__(self, layer: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        self._activations.append(StorageWeakRef(inputs[0].untyped_storage()))
        self._activations = [each for each in self._activations if not each.expired()]
        self.most = max(self.most, len(self._activations))


def _note(inputs: tuple[torch.Tensor], output: torch.Tensor, passes: list[str]) -> None:
    """Notes each forward with its rows, and the backward of it when that begins."""
    passes.append(f"forward of {len(inputs[0])} rows")
    if output.requires_grad:
        output.register_hook(lambda _: passes.append("backward"))


def norm_of(by_name: Gradients) -> float:
    return float(torch.cat([gradient.flatten() for gradient in by_name.values()]).norm())


def clipped(by_name: Gradients, max_norm: float) -> Gradients:
    scale = min(1.0, max_norm / norm_of(by_name))
    return {name: scale * gradient for name, gradient in by_name.items()}


def _clipped_wrongly(mean: Gradients, max_norm: float) -> dict[str, Gradients]:
    """What other ways to clip give; nothing where they give the same."""
    scale = max_norm / norm_of(mean)
    return {
        "each element is clipped by itself: it is the norm of all together that max_norm bounds": {
            name: gradient.clamp(-max_norm, max_norm) for name, gradient in mean.items()
        },
        "this has the norm max_norm, though its own was smaller: clipping only makes smaller": (
            weighted([mean], [scale])
        ),
    }


def _judge(case: Case, observation: Observation) -> Finding | None:
    data, n, k = case.data, case.world_size, case.data["k"]
    parts = [[gradients(data, rows) for rows in _rows(case, rank)] for rank in range(n)]
    own = [weighted(of_rank, [1 / k] * k) for of_rank in parts]
    mean = weighted(own, [1 / n] * n)
    exact = clipped(mean, data["max_norm"])
    for rank, seen in enumerate(observation.values):
        got = {name: seen["gradients"][name] for name in exact}
        if not _near(got, exact):
            known = _lookalikes(case, parts, own, mean, rank) | _clipped_wrongly(
                mean, data["max_norm"]
            )
            if n > 1:
                known[f"exactly {n} times the reference: a sum over the ranks, not an average"] = (
                    clipped(weighted([mean], [n]), data["max_norm"])
                )
            fits = [text for text, other in known.items() if _near(got, other)]
            name = next(n for n in exact if got[n] is None or not _near(got, exact, [n]))
            return Finding(
                fits[0] if fits else "the gradient is not that of all microbatches, clipped",
                rank,
                expected=f"gradient of {name!r}: {glimpse(exact[name])}",
                got="None" if got[name] is None else glimpse(got[name]),
            )
        norm = number(seen["returned"])
        if norm is None or not close(norm, norm_of(mean), _CLOSE):
            likely = "the gradients are right; return the norm that they had before clipping"
            if norm is not None and close(norm, k * norm_of(mean), _CLOSE):
                likely += f". This is {k} times that: divide each loss by {k}"
            return Finding(
                likely,
                rank,
                expected=f"{norm_of(mean):.6g}",
                got=kind_of(seen["returned"]) if norm is None else f"{norm:.6g}",
            )
    for rank, seen in enumerate(observation.values):
        if not seen["syncs"]:
            return Finding(
                "the gradient is right, but ddp is left without synchronisation, and the next step "
                "would send nothing: `with ddp.no_sync():` puts it back at its end",
                rank,
            )
    return (_bytes(case, observation) if n > 1 else None) or _passes(case, observation)


def _passes(case: Case, observation: Observation) -> Finding | None:
    """One forward for each microbatch, and its backward before the next."""
    expected = [f"forward of {_ROWS} rows", "backward"] * case.data["k"]
    for rank, seen in enumerate(observation.values):
        passes: list[str] = seen["passes"]
        if passes == expected and seen["held"] > 1:
            return Finding(
                "the numbers are right, but the activations of one microbatch are still there when "
                "the next one runs: backward lets go of them, unless retain_graph=True keeps them",
                rank,
                expected="those of 1 microbatch at a time",
                got=f"those of {seen['held']}",
            )
        if passes == expected:
            continue
        if passes.count(expected[0]) > case.data["k"]:
            likely = "a microbatch runs forward more than once"
        else:
            likely = (
                "the activations of several microbatches are held at once, and what they need is "
                "why a batch is cut up: one forward, its backward, then the next"
            )
        return Finding(
            f"the gradient is right, but {likely}",
            rank,
            expected=", ".join(expected),
            got=", ".join(passes),
        )
    return None


def _near(got: dict[str, Any], want: Gradients, names: Collection[str] = ()) -> bool:
    """Whether these gradients (all, without names) agree, as far as torch's clipping is exact."""
    largest = max(float(gradient.abs().max()) for gradient in want.values())
    return all(
        got[name] is not None and float((got[name] - want[name]).abs().max()) <= _CLOSE * largest
        for name in names or want
    )


def _lookalikes(
    case: Case, parts: list[list[Gradients]], own: list[Gradients], mean: Gradients, rank: int
) -> dict[str, Gradients]:
    n, k, limit = case.world_size, case.data["k"], case.data["max_norm"]
    total = weighted(own, [k / n] * n)
    found = {}
    if k > 1:
        found[
            f"exactly {k} times the reference, the number of microbatches: backward adds up, so "
            f"divide each loss by {k}"
        ] = total
        for name, scale in ((f"exactly 1/{k} of", 1 / k), (f"exactly 1/{n} of", 1 / n)):
            found[f"{name} the reference: something is divided twice"] = clipped(
                weighted([mean], [scale]), limit
            )
        last = weighted([of_rank[-1] for of_rank in parts], [1 / n / k] * n)
        found["only the last microbatch is in it: is .grad set to zero in between?"] = clipped(
            last, limit
        )
    found[
        "this is the rank's own gradient: no backward outside no_sync has sent it. The last "
        "microbatch runs outside"
    ] = clipped(own[rank], limit)
    found["it was not clipped: its norm is above max_norm"] = mean
    found[
        "the ranks clipped their own gradients, each by its own norm, before the average: clip "
        "once, after the backward that averages"
    ] = weighted([clipped(gradient, limit) for gradient in own], [1 / n] * n)
    found[
        "each microbatch was clipped by itself: clip once, when all have been added up and averaged"
    ] = weighted(
        [
            weighted([clipped(weighted([p], [1 / k]), limit) for p in of_rank], [1.0] * k)
            for of_rank in parts
        ],
        [1 / n] * n,
    )
    found["each parameter was clipped by itself: max_norm bounds the norm of all together"] = {
        name: min(1.0, limit / float(gradient.norm())) * gradient for name, gradient in mean.items()
    }
    return found


def _bytes(case: Case, observation: Observation) -> Finding | None:
    once, k = nbytes_of(case.data), case.data["k"]
    for rank in range(case.world_size):
        events = [event for event in observation.trace.of(rank) if _SPAN in event.spans]
        nbytes = sum(event.nbytes for event in events if event.op == "all_reduce")
        if nbytes == once:
            continue
        if nbytes == k * once:
            likely = (
                f"the gradient is right, but it was sent {k} times, after every microbatch. DDP "
                "decides in the forward pass: both passes of all but the last belong inside "
                "`with ddp.no_sync():`"
            )
        else:
            likely = "the gradient is right, but it was not sent exactly once"
        return Finding(likely, rank, expected=f"{once} bytes all-reduced", got=f"{nbytes} bytes")
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(ddp, loss, microbatches, max_norm)",
    cases=_cases,
    on_rank=_on_rank,
    own={"x": along(0), "y": along(0)},
    judge=_judge,
    hints=(
        """
        .grad adds up by itself from one backward to the next. So all you decide is which of them
        also talks to the other ranks, by which factor each loss counts, and when to clip.
        """,
        """
        `with ddp.no_sync():` around forward and backward of all microbatches but the last; the
        last one, outside, sends the whole sum. Each loss is divided by the number of microbatches.
        Only then torch.nn.utils.clip_grad_norm_, which returns the norm.
        """,
        """
        k = len(microbatches). For i, (x, y): if i < k - 1, inside with ddp.no_sync():
        (loss(ddp(x), y) / k).backward(); else the same outside. Then return
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), max_norm).
        """,
    ),
    passed="the gradient of all microbatches, clipped by its own norm and sent once",
    contract=Contract(
        runs=lambda arguments: len(arguments["microbatches"]),
        changes=("ddp",),
        takes="parameters frozen or shared; every `.grad` None at first",
        allowed=frozenset({"all_reduce"}),
        sends="every gradient travels once for all microbatches",
        holds="only the activations of one microbatch are held at a time",
    ),
)
