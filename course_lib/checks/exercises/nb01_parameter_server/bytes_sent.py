"""What has to leave each machine in one step: a server, a worker, and a rank of a ring.

bytes_sent(workers, size, servers) -> (by a server, by a worker, by a rank of a ring)
    `size` bytes of gradients, and as many of parameters, cut evenly between the servers. The ring
    all-reduces the gradients of the workers among themselves, without servers.
"""

import random
from typing import Any

from course_lib.checks.call_answer import plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, cut_off, numbers
from course_lib.text import counted

_EXACT = 1e-6  # a float32 tensor is a number, too


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(4, 1000, 1), (8, 4096, 4), (1, 100, 1), (3, 90, 3), (4, 10, 3)]
    sizes += [(rng.randint(2, 900), 12 * rng.randint(1, 10**9), rng.randint(2, 9))]
    return [
        Case(
            1,
            f"{counted(n, 'worker')}, {size} bytes, {counted(servers, 'server')}",
            {"size": (n, size, servers)},
        )
        for n, size, servers in sizes
    ]


def _on_rank(answer: Any, case: Case) -> Any:
    return plain(answer(*case.data["size"]))


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, size, servers = case.data["size"]
    answered = observation.values[0]
    got = numbers(answered, 3)
    if got is None:
        return Finding(
            "three numbers are expected, (by a server, by a worker, by a rank of a ring)",
            got=shown(answered),
        )
    want = [n * size / servers, size, 2 * (n - 1) / n * size]
    for what, mine, right in zip(("server", "worker", "ring"), got, want, strict=True):
        if not close(mine, right, _EXACT):
            return Finding(
                cut_off(mine, right) or _cause(what, mine, n, size, servers),
                expected=f"{right:.12g} bytes",
                got=f"{mine:.12g} bytes",
            )
    return None


def _cause(what: str, got: float, n: int, size: int, servers: int) -> str:
    causes = {
        "server": [
            (n * size, "with several servers each has only its part of the keys"),
            (2 * n * size / servers, "this is in and out together; only what leaves is expected"),
            (size / servers, "every worker gets a copy of its own"),
            (size, "a server answers all workers, and sends its own keys only"),
        ],
        "worker": [
            (size / servers, "a worker sends to every server, its whole gradient in all"),
            (size * servers, "each server gets only its part of the gradient"),
            (2 * size, "a worker sends a gradient and receives parameters: only one leaves it"),
            (n * size, "a worker sends its own gradient and nobody else's"),
        ],
        "ring": [
            (2 * size, "2(n-1)/n of the tensor: n - 1 steps of one n-th, twice"),
            ((n - 1) / n * size, "the ring goes round twice: reduce-scatter, then all-gather"),
            (2 * (n + servers - 1) / (n + servers) * size, "the ring is one of the workers alone"),
            (2 * (n - 1) * size, "a step of the ring sends one n-th of the tensor, not all of it"),
        ],
    }
    told = {"server": "of a server", "worker": "of a worker", "ring": "of a rank of the ring"}
    fits = [cause for value, cause in causes[what] if close(got, value, _EXACT)]
    if fits:
        return f"the number {told[what]}: {'; or: '.join(fits)}"
    return f"the number {told[what]} is wrong: follow one step with n = 3 on paper"


EXERCISE = Exercise(
    module=__name__,
    signature="(workers, size, servers)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Take one server first. It sends `size` bytes to each worker. What changes with several?
        """,
        """
        A server owns size / servers bytes and sends them to every worker. A worker sends its
        gradient, cut between the servers. The ring is the one of lesson 02: 2(n-1)/n.
        """,
        """
        workers * size / servers, size, and 2 * (workers - 1) / workers * size.
        """,
    ),
    passed="what a server sends grows with the workers, a ring's rank never sends twice the tensor",
    contract=Contract(
        allowed=frozenset(),
    ),
)
