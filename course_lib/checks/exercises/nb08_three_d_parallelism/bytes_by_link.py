"""Which bytes stay inside a node.

bytes_by_link(matrix, ranks_per_node) -> (inside, between)
    matrix[source][destination] are the bytes that one rank sent to another.
"""

import random
from collections.abc import Callable
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import number


def _cases(rng: random.Random) -> list[Case]:
    neighbours = [[0] * 6 for _ in range(6)]
    for rank in range(6):
        neighbours[rank][(rank + 1) % 6] = 100  # a ring over two nodes
    cases = [_case("a ring of 6 ranks on 2 nodes", neighbours, 3)]
    for ranks, per_node in ((4, 4), (6, 3), (8, 2), (3, 1), (5, 3)):
        matrix = [[rng.randrange(1, 10**9) * (s != d) for d in range(ranks)] for s in range(ranks)]
        cases.append(_case(f"{ranks} ranks, {per_node} on a node", matrix, per_node))
    return cases


def _case(label: str, matrix: list[list[int]], per_node: int) -> Case:
    return Case(1, label, {"matrix": matrix, "per_node": per_node})


def _on_rank(answer: Callable, case: Case) -> Any:
    return plain(answer([list(row) for row in case.data["matrix"]], case.data["per_node"]))


def _judge(case: Case, observation: Observation) -> Finding | None:
    matrix, per_node = case.data["matrix"], case.data["per_node"]
    want = _sorted(matrix, lambda s, d: s // per_node == d // per_node)
    answered = observation.values[0]
    got = [number(v) for v in answered] if isinstance(answered, tuple | list) else []
    if got == list(want):
        return None
    if len(got) != 2 or None in got:
        return Finding("two numbers are expected: (inside, between)", got=kind_of(answered))
    return Finding(
        _cause(tuple(got), matrix, per_node, want),
        input=case.label,
        expected=f"{want[0]} bytes inside nodes, {want[1]} between",
        got=f"{got[0]:.12g} and {got[1]:.12g}",
    )


def _cause(got: tuple, matrix: list[list[int]], per_node: int, want: tuple[int, int]) -> str:
    nodes = -(-len(matrix) // per_node)
    lookalikes = {
        "the two are swapped: inside comes first": want[::-1],
        "ranks 0, 1, ... fill the first node: the node is rank // ranks_per_node, not rank % it": (
            _sorted(matrix, lambda s, d: s % per_node == d % per_node)
        ),
        "this takes the node for rank // number of nodes": (
            _sorted(matrix, lambda s, d: s // nodes == d // nodes)
        ),
        "ranks can be near each other and on different nodes: compare nodes, not distances": (
            _sorted(matrix, lambda s, d: abs(s - d) < per_node)
        ),
        "this counts messages, not bytes": tuple(
            sum(map(bool, row))
            for row in (
                [matrix[s][d] for s, d in _pairs(matrix) if s // per_node == d // per_node],
                [matrix[s][d] for s, d in _pairs(matrix) if s // per_node != d // per_node],
            )
        ),
    }
    if causes := [cause for cause, numbers in lookalikes.items() if got == numbers]:
        return "; or: ".join(causes)
    if sum(got) * 2 == sum(want):
        return "half of the bytes are missing: matrix[a][b] and matrix[b][a] are different messages"
    if sum(got) == sum(want) * 2:
        return "each entry of the matrix is a message of its own: count it once"
    if sum(got) != sum(want):
        return "the two numbers should add up to all bytes of the matrix"
    return "two ranks are on one node if rank // ranks_per_node is the same for both"


def _pairs(matrix: list[list[int]]) -> list[tuple[int, int]]:
    return [(s, d) for s in range(len(matrix)) for d in range(len(matrix))]


def _sorted(matrix: list[list[int]], together: Callable[[int, int], bool]) -> tuple[int, int]:
    inside = sum(matrix[s][d] for s, d in _pairs(matrix) if together(s, d))
    return inside, sum(map(sum, matrix)) - inside


EXERCISE = Exercise(
    module=__name__,
    signature="(matrix, ranks_per_node)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        With 4 ranks per node, ranks 0 to 3 are on the first and 4 to 7 on the second. And rank r?
        """,
        """
        Rank r is on node r // ranks_per_node. Go through all pairs (source, destination) and sort
        their bytes by whether the two nodes are the same.
        """,
        """
        Two counters, two loops with enumerate. if source // ranks_per_node == destination //
        ranks_per_node: inside += sent, else: between += sent.
        """,
    ),
    passed="on 1 to 4 nodes, every byte counted once, even where the last node is not full",
    contract=Contract(
        takes="any number of ranks; the last node may have fewer than the others",
        allowed=frozenset(),
    ),
)
