"""One step of a parameter server: gradients in, new values out.

push_and_pull(values, gradient, share, lr) -> the new values, on every rank
    Rank 0 is the server and holds `values` (elsewhere nan of the same shape). Every other rank is a
    worker with the `gradient` of the mean loss over its samples, which are `share` of the whole
    batch. The server steps by lr times the gradient of the whole batch. Workers send one gradient
    to the server, the server sends the values to each worker, and nothing else travels.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_worker, only

_NAN = float("nan")


_SLACK = 1e-12  # of the largest number that went in: float64


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case([1.0, 2.0, 3.0], [[10.0] * 3, [20.0] * 3], [2, 2], 0.1, "2 workers, equal shares"),
        _drawn(rng, 3, 7, [1, 2, 5]),
        _drawn(rng, 1, 4, [3]),
        _drawn(rng, 5, 11, [4, 1, 1, 2, 3]),
        _drawn(rng, 2, 1, [1, 6]),
    ]


def _drawn(rng: random.Random, workers: int, numel: int, samples: list[int]) -> Case:
    def numbers() -> list[float]:
        return [rng.uniform(-9, 9) for _ in range(numel)]

    many = "1 worker" if workers == 1 else f"{workers} workers"
    label = f"{many}, {numel} parameters, {' + '.join(map(str, samples))} samples"
    return _case(numbers(), [numbers() for _ in range(workers)], samples, 0.25, label)


def _case(
    values: list[float], gradients: list[list[float]], samples: list[int], lr: float, label: str
) -> Case:
    data = {
        "values": torch.tensor(values, dtype=torch.float64),
        "gradients": torch.tensor(gradients, dtype=torch.float64),
        "shares": [count / sum(samples) for count in samples],
        "lr": lr,
    }
    return Case(1 + len(samples), label, data)


_ALL_NAN_SERVER = (
    "the server's own gradient is nan, since it has no samples: add up only what the workers send"
)
_ALL_NAN_WORKER = "this worker returns nan, which is what its `values` held before it pulled"


def _on_rank(answer: Callable, case: Case) -> Any:
    rank, data = dist.get_rank(), case.data
    if rank == 0:
        values, gradient, share = data["values"].clone(), torch.full_like(data["values"], _NAN), 0.0
    else:
        values = torch.full_like(data["values"], _NAN)
        gradient, share = data["gradients"][rank - 1].clone(), data["shares"][rank - 1]
    return plain(answer(values, gradient, share, data["lr"]))


def _judge(case: Case, observation: Observation) -> Finding | None:
    data, n = case.data, case.world_size - 1
    shares = torch.tensor(data["shares"], dtype=torch.float64)[:, None]
    want = data["values"] - data["lr"] * (shares * data["gradients"]).sum(0)
    size = data["values"].abs() + data["gradients"].abs().sum(0)
    exact = reference.Reference(want, _SLACK * size, torch.float64)
    lookalikes = _lookalikes(data, n, shares)
    for rank, got in enumerate(observation.values):
        finding = compare_tensors.mismatch(got, exact, rank)
        if finding is None:
            continue
        if isinstance(got, torch.Tensor) and got.isnan().all():
            finding = replace(finding, likely=_ALL_NAN_SERVER if rank == 0 else _ALL_NAN_WORKER)
        for words, other in lookalikes.items():
            if got is not None and _near(got, other, exact.tolerance):
                finding = replace(finding, likely=words)
        return finding
    model = want.nbytes
    for rank in reversed(range(case.world_size)):
        rule = "each worker pushes one gradient" if rank else "the server answers every worker once"
        finding = traffic_limits.peers(
            observation, rank, {0} if rank else set(range(1, n + 1)), "workers talk to the server"
        )
        times = 1 if rank else n
        finding = finding or traffic_limits.sent(
            observation, rank, times * model, times * model, rule
        )
        if finding:
            return finding
    return None


def _lookalikes(data: dict, n: int, shares: torch.Tensor) -> dict[str, torch.Tensor]:
    values, gradients, lr = data["values"], data["gradients"], data["lr"]
    weighted = (shares * gradients).sum(0)
    return {
        "these are the values from before the step: add up all gradients, step, then answer; or "
        "the gradients are weighted on the server, whose share is 0: a worker knows its own": (
            values
        ),
        **{
            f"only the gradients of workers 1 to {last} are in it: a worker is answered before the "
            "others have pushed": values - lr * (shares * gradients)[:last].sum(0)
            for last in range(1, n)
        },
        "the gradients are added up without their shares: each is a mean over the worker's own "
        "samples, so it counts by `share` in the mean over all": values - lr * gradients.sum(0),
        "this is a mean of the means, which is the batch's gradient only if all shares are equal": (
            values - lr * gradients.mean(0)
        ),
        f"this is the sum of the means divided by {n + 1}, but the server has no gradient: weight "
        "each by its share": values - lr * gradients.sum(0) / (n + 1),
        "the shares add up to 1 already: dividing by the number of workers as well makes the step "
        f"{n} times too small": values - lr * weighted / n,
        "the step goes uphill: values - lr * gradient": values + lr * weighted,
        "this is the gradient of the whole batch, not the values after the step": weighted,
    }


def _near(got: Any, other: torch.Tensor, tolerance: torch.Tensor) -> bool:
    same = isinstance(got, torch.Tensor) and got.shape == other.shape
    return same and bool(((got.double() - other).abs() <= 4 * tolerance).all())


EXERCISE = Exercise(
    module=__name__,
    signature="(values, gradient, share, lr)",
    cases=_cases,
    on_rank=_on_rank,
    own={"values": only(lambda case: 0), "gradients": by_worker, "shares": by_worker},
    judge=_judge,
    hints=(
        """
        Two roles, one function: if dist.get_rank() == 0 you are the server, else a worker. What
        has to be added up is share * gradient of every worker.
        """,
        """
        Worker: send share * gradient to rank 0, then receive the new values from it. Server: for
        every worker receive into a buffer and add it to a total; step once; send to every worker.
        """,
        """
        Server: total = torch.zeros_like(values); for each worker w: dist.recv(buffer, src=w);
        total += buffer. Then values = values - lr * total, and dist.send(values, dst=w) to each.
        Worker: dist.send(share * gradient, dst=0); dist.recv(values, src=0). Return values.
        """,
    ),
    passed="n gradients in and n copies out, the step of the whole batch",
    contract=Contract(
        changes=("values",),
        takes="rank 0's own `gradient` (nan) and `share` (0) do not count",
        allowed=POINT_TO_POINT,
        sends="each worker sends its gradient to rank 0, which sends the values to each worker; "
        "nothing else travels",
    ),
)
