"""Operations that an answer may not use are named, with the line that called them."""

from types import SimpleNamespace

from course_lib.checks.forbidden_operations import course_answer, forbidden
from course_lib.observe import Frame
from course_lib.techniques.collectives import ring_all_reduce


def calls(*operations, file="cell") -> SimpleNamespace:
    events = [
        SimpleNamespace(op=op, rank=rank, where=(Frame(file, 3, "answer"),))
        for rank, op in enumerate(operations)
    ]
    return SimpleNamespace(events=events)


def test_forbidden_operations():
    allowed = frozenset({"send", "recv"})
    assert forbidden(allowed, calls("send", "recv", "barrier")) is None
    assert forbidden(None, calls("all_reduce")) is None
    finding = forbidden(allowed, calls("send", "all_reduce"))
    assert finding.rank == 1
    assert finding.likely == (
        "your ranks ran all_reduce (cell, line 3), and this exercise is about doing without it: "
        "use send and recv"
    )
    assert "needs no communication" in forbidden(frozenset(), calls("send")).likely


def test_the_courses_own_answer():
    ours = ring_all_reduce.__code__.co_filename  # wherever the techniques lie
    assert course_answer(calls("send")) is None
    assert "course keeps its own answer" in course_answer(calls("send", file=ours)).likely
