"""What a message costs: a line fitted to a measurement.

fit_alpha_beta(sizes, times) -> (alpha, beta)
    times ~ alpha + beta * sizes, by least squares on the relative errors: the sum of
    ((alpha + beta * size - time) / time)^2 is smallest. Times of messages span orders of
    magnitude, and their noise grows with them.
"""

import random
from collections.abc import Callable
from typing import Any

from course_lib.checks.call_answer import kind_of, plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, numbers
from course_lib.simulate import costs

_FIT_TOLERANCE = 1e-3  # float32 arithmetic is good enough


def _fit_cases(rng: random.Random) -> list[Case]:
    sizes = [2.0**k for k in range(10, 27, 2)]
    link = {"alpha": rng.uniform(1e-5, 1e-4), "beta": 1 / rng.uniform(1e9, 2e10)}
    slow = {"alpha": rng.uniform(1e-3, 5e-3), "beta": 1 / rng.uniform(5e7, 2e8)}
    return [
        _measurement("three points on a line", [2.0, 4.0, 8.0], [2.0, 3.0, 5.0]),
        _measurement("a fast link, without noise", sizes, _times(sizes, **link)),
        _measurement("a fast link, 1 KB to 64 MB, noisy", sizes, _noisy(rng, sizes, **link)),
        _measurement(
            "a slow link, each size measured twice", sizes * 2, _noisy(rng, sizes * 2, **slow)
        ),
    ]


def _times(sizes: list[float], alpha: float, beta: float) -> list[float]:
    return [costs.message(size, alpha, beta) for size in sizes]


def _noisy(rng: random.Random, sizes: list[float], alpha: float, beta: float) -> list[float]:
    """Within 10%, and the last message by 10% too slow: that one the plain fit believes."""
    *times, last = _times(sizes, alpha, beta)
    return [time * rng.uniform(0.9, 1.1) for time in times] + [last * 1.1]


def _measurement(label: str, sizes: list[float], times: list[float]) -> Case:
    return Case(1, label, {"sizes": sizes, "times": times})


def _fit_on_rank(answer: Callable, case: Case) -> Any:
    return plain(answer(list(case.data["sizes"]), list(case.data["times"])))


def _judge_fit(case: Case, observation: Observation) -> Finding | None:
    sizes, times = case.data["sizes"], case.data["times"]
    fitted = observation.values[0]
    if not isinstance(fitted, tuple | list):
        kind = kind_of(fitted)
        return Finding(f"two numbers are expected, (alpha, beta), and you returned {kind}")
    pair = numbers(fitted, 2)
    if pair is None:
        return Finding("two plain numbers are expected, (alpha, beta)", got=shown(fitted))
    got = pair[0], pair[1]
    want = _line(sizes, times, [1 / time**2 for time in times])
    if all(close(g, w, _FIT_TOLERANCE) for g, w in zip(got, want, strict=True)):
        return None
    return Finding(
        _fit_cause(got, want, sizes, times),
        input=f"sizes {_listed(sizes)} bytes, times {_listed(times)} s",
        expected="alpha = {:.4g} s, beta = {:.4g} s per byte".format(*want),
        got="alpha = {:.4g}, beta = {:.4g}".format(*got),
    )


def _line(sizes: list[float], times: list[float], weights: list[float]) -> tuple[float, float]:
    """The line (alpha, beta) with the least sum of weight x error^2, in closed form."""
    total = sum(weights)
    x = sum(w * s for w, s in zip(weights, sizes, strict=True)) / total
    y = sum(w * t for w, t in zip(weights, times, strict=True)) / total
    rows = list(zip(weights, sizes, times, strict=True))
    beta = sum(w * (s - x) * (t - y) for w, s, t in rows) / sum(
        w * (s - x) ** 2 for w, s, _ in rows
    )
    return y - beta * x, beta


def _fit_cause(
    got: tuple[float, float], want: tuple[float, float], sizes: list[float], times: list[float]
) -> str:
    def is_(alpha: float, beta: float) -> bool:
        return close(got[0], alpha, _FIT_TOLERANCE) and close(got[1], beta, _FIT_TOLERANCE)

    ends = (times[-1] - times[0]) / ((sizes[-1] - sizes[0]) or 1)
    causes = [
        (want[::-1], "the two are swapped: alpha, the latency, comes first"),
        ((want[0], 1 / want[1]), "your beta is bytes per second: seconds per byte is its inverse"),
        (
            _line(sizes, times, [1.0] * len(sizes)),
            "this is plain least squares, and it listens only to the largest message: its error in "
            "seconds dwarfs all others. Divide each equation by its time",
        ),
        (
            _line(sizes, times, [1 / time for time in times]),
            "you weight the squared errors by 1/time; a relative error squared has 1/time^2",
        ),
        (
            _line(sizes, times, [1 / time**4 for time in times]),
            "you weight the squared errors by 1/time^4: a weight that multiplies the error itself, "
            "as that of numpy's polyfit does, is 1/time",
        ),
        (
            (times[0] - ends * sizes[0], ends),
            "this line goes through two points only: use them all",
        ),
        ((0.0, sum(times) / sum(sizes)), "the line need not pass through zero: alpha is missing"),
        ((want[0] * 1e6, want[1] * 1e6), "these are microseconds: give seconds"),
    ]
    for line, cause in causes:
        if is_(*line):
            return cause
    if close(got[1], want[1], _FIT_TOLERANCE):
        return "beta is right, alpha is not: it is where the fitted line meets size 0"
    return "this line does not have the least sum of squared relative errors"


def _listed(values: list[float]) -> str:
    few = [f"{value:.4g}" for value in values[:4]]
    return "[" + ", ".join(few + ["..."] * (len(values) > 4)) + "]"


EXERCISE = Exercise(
    module=__name__,
    signature="(sizes, times)",
    cases=_fit_cases,
    on_rank=_fit_on_rank,
    judge=_judge_fit,
    hints=(
        """
        Each measurement is an equation, alpha + beta * size = time, and there are more of them
        than unknowns. Least squares makes the sum of the squared errors small, and an error of
        1% in a long time outweighs one of 50% in a short one. How can 1% count as 1%
        everywhere?
        """,
        """
        Divide each equation by its time: alpha * (1/time) + beta * (size/time) = 1. Now all
        errors are relative, and ordinary least squares does what is wanted.
        """,
        """
        torch.linalg.lstsq(A, b).solution does it: A has a row (1/time, size/time) for each
        measurement, b is a column of ones. Use float64. Return two floats: .tolist() makes
        them.
        """,
    ),
    passed="the line with the least relative error",
    contract=Contract(
        allowed=frozenset(),
    ),
)
