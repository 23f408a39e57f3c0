"""Who is to blame for a hang: follow the arrows to where they end.

blame(waits) -> list of int
    waits[rank] is the rank that this rank waits for; None if it waits for nobody (it has returned,
    raised, or is still computing). Every chain of waiting ranks ends in one of two ways: at a rank
    that waits for nobody, or in a circle of ranks that wait for each other. Returns these ranks,
    sorted. A rank that waits for nobody and that nobody waits for has done nothing wrong.

The picture is the wait-for graph; a circle in it is a deadlock (Coffman, Elphick & Shoshani,
"System Deadlocks", ACM Computing Surveys 3(2), 1971).
"""

import random
from collections.abc import Callable

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

Waits = dict[int, int | None]


_ENDLESS = (
    "some of these ranks wait in a circle, and whoever follows its arrows never arrives: stop at a "
    "rank that you have been to"
)


def _cases(rng: random.Random) -> list[Case]:
    return [
        _hangs("two ranks that wait for each other", [{0: 1, 1: 0}], _ENDLESS),
        _hangs("one rank that waits for one that has returned", [{0: 1, 1: None}]),
        _hangs("a chain of ranks", [{0: 1, 1: 2, 2: 3, 3: None}]),
        _hangs("one pair that waits, and ranks that have nothing to do with it", [
            {0: None, 1: 3, 2: None, 3: None, 4: None},
        ]),
        _hangs("a circle, and ranks that wait for it", [
            {0: 1, 1: 2, 2: 3, 3: 1, 4: 0},
            {0: 2, 1: 0, 2: 1},
        ], _ENDLESS),
        _hangs("several troubles at once", [{0: 1, 1: 0, 2: 3, 3: None, 4: 3, 5: 0}], _ENDLESS),
        # A set of 1 and 8 has 8 first.
        _hangs("two chains among nine ranks", [{**dict.fromkeys(range(9)), 0: 1, 7: 8}]),
        _hangs("nobody waits", [{0: None, 1: None}]),
        _hangs("hangs of 3 to 9 ranks", [_some_hang(rng) for _ in range(30)], _ENDLESS),
    ]  # fmt: skip


def _hangs(label: str, hangs: list[Waits], clue: str = "") -> Case:
    return Case(1, label, {"hangs": hangs}, clue)


def _some_hang(rng: random.Random) -> Waits:
    ranks = range(rng.randrange(3, 10))
    return {
        rank: rng.choice([*(other for other in ranks if other != rank), None, None])
        for rank in ranks
    }


def _on_rank(answer: Callable, case: Case) -> list:
    return [plain(answer(dict(waits))) for waits in case.data["hangs"]]


def _judge(case: Case, observation: Observation) -> Finding | None:
    for waits, got in zip(case.data["hangs"], observation.values[0], strict=True):
        want = blamed(waits)
        if not isinstance(got, list | tuple) or list(got) != want:
            return Finding(
                _cause(got, want, waits), input=f"{waits}", expected=f"{want}", got=_shown(got)
            )
    return None


def blamed(waits: Waits) -> list[int]:
    """After as many steps as there are ranks, every walk is at its end or in its circle.

    The members of a circle, all walking equally far, end on all of its members.
    """
    ends = set()
    for rank, peer in waits.items():
        if peer is not None:
            for _ in waits:
                following = waits[rank]
                rank = rank if following is None else following
            ends.add(rank)
    return sorted(ends)


def _cause(got: object, want: list[int], waits: Waits) -> str:
    if not isinstance(got, list | tuple):
        return f"a list of ranks is expected, and you returned {kind_of(got)}"
    if any(not isinstance(rank, int) for rank in got):
        return f"ranks are numbers, and this is a list with {kind_of(got[0])} in it"
    if list(got) == blamed({rank: peer or None for rank, peer in waits.items()}):
        return (
            "this is what comes out if rank 0 counts as nobody: `if waits[rank]` is false for 0 as "
            "for None, so ask `waits[rank] is not None`"
        )
    if sorted(got) == want:
        return "the right ranks; sorted(...) makes them a list in order"
    more, less = [r for r in got if r not in want], [r for r in want if r not in got]
    if len(set(got)) < len(got) and not more:
        return "a rank is to blame once, however many wait for it"
    idle = {rank for rank, peer in waits.items() if peer is None}
    if more and set(more) <= idle:
        return f"nobody waits for rank {more[0]}, so nobody hangs because of it"
    if more:
        led = f"rank {more[0]} waits for rank {waits.get(more[0])}"
        if waits.get(more[0]) is None:
            return f"there is no rank {more[0]!r} to blame here"
        return f"{led}, and is itself only held up: follow the arrow on, to where the chain ends"
    if waits[less[0]] is None:
        return f"rank {less[0]} is missing: others wait for it, and it waits for nobody"
    return (
        f"rank {less[0]} is missing: it is part of a circle. All members are to blame alike, and "
        "there can be several troubles at once"
    )


def _shown(got: object) -> str:
    return f"{list(got)}" if isinstance(got, list | tuple) else kind_of(got)


EXERCISE = Exercise(
    module=__name__,
    signature="(waits)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Draw an arrow from each waiting rank to the one that it waits for. Put your finger on a
        rank and follow the arrows. In which two ways can that end?
        """,
        """
        For every rank that waits: walk along waits, and keep a list of the ranks you have been to.
        Stop at a rank that waits for nobody, and blame it. Or stop at a rank that is already in the
        list: then the circle is the part of the list from that rank on.
        """,
        """
        For each rank with waits[rank] not None: path = []; while the rank waits and is not in path,
        append it and go to waits[rank]. After the loop, if waits[rank] is None add the rank to a
        set; else add path[path.index(rank):] to it. Return sorted(that set).
        """,
    ),
    passed="chains end where they end, circles are found whole",
    contract=Contract(
        allowed=frozenset(),
    ),
    timeout=6.0,
)
