"""What crosses the loopback device of a sandbox, against what was recorded, byte for byte."""

import random

import pytest

from course_lib.checks.contract import Contract
from course_lib.checks.examine import examine_briefly
from course_lib.checks.exercise import Case, Exercise, Observation
from course_lib.checks.run_answer import Crossed, Job, Outcome
from course_lib.checks.sandbox import grader, loopback_traffic
from course_lib.checks.sandbox.answer_program import Piece, Program
from course_lib.checks.sandbox.grader import Grader
from course_lib.observe import CommEvent, Trace

IMPORTS = "import torch\nimport torch.distributed as dist"
# Everything that gloo can do, in messages that are all head, and in some that are all payload.
EVERYTHING = """
def everything(size):
    me, n = dist.get_rank(), dist.get_world_size()
    full = lambda: torch.ones(size)
    each = lambda: [full() for _ in range(n)]
    sending = dist.isend(full(), (me + 1) % n)
    dist.recv(full(), (me - 1) % n)
    sending.wait()
    dist.barrier()
    dist.all_reduce(full())
    dist.all_reduce(full(), op=dist.ReduceOp.MAX)
    dist.broadcast(full(), n - 1)
    dist.reduce(full(), n - 1)
    dist.all_gather(each(), full())
    dist.all_gather_into_tensor(torch.ones(n * size), full())
    dist.gather(full(), each() if me == 0 else None)
    dist.scatter(full(), each() if me == 0 else None)
    dist.reduce_scatter(full(), each())
    dist.reduce_scatter_tensor(full(), torch.ones(n * size))
    dist.all_to_all_single(torch.ones(n * size), torch.ones(n * size))
    return size
"""
# What goes straight from rank to rank, or once around all of them, whichever end comes first.
EXACT = """
def everything(size):
    me, n = dist.get_rank(), dist.get_world_size()
    full = lambda: torch.ones(size)
    each = lambda: [full() for _ in range(n)]
    receiving = dist.irecv(torch.ones(size), (me - 1) % n)
    for late in range(2):
        sending = dist.isend(torch.ones(size), (me + 1) % n)
        dist.barrier()
        if late:
            dist.recv(torch.ones(size), (me - 1) % n)
        sending.wait()
    receiving.wait()
    dist.broadcast(full(), n - 1)
    dist.gather(full(), each() if me == 0 else None)
    dist.scatter(full(), each() if me == 0 else None)
    dist.all_gather(each(), full())
    dist.all_gather_into_tensor(torch.ones(n * size), full())
    dist.all_to_all_single(torch.ones(n * size), torch.ones(n * size))
    return size
"""
PAST = EVERYTHING.replace(
    "return size",
    """for _ in range(MORE):
        gloo = dist.group.WORLD._get_backend(torch.device("cpu"))
        gloo.allgather([each()], [full()]).wait()
    return size""",
)


def _cases(rng: random.Random) -> list[Case]:
    return [Case(n, f"{size} on {n}", {"size": size}) for n in (2, 3) for size in (1, 30_000)]


def _on_rank(answer, case):
    return answer(case.data["size"])


EXERCISE = Exercise(
    module="nb01_tiny.everything",
    signature="(size)",
    cases=_cases,
    on_rank=_on_rank,
    judge=lambda case, observation: None,
    hints=("", "", ""),
    passed="",
    contract=Contract(causal=False),
)


@pytest.fixture(scope="module")
def verdict():
    with pytest.MonkeyPatch.context() as patch, Grader() as sandboxes:
        patch.setattr(grader, "examine", examine_briefly)
        if not sandboxes.isolated:
            pytest.skip("this system has no namespaces to give")

        def take(code: str):
            pieces = (Piece("/lesson/a.py", IMPORTS), Piece("/answers/x/everything.py", code))
            program = Program("everything", pieces)
            return sandboxes.verdict(EXERCISE, program, random.Random(1), [IMPORTS])

        yield take


def test_what_gloo_needs_for_each_operation_is_allowed_for(verdict):
    taken = verdict(EVERYTHING)
    assert taken.passed, str(taken)


def test_of_most_operations_it_is_known_to_the_byte_what_crosses(verdict, monkeypatch):
    seen = []

    def note(job: Job, outcome: Outcome) -> Outcome:
        events = [event for each in outcome.observations for event in each.trace.events]
        seen.append((outcome.crossed.bytes, loopback_traffic.limits(job, events)[0]))
        return outcome

    monkeypatch.setattr(loopback_traffic, "compared", note)
    assert verdict(EXACT).passed
    assert len(seen) >= 2
    assert all(crossed == most for crossed, most in seen), seen


@pytest.mark.parametrize("runs", [1, 2])
def test_a_run_of_which_too_much_crossed_is_repeated_once(verdict, monkeypatch, runs):
    told = iter(["too much crossed"] * runs)
    monkeypatch.setattr(loopback_traffic, "breach", lambda job, outcome: next(told, ""))
    taken = verdict(EXACT)
    assert taken.passed == (runs == 1)
    assert runs == 1 or "too much crossed" in str(taken)


def test_what_nobody_recorded_is_not(verdict):
    """An eighth of all that is sent, and nothing that the recorder could see."""
    assert "bytes crossed between your ranks" in str(verdict(PAST.replace("MORE", "3")))


def _event(op: str, nbytes: int, rank: int = 0) -> CommEvent:
    return CommEvent(
        *(rank, 0, op, "0", (0, 1), 1 - rank, 0, nbytes, ((nbytes // 4,),), "float32"),
        *(None, True, False, 0.0),
    )


def _compared(crossed: Crossed, *events: CommEvent) -> str:
    observation = Observation([None, None], Trace(2, list(events)))
    outcome = loopback_traffic.compared(JOB, Outcome([observation], crossed=crossed))
    return " ".join(breach.sentence for breach in outcome.observations[0].breaches)


JOB = Job(EXERCISE, (Case(2, "", {"size": 1}),))


def test_a_message_has_three_heads_and_no_more():
    """One for itself, and one for each of the notes by which both ends find each other."""
    most, least = loopback_traffic.limits(JOB, [_event("send", 4000)])
    none, _ = loopback_traffic.limits(JOB, [])
    assert most - none == 4000 + 3 * 48
    assert least == 4000
    assert _compared(Crossed(most), _event("send", 4000)) == ""
    assert f"{most + 1:,} bytes crossed" in _compared(Crossed(most + 1), _event("send", 4000))


def test_nothing_is_forgiven_for_a_packet_that_was_sent_again():
    most, _ = loopback_traffic.limits(JOB, [_event("send", 10**6)])
    told = _compared(Crossed(most + 1, again=2), _event("send", 10**6))
    assert "(2 packets were sent a second time)" in told


def test_what_was_recorded_and_never_crossed_is_told():
    assert "was something recorded that was never sent?" in _compared(
        Crossed(500), _event("send", 4000)
    )
