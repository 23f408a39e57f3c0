"""What hangs when sends wait: a rendezvous, played by hand.

stuck_ranks(programs) -> list of ranks
    programs[r] is what rank r does, in order: ("send", peer), ("recv", peer) or ("run", name). A
    send comes back only when the peer takes the message, a recv when it has come. Returns the
    ranks that never get to the end, in ascending order.
"""

import itertools
import random
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.simulate.pipeline import Op

Programs = list[list[tuple[str, Any]]]


def _cases(rng: random.Random) -> list[Case]:
    swap: Programs = [[("send", 1), ("recv", 1)], [("send", 0), ("recv", 0)]]
    polite: Programs = [[("send", 1), ("recv", 1)], [("recv", 0), ("send", 0)]]
    ring: Programs = [[("send", (r + 1) % 3), ("recv", (r - 1) % 3)] for r in range(3)]
    tail: Programs = [
        [("send", 1), ("recv", 1)],
        [("send", 0), ("recv", 0), ("run", "F"), ("send", 2)],
        [("recv", 1), ("send", 3)],
        [("recv", 2)],
        [("run", "F")],
    ]
    crossed: Programs = [[("send", 2), ("send", 1)], [("recv", 0)], [("run", "F"), ("recv", 1)]]
    return [
        _case("ranks that wait for ranks that hang", tail),
        _case("two ranks that both send first", swap),
        _case("two ranks, one of which receives first", polite),
        _case("a ring of three that all send first", ring),
        _case("a message to a rank that listens to another", crossed),
        _case("a pipeline of 3 stages, GPipe, m = 3", _pipeline(_gpipe(3, 3))),
        _case("a pipeline of 3 stages, 1F1B, m = 4", _pipeline(_one_f_one_b(3, 4))),
        _case("a relay of 5", _relay(rng, 5)),
        _case("a relay of 24", _relay(rng, 24)),
        _case("two ranks with a long conversation", _talk(rng, rng.randint(150, 250))),
    ]


def _talk(rng: random.Random, rounds: int) -> Programs:
    """Ranks 1 and 2 exchange messages; then rank 1 has one more to say than is listened to."""
    programs: Programs = [[("run", "F")], [], []]
    for _ in range(rounds):
        source, target = rng.sample((1, 2), 2)
        programs[source] += [("run", "F"), ("send", target)]
        programs[target].append(("recv", source))
    programs[1] += [("send", 2), ("send", 0)]
    programs[2].append(("recv", 1))
    return programs


def _case(label: str, programs: Programs) -> Case:
    return Case(1, label, {"programs": programs})


def _gpipe(p: int, m: int) -> list[list[Op]]:
    return [[Op(kind, s, i) for kind in "FB" for i in range(m)] for s in range(p)]


def _one_f_one_b(p: int, m: int) -> list[list[Op]]:
    rows = []
    for s in range(p):
        w = min(p - s - 1, m)
        pairs = [(Op("F", s, w + i), Op("B", s, i)) for i in range(m - w)]
        row = [Op("F", s, i) for i in range(w)] + [op for pair in pairs for op in pair]
        rows.append(row + [Op("B", s, i) for i in range(m - w, m)])
    return rows


def _pipeline(schedule: list[list[Op]]) -> Programs:
    """Receive right before, send right after each operation."""
    programs, last = [], len(schedule) - 1
    for rank, row in enumerate(schedule):
        program = []
        for op in row:
            source, target = (rank - 1, rank + 1) if op.kind == "F" else (rank + 1, rank - 1)
            program += [("recv", source)] * (0 <= source <= last) + [("run", str(op))]
            program += [("send", target)] * (0 <= target <= last)
        programs.append(program)
    return programs


def _relay(rng: random.Random, n: int) -> Programs:
    """A message from rank to rank in a random order; then the last two both receive."""
    order = rng.sample(range(n), n)
    programs: Programs = [[] for _ in range(n)]
    for source, target in itertools.pairwise(order):
        programs[source].append(("send", target))
        programs[target].append(("recv", source))
    programs[order[-1]].append(("recv", order[-2]))
    programs[order[-2]].append(("recv", order[-1]))
    return programs


def _on_rank(answer: Any, case: Case) -> Any:
    value = answer([list(program) for program in case.data["programs"]])
    return plain(sorted(value) if isinstance(value, set | frozenset) else value)


def _judge(case: Case, observation: Observation) -> Finding | None:
    programs, answered = case.data["programs"], observation.values[0]
    want = reference(programs)
    got = list(answered) if isinstance(answered, tuple) else answered
    if not isinstance(got, list) or not all(type(rank) is int for rank in got):
        return Finding(
            "a list of ranks is expected, empty if all get to the end",
            expected=f"{want}",
            got=kind_of(answered) if not isinstance(got, list) else f"{got}",
        )
    if sorted(got) == want:
        return None
    if sorted(set(got)) == want:
        return Finding("each rank should be in the list once", expected=f"{want}", got=f"{got}")
    return Finding(
        _cause(set(got), set(want), programs),
        input="\n".join(f"rank {r}: {_shown(program)}" for r, program in enumerate(programs)),
        expected=f"{want}",
        got=f"{got}",
    )


def reference(programs: Programs) -> list[int]:
    """Let whoever can go on do so, until nobody can."""
    left = [list(reversed(program)) for program in programs]  # the next step is the last one
    while any(_advance(left, rank) for rank in range(len(left))):
        pass
    return [rank for rank, steps in enumerate(left) if steps]


def _advance(left: Programs, rank: int) -> bool:
    if not left[rank]:
        return False
    what, peer = left[rank][-1]
    meets = what == "send" and left[peer][-1:] == [("recv", rank)]
    if meets:
        left[peer].pop()
    if meets or what == "run":
        left[rank].pop()
    return meets or what == "run"


def _cause(got: set[int], want: set[int], programs: Programs) -> str:
    if got == _with_anybody(programs):
        return "a send and a recv meet only if each names the other"
    if got == _with_buffers(programs):
        return (
            "this would hold if a send returned at once; here it comes back only when the peer is "
            "at its recv"
        )
    if got and want and got == set(range(len(programs))) - want:
        return "these are the ranks that get to the end; the others are expected"
    if got and got < want:
        return (
            f"rank {min(want - got)} does not get to the end either: it waits for a rank that "
            "never comes to it"
        )
    if want < got:
        more = (
            f"rank {min(got - want)} does get to the end: when two ranks have met, both go on, so "
            "look at everyone again until nothing changes"
        )
        if got == _without_running(programs):
            more += (
                "; or does nobody get past a run? It waits for nobody: a rank that runs something "
                "just goes on"
            )
        return more
    if not got:
        return "some ranks hang: nobody moves any more, not all are at their end"
    return "a send and a recv meet only if each names the other"


def _with_anybody(programs: Programs) -> set[int] | None:
    """Who hangs if any recv takes any send to its rank; None where that is the same."""
    left = [list(reversed(program)) for program in programs]
    moved = True
    while moved:
        moved = False
        for steps in filter(None, left):
            what, peer = steps[-1]
            meets = what == "send" and any(step[0] == "recv" for step in left[peer][-1:])
            if meets:
                left[peer].pop()
            if meets or what == "run":
                steps.pop()
                moved = True
    found = {rank for rank, steps in enumerate(left) if steps}
    return found if found != set(reference(programs)) else None


def _without_running(programs: Programs) -> set[int]:
    """Who hangs if a run is never over."""
    asleep = [
        [("send", rank) if what == "run" else (what, peer) for what, peer in program]
        for rank, program in enumerate(programs)
    ]
    return set(reference(asleep))


def _with_buffers(programs: Programs) -> set[int]:
    """Who hangs if sends do not wait."""
    place, mail = [0] * len(programs), []
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while place[rank] < len(program):
                what, peer = program[place[rank]]
                if what == "send":
                    mail.append((rank, peer))
                elif what == "recv":
                    if (peer, rank) not in mail:
                        break
                    mail.remove((peer, rank))
                place[rank] += 1
                moved = True
    return {rank for rank, program in enumerate(programs) if place[rank] < len(program)}


def _shown(program: list) -> str:
    steps = [f"{what} {peer}" for what, peer in program]
    return ", ".join(steps[:9]) + (", ..." if len(steps) > 9 else "")


EXERCISE = Exercise(
    module=__name__,
    signature="(programs)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Keep for every rank how far it is. Who may take a step now? A rank that runs something,
        always. Two ranks of which one is at a send and the other at the recv that fits, together.
        """,
        """
        Go through the ranks again and again. "run": move on. ("send", q): look where q is; only
        if it is at ("recv", r) do both move on. Stop when a whole round has moved nobody; whoever
        is not at the end is stuck.
        """,
        """
        place = [0] * n. In a while loop with a flag: for each rank r that is not at its end, what,
        peer = programs[r][place[r]]. For a send, the peer must not be at its end, and its step
        must equal ("recv", r): then place[r] += 1 and place[peer] += 1. A recv is moved by its
        sender. Return [r for r in range(n) if place[r] < len(programs[r])].
        """,
    ),
    passed="GPipe gets through with sends that wait, and 1F1B does not",
    contract=Contract(
        takes="any number of ranks with programs of any length, even empty ones",
        gives="each rank is in the list once",
        any_order=True,
        allowed=frozenset(),
    ),
    points=2,
)
