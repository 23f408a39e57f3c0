"""Journals and files: what survives a crash, a cut and a wrong file."""

import json

import pytest

from course_lib.observe import Frame, RankWarning, Trace, read_trace
from course_lib.observe.journal import JournalWriter
from tests.observe.events import event

HERE = (Frame("cell.py", 3, "step"), Frame("cell.py", 9, "<module>"))
WARNING = RankWarning(0, "never_waited", 'line 3: "work"', HERE[:1], HERE)


@pytest.fixture
def journal(tmp_path):
    """A journal in which the rank waits in its second operation."""
    path = tmp_path / "0"
    writer = JournalWriter(path)
    writer.rank(0, 2)
    sent = event(0, 0, "send", peer=1, tag=3, where=HERE, spans=("F0.1", "ä"), issued=1.0)
    writer.issue(sent)
    writer.wait(0, 1.5)
    writer.done(0, 2.0)
    writer.warning(WARNING)
    writer.issue(event(0, 1, "recv", where=HERE[1:], issued=3.0, splits=(1, 2)))
    writer.wait(1, 3.5)
    writer.close()
    return path


def test_a_journal_is_read_as_it_was_written(journal):
    trace = read_trace({0: journal})
    first, second = trace.events
    assert (first.tag, first.where, first.spans) == (3, HERE, ("F0.1", "ä"))
    assert (first.issued, first.waited, first.done) == (1.0, 1.5, 2.0)
    assert (second.where, second.splits, second.peer) == (HERE[1:], (1, 2), None)
    assert (second.waited, second.done) == (3.5, None)
    assert trace.warnings == [WARNING]
    assert trace.world_size == 2
    assert trace.waiting(0) is second
    assert trace.unfinished(0) == [second]


def test_every_cut_leaves_what_came_before(journal):
    whole = journal.read_bytes()
    counts = set()
    for length in range(len(whole)):
        journal.write_bytes(whole[:length])
        trace = read_trace({0: journal, 1: journal.with_name("missing")})
        assert trace.world_size == 2
        counts.add((len(trace.events), len(trace.warnings)))
    assert counts == {(0, 0), (1, 0), (1, 1), (2, 1)}


def test_waiting_is_the_last_thing_a_rank_did():
    def waiting(*events):
        return Trace(2, list(events)).waiting(0)

    stuck = event(0, 0, "recv", issued=1.0, waited=2.0)
    assert waiting() is None
    assert waiting(stuck) is stuck
    assert waiting(event(0, 0, "recv", issued=1.0)) is None  # not waited for yet
    assert waiting(event(0, 0, "recv", issued=1.0, waited=2.0, done=3.0)) is None
    # The wait was given up, and the rank went on.
    assert waiting(stuck, event(0, 1, "send", issued=3.0)) is None
    # Inside C++, nobody sees the wait.
    hidden = event(0, 1, "all_reduce", issued=3.0, native=True)
    assert waiting(stuck, hidden) is hidden


def test_a_saved_trace_is_loaded_equal(journal, tmp_path):
    trace = read_trace({0: journal})
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == trace


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"cells": []}', "is not a trace: it does not say format"),
        ("[1, 2]", "is not a trace"),
        ("", "is not a trace, or was cut short"),
        ("\x89PNG", "is not a trace, or was cut short"),
    ],
)
def test_another_file_is_refused(tmp_path, content, reason):
    path = tmp_path / "other"
    path.write_text(content)
    with pytest.raises(ValueError, match=reason):
        Trace.load(path)


def test_a_trace_cut_short_or_of_another_version_is_refused(journal, tmp_path):
    path = tmp_path / "trace.json"
    read_trace({0: journal}).save(path)
    text = path.read_text()
    path.write_text(text[:-20])
    with pytest.raises(ValueError, match="cut short"):
        Trace.load(path)
    content = json.loads(text)
    path.write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(ValueError, match="version 99; this course_lib reads version 2"):
        Trace.load(path)
    del content["events"][0]["op"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="damaged trace"):
        Trace.load(path)


def part(path, rank, zero, sent):
    writer = JournalWriter(path)
    writer.clock(zero)
    writer.rank(rank, 2)
    writer.compute(sent - 0.5, sent - 0.25, 0.25, ("F0.0",))
    writer.issue(event(rank, 0, "barrier", issued=sent))
    writer.wait(0, sent)
    writer.done(0, sent + 1)
    writer.label("step", sent, sent + 1)
    writer.block(0, sent, 8, False)
    writer.close()


def test_clocks_of_several_machines_are_brought_together(tmp_path):
    part(tmp_path / "a.journal", 0, 5000.0, 10.0)
    part(tmp_path / "b.journal", 1, 4000.0, 1010.0)
    trace = read_trace(tmp_path)
    assert [(e.rank, e.issued, e.waited, e.done) for e in trace.events] == [
        (0, 10, 10, 11), (1, 10, 10, 11),
    ]  # fmt: skip
    assert [(span.rank, span.start, span.end) for span in trace.compute] == [
        (0, 9.5, 9.75), (1, 9.5, 9.75),
    ]  # fmt: skip
    assert {(label.start, label.end) for label in trace.labels} == {(10, 11)}
    assert [block.steps for block in trace.blocks] == [[(10, 8, False)]] * 2


def test_one_machine_has_one_clock(tmp_path):
    part(tmp_path / "a.journal", 0, 5000.0, 10.0)
    part(tmp_path / "b.journal", 1, 5000.2, 10.0)  # the time of day was set in between
    assert {e.issued for e in read_trace(tmp_path).events} == {10}


def test_a_folder_that_holds_no_run_or_two_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no \*.journal"):
        read_trace(tmp_path)
    part(tmp_path / "a.journal", 1, 0.0, 1.0)
    part(tmp_path / "b.journal", 1, 0.0, 1.0)
    with pytest.raises(ValueError, match="are both of rank 1"):
        read_trace(tmp_path)
